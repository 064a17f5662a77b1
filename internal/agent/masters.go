package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// masters is the way to netmaster: fixed URLs, or what the registry tells.
type masters struct {
	allowed func() error // whether endpoints of this host may be created and released
	tls     *tls.Config  // of https URLs; nil = the system's authorities

	changes waiting.Changes
	mu      sync.Mutex
	fixed   bool
	bases   string
	client  *api.Client
}

// masterTimeout bounds one request: a netmaster that is there answers in
// milliseconds, and detaching must not hang on one that is not.
const masterTimeout = 10 * time.Second

func newMasters(fixed string, client *tls.Config, allowed func() error) (*masters, error) {
	m := &masters{allowed: allowed, tls: client}
	if fixed == "" {
		return m, nil
	}
	c, err := m.dial(fixed, api.WithTimeout(masterTimeout))
	if err != nil {
		return nil, err
	}
	m.fixed, m.bases, m.client = true, fixed, c
	return m, nil
}

// dial makes a client of the netmasters at bases, separated by commas.
func (m *masters) dial(bases string, opts ...api.Option) (*api.Client, error) {
	return api.NewClient(bases, append(opts, api.WithTLS(m.tls))...)
}

// set takes the registry's list of base URLs, sorted.
func (m *masters) set(urls []string) error {
	bases := strings.Join(urls, ",")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fixed || bases == m.bases {
		return nil
	}
	var client *api.Client
	if bases != "" {
		c, err := m.dial(bases, api.WithTimeout(masterTimeout))
		if err != nil {
			return err
		}
		client = c
	} else {
		client = m.client // the last ones known may still answer
	}
	m.bases, m.client = bases, client
	m.changes.Tell()
	return nil
}

// get returns the client, nil while no netmaster is known.
func (m *masters) get() *api.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

// wait returns once a netmaster has become known, or ctx ends.
func (m *masters) wait(ctx context.Context) {
	_ = m.changes.Until(ctx, func() (bool, error) { return m.get() != nil, nil }) // its error is ctx's end
}

// known tells whether a netmaster is known now, and what tells of a change.
func (m *masters) known() (string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bases, m.changes.Next()
}

func (m *masters) close() {
	if c := m.get(); c != nil {
		c.Close()
	}
}

var errNoMaster = model.Errorf(model.ErrUnavailable, "no netmaster is known: none is registered in the store and --netmaster is not given")

// create asks netmaster for an endpoint and returns it with its revision.
func (m *masters) create(ctx context.Context, req api.CreateEndpointRequest, key model.EndpointKey) (model.Endpoint, store.Revision, error) {
	c := m.get()
	if c == nil {
		return model.Endpoint{}, 0, errNoMaster
	}
	if err := m.allowed(); err != nil {
		return model.Endpoint{}, 0, err
	}
	resp, err := c.CreateEndpoint(ctx, req)
	if err != nil {
		return model.Endpoint{}, 0, fromAPI("create endpoint "+key.String(), err)
	}
	ec := resp.EndpointConfig
	ep := model.Endpoint{Key: key, Group: model.GroupName(ec.ServiceName)}
	if ep.MAC, err = model.ParseMAC(ec.MacAddress); err != nil {
		return ep, 0, err
	}
	for _, f := range []struct {
		text string
		to   *netip.Addr
	}{{ec.IPAddress, &ep.IPv4}, {ec.IPv6Address, &ep.IPv6}} {
		if f.text == "" {
			continue
		}
		bare, _, _ := strings.Cut(f.text, "/")
		if *f.to, err = netip.ParseAddr(bare); err != nil {
			return ep, 0, model.InvalidField("address of endpoint "+key.String(), f.text, "must be an address; is this netmaster of the same version?")
		}
	}
	return ep, store.Revision(resp.Revision), nil
}

// ping asks a netmaster for its version.
func (m *masters) ping(ctx context.Context) error {
	c := m.get()
	if c == nil {
		return errNoMaster
	}
	if err := c.Do(ctx, http.MethodGet, "/version", nil, nil); err != nil {
		return model.Errorf(model.ErrUnavailable, "ask netmaster: %w", err)
	}
	return nil
}

// delete releases an endpoint at netmaster; one that is not there is fine.
func (m *masters) delete(ctx context.Context, key model.EndpointKey, group model.GroupName) error {
	c := m.get()
	if c == nil {
		return errNoMaster
	}
	if err := m.allowed(); err != nil {
		return err
	}
	_, err := c.DeleteEndpoint(ctx, api.DeleteEndpointRequest{
		TenantName: string(key.Network.Tenant), NetworkName: string(key.Network.Name),
		ServiceName: string(group), EndpointID: string(key.ID),
	})
	if err != nil && !api.IsNotFound(err) {
		return fromAPI("delete endpoint "+key.String(), err)
	}
	return nil
}

// kinds are model's kinds of error by their names in netmaster's answers.
var kinds = map[string]error{
	api.KindInvalid:     model.ErrInvalid,
	api.KindNotFound:    model.ErrNotFound,
	api.KindExists:      model.ErrExists,
	api.KindConflict:    model.ErrConflict,
	api.KindInUse:       model.ErrInUse,
	api.KindExhausted:   model.ErrExhausted,
	api.KindUnavailable: model.ErrUnavailable,
}

// statusKinds stand in for a kind that an older netmaster does not tell.
var statusKinds = map[int]error{
	http.StatusBadRequest:         model.ErrInvalid,
	http.StatusNotFound:           model.ErrNotFound,
	http.StatusConflict:           model.ErrConflict,
	http.StatusServiceUnavailable: model.ErrUnavailable,
}

// fromAPI gives an answer of netmaster its kind back.
func fromAPI(what string, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return model.Errorf(model.ErrUnavailable, "%s: %w", what, err)
	}
	kind := kinds[e.Kind]
	if e.Kind == "" {
		kind = statusKinds[e.Status]
	}
	if kind == nil {
		return fmt.Errorf("%s: netmaster failed: %w", what, err)
	}
	return model.Errorf(kind, "%w", err) // netmaster's sentence says what it was doing
}
