package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Etcd returns a client of the lab's etcd; the caller closes it.
func (l *Store) Etcd(ctx context.Context) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: strings.Split(l.StoreURLs(), ","), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return l.Master.Dial(ctx, "tcp", strings.TrimPrefix(addr, "http://"))
		})},
	})
}

// Snapshot reads what the store holds of the cluster's intent, at one revision.
func (l *Lab) Snapshot(ctx context.Context) ([]tables.Change, store.Revision, error) {
	c, err := l.Store.Etcd(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the intent: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, tables.StatePrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("read the intent: %w", err)
	}
	rules := tables.NewInForce()
	var out []tables.Change
	for _, kv := range resp.Kvs {
		ev := store.Event{KV: store.KV{Key: string(kv.Key), Value: kv.Value, Create: store.Revision(kv.CreateRevision), Mod: store.Revision(kv.ModRevision)}}
		ch, err := rules.Decode(ev)
		if err != nil {
			return nil, 0, fmt.Errorf("read the intent: %w", err)
		}
		if ch.Key != nil {
			out = append(out, ch)
		}
	}
	out = append(out, rules.Rest()...)
	return out, store.Revision(resp.Header.Revision), nil
}

// enter tells a compiler of a snapshot.
func enter(c *compile.Compiler, snapshot []tables.Change) {
	for _, ch := range snapshot {
		if k, ok := ch.Key.(model.RuleKey); ok && ch.Deleted() {
			c.DeleteRule(k)
		}
		switch v := ch.Value.(type) {
		case model.Global:
			c.SetGlobal(v)
		case model.Host:
			c.SetHost(v)
		case model.Tenant:
			c.SetTenant(v)
		case model.Network:
			c.SetNetwork(v)
		case model.Group:
			c.SetGroup(v)
		case model.Policy:
			c.SetPolicy(v)
		case model.PolicyRule:
			c.SetRule(v)
		case model.Endpoint:
			c.SetEndpoint(v)
		case model.IdentityRecord:
			c.SetIdentity(v)
		case model.Service:
			c.SetService(v)
		case model.ServiceSlice:
			c.SetServiceSlice(v)
		case model.ClusterNode:
			c.SetClusterNode(v)
		case model.ServiceRanges:
			c.SetServiceRanges(v)
		}
	}
}

// AgentState asks a host's netplugin what it knows of itself.
func (h *Host) AgentState(ctx context.Context) (s observe.State, err error) {
	return s, h.Inspect(ctx, "/debug/state", &s)
}

// Inspect asks a host's netplugin, on its port for inspection, for JSON.
func (h *Host) Inspect(ctx context.Context, path string, out any) error {
	resp, err := getFrom(ctx, h, path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("ask %s for %s: %w", h.Name, path, err)
	}
	return nil
}

// Healthz returns what a host's netplugin says of its health, and whether that is good.
func (h *Host) Healthz(ctx context.Context) (text string, good bool, err error) {
	resp, err := getFrom(ctx, h, "/healthz")
	if err != nil {
		return "", false, err
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.StatusCode == http.StatusOK, errors.Join(err, resp.Body.Close())
}

// getFrom gets a path of the inspection of a host.
func getFrom(ctx context.Context, h *Host, path string) (*http.Response, error) {
	cfg, err := h.lab.certificates.admin(pki.Host)
	if err != nil {
		return nil, err
	}
	if cfg != nil {
		cfg.ServerName = h.Name
	}
	client := http.Client{Transport: &http.Transport{DialContext: h.NS.Dial, DisableKeepAlives: true, TLSClientConfig: cfg}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme(h.lab.certificates.restTLS())+"://127.0.0.1:9006"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", h.Name, path, err)
	}
	return resp, nil
}

// privateAddresses are the IPv4 addresses by which each host knows its containers, by
// their interfaces; of a host whose netplugin does not answer there are none.
func privateAddresses(ctx context.Context, hosts []*Host) map[model.HostName]map[string]netip.Addr {
	out := map[model.HostName]map[string]netip.Addr{}
	for _, h := range hosts {
		s, err := h.AgentState(ctx)
		if err != nil {
			continue
		}
		of := map[string]netip.Addr{}
		for name, p := range s.Ports {
			of[name] = p.Private
		}
		out[model.HostName(h.Name)] = of
	}
	return out
}
