package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ServiceTTL is how long an instance stays registered after it died.
const ServiceTTL = 10 * time.Second

// ServiceLease is the lease that keeps it there. A store ends a lease up to a
// second late, and by ServiceTTL the entry is to be gone.
const ServiceLease = ServiceTTL - 2*time.Second

const servicesPrefix = store.Root + "service/" // one of tables.Registered

// ServiceRPC is where netmasters of 1.x are asked by RPC.
const ServiceRPC = "netmaster.rpc"

// ControlServices name addresses of the control plane in the registry: where netmasters are to be
// asked, and all that a machine listens on.
var ControlServices = []string{ServiceMaster, ServiceRPC, ListenService}

// IsRegistration reports whether a key of the store is one of the registry.
func IsRegistration(key string) bool { return strings.HasPrefix(key, servicesPrefix) }

// Service is an instance in the service registry, as stored under
// /contiv.io/service/<name>/<host>:<port>: agents and operators' scripts look
// there (contract/rest.md, "Keys in the cluster store").
type Service struct {
	ServiceName string
	Role        string
	Version     string
	TTL         int // seconds
	HostAddr    string
	Port        int
	Hostname    string
	// Scheme is what a URL of the instance begins with, http or https; empty where
	// no HTTP is spoken, and in records of versions that knew http only.
	Scheme string `json:",omitempty"`
	// TLS says that it is asked by https too, while Scheme is http for those who have no
	// certificate yet.
	TLS bool `json:",omitempty"`
	// Installation identifies the installation of a host's agent: see model.Host.
	Installation string `json:",omitempty"`
}

func (s Service) key() string {
	return servicesOf(s.ServiceName) + net.JoinHostPort(s.HostAddr, strconv.Itoa(s.Port))
}

// URL is where an instance that speaks HTTP is asked. A scheme that is neither
// http nor https is model.ErrInvalid: a later version's.
func (s Service) URL() (string, error) {
	scheme := s.Scheme
	switch scheme {
	case "":
		scheme = transport.HTTP
	case transport.HTTP, transport.HTTPS:
	default:
		return "", model.Errorf(model.ErrInvalid, "%s at %s, port %d, is asked by %q: this version knows http and https", s.ServiceName, s.HostAddr, s.Port, s.Scheme)
	}
	return scheme + "://" + net.JoinHostPort(s.HostAddr, strconv.Itoa(s.Port)), nil
}

// URLFor is URL for who has a certificate, or has none.
func (s Service) URLFor(certificate bool) (string, error) {
	if certificate && s.TLS {
		s.Scheme = transport.HTTPS
	}
	return s.URL()
}

// Find reads the instance that is registered at the same place as s.
func (s Service) Find(tx store.Tx) (Service, bool, error) {
	kv, err := tx.Get(s.key())
	if err != nil || !kv.Exists() {
		return Service{}, false, err
	}
	was, ok := decodeService(kv)
	return was, ok, nil
}

// Put enters an instance for as long as a session lasts; TTL is filled in.
func (s Service) Put(tx store.Tx, session store.Session) error {
	s.TTL = int(ServiceTTL / time.Second)
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("register %s: %w", s.ServiceName, err)
	}
	tx.Put(s.key(), b, session)
	return nil
}

// Keep is Put without a session, unless it is there already as it should be.
func (s Service) Keep(tx store.Tx) error {
	was, there, err := s.Find(tx)
	if was.TTL = 0; err != nil || there && was == s {
		return err
	}
	return s.Put(tx, nil)
}

// Delete takes an instance out of the registry.
func (s Service) Delete(tx store.Tx) { tx.Delete(s.key()) }

func servicesOf(name string) string { return servicesPrefix + store.Segment(name) + "/" }

func decodeService(kv store.KV) (Service, bool) {
	var s Service
	return s, json.Unmarshal(kv.Value, &s) == nil && s.ServiceName != ""
}

// Registration keeps an instance registered until Close.
type Registration struct {
	store   store.Store
	onError func(error)
	cancel  context.CancelFunc
	running sync.WaitGroup
	rewrite chan struct{} // the record has to be written again

	mu      sync.Mutex // held while the record or the session changes
	service Service
	session store.Session
}

// Register enters an instance and keeps it entered until Close, with new sessions after
// losses. It fills in TTL. onError, optional, gets errors of the store after the first
// success.
func Register(ctx context.Context, st store.Store, s Service, onError func(error)) (*Registration, error) {
	if s.ServiceName == "" || s.HostAddr == "" || s.Port < 1 || s.Port > 65535 {
		return nil, model.Errorf(model.ErrInvalid, "register service %q: it needs a name, an address and a port, got %q and %d", s.ServiceName, s.HostAddr, s.Port)
	}
	if onError == nil {
		onError = func(error) {}
	}
	s.TTL = int(ServiceTTL / time.Second)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Registration{store: st, onError: onError, cancel: cancel, service: s, rewrite: make(chan struct{}, 1)}
	if err := r.enter(ctx); err != nil {
		cancel()
		return nil, err
	}
	r.running.Go(func() { r.keep(ctx) })
	return r, nil
}

// enter puts the record with a new session.
func (r *Registration) enter(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	session, err := r.store.NewSession(ctx, ServiceLease)
	if err != nil {
		return fmt.Errorf("register %s: %w", r.service.ServiceName, err)
	}
	if err := r.put(ctx, r.service, session); err != nil {
		_ = session.Close()
		return err
	}
	r.session = session
	return nil
}

func (r *Registration) put(ctx context.Context, s Service, session store.Session) error {
	if _, err := r.store.Update(ctx, func(tx store.Tx) error { return s.Put(tx, session) }); err != nil {
		return fmt.Errorf("register %s: %w", s.ServiceName, err)
	}
	return nil
}

func (r *Registration) keep(ctx context.Context) {
	for {
		r.mu.Lock()
		lost := r.session.Done()
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-r.rewrite:
			if r.tellRole(ctx) != nil && waiting.Pause(ctx, time.Second) == nil {
				r.requestRewrite()
			}
			continue
		case <-lost:
		}
		for retry := newRetry(); ctx.Err() == nil; {
			err := r.enter(ctx)
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				r.onError(err)
			}
			if retry.Pause(ctx) != nil {
				return
			}
		}
	}
}

// newRetry spaces the tries to enter what the store does not take now.
func newRetry() *waiting.Retry {
	return waiting.NewRetry(waiting.BackoffConfig{Base: 16 * time.Millisecond, Max: time.Second, Jitter: 0.8})
}

// SetRole changes the role that the record shows. When it fails, it is tried
// again every second until the record shows it.
func (r *Registration) SetRole(ctx context.Context, role string) error {
	r.mu.Lock()
	r.service.Role = role
	r.mu.Unlock()
	err := r.tellRole(ctx)
	if err != nil {
		r.requestRewrite()
	}
	return err
}

func (r *Registration) tellRole(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.put(ctx, r.service, r.session)
}

// requestRewrite has keep write the record.
func (r *Registration) requestRewrite() {
	select {
	case r.rewrite <- struct{}{}:
	default:
	}
}

// Close takes the instance out of the registry.
func (r *Registration) Close() error {
	r.cancel()
	r.running.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.session.Close(); err != nil {
		return fmt.Errorf("deregister %s: %w", r.service.ServiceName, err)
	}
	return nil
}

// Services returns the registered instances of a service, of all with the name
// "", ordered by key. Records that are none are left out.
func Services(ctx context.Context, st store.Reader, name string) ([]Service, error) {
	prefix := servicesPrefix
	if name != "" {
		prefix = servicesOf(name)
	}
	kvs, _, err := st.Range(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	services := make([]Service, 0, len(kvs))
	for _, kv := range kvs {
		if s, ok := decodeService(kv); ok {
			services = append(services, s)
		}
	}
	return services, nil
}

// WatchServices calls fn with all instances of a service ("" = of all), ordered
// by name and address, now and after every change, until ctx ends or fn fails.
func WatchServices(ctx context.Context, st store.Mirrorer, name string, fn func([]Service) error, opts ...store.MirrorOption) error {
	prefix := servicesPrefix
	if name != "" {
		prefix = servicesOf(name)
	}
	known := map[string]Service{}
	return st.Mirror(ctx, []string{prefix}, func(b store.Batch) error {
		for _, e := range b.Events {
			delete(known, e.KV.Key)
			if s, ok := decodeService(e.KV); ok && !e.Deleted() {
				known[e.KV.Key] = s
			}
		}
		services := make([]Service, 0, len(known))
		for _, s := range known {
			services = append(services, s)
		}
		slices.SortFunc(services, func(a, b Service) int { return strings.Compare(a.key(), b.key()) })
		return fn(services)
	}, opts...)
}
