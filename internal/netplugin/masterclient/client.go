package masterclient

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
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Config is what a Client needs; Host and Allowed are required.
type Config struct {
	Host  model.HostName
	Fixed string        // base URLs, separated by commas; empty = Discover finds them
	Seeds []string      // base URLs to begin with where Fixed is empty
	TLS   *tls.Config   // of https URLs; nil = the system's authorities
	Token func() string // what is shown to netmasters; nil = nothing
	// NetworkToken is shown instead when networks are created and deleted for a runtime;
	// nil = this host has none.
	NetworkToken func() string
	Allowed      func() error // whether endpoints of this host may be created and released
	// Joined: TLS is of a cluster with --secure. Registry entries without https were
	// written while the cluster was plain, and are not asked.
	Joined bool
}

// Client is the way to netmaster: fixed URLs, or what the registry tells.
type Client struct {
	host    model.HostName
	allowed func() error
	tls     *tls.Config
	token   func() string
	joined  bool

	networkToken func() string

	changes      waiting.Changes
	mu           sync.Mutex
	fixed        bool
	seeds        []string
	bases        string
	client       *api.Client
	shortTimeout *api.Client // the same, for who cannot wait
	writer       *api.Client // the same, with the network token
}

// Timeout bounds one request: a netmaster that is there answers in
// milliseconds, and detaching must not hang on one that is not.
const Timeout = 10 * time.Second

// New returns the way from a host to the netmasters.
func New(cfg Config) (*Client, error) {
	m := &Client{host: cfg.Host, allowed: cfg.Allowed, tls: cfg.TLS, token: cfg.Token, networkToken: cfg.NetworkToken, joined: cfg.Joined}
	if cfg.Fixed == "" {
		return m, m.SetSeeds(cfg.Seeds)
	}
	if err := m.dial(cfg.Fixed); err != nil {
		return nil, err
	}
	m.fixed = true
	return m, nil
}

// SetSeeds takes the base URLs of netmasters that may pass the registry on, which tells of
// all: they are asked for nothing else once it has.
func (m *Client) SetSeeds(urls []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fixed || len(urls) == 0 {
		return nil
	}
	m.seeds = urls
	if m.client != nil {
		return nil
	}
	defer m.changes.Notify()
	return m.dial(strings.Join(urls, ","))
}

// dial makes the clients of the netmasters at bases, separated by commas.
func (m *Client) dial(bases string) error {
	c, err := m.Dial(bases, api.WithTimeout(Timeout))
	if err != nil {
		return err
	}
	hasty, err := m.Dial(bases, api.WithTimeout(model.L2LeaseTime), api.WithPatience(model.L2ReportInterval/2))
	if err != nil {
		return err
	}
	writer := c
	if m.networkToken != nil {
		if writer, err = api.NewClient(bases, api.WithTimeout(Timeout), api.WithTLS(m.tls), api.WithToken(m.networkToken)); err != nil {
			return err
		}
	}
	m.bases, m.client, m.shortTimeout, m.writer = bases, c, hasty, writer
	return nil
}

// Dial makes a client of the netmasters at bases, separated by commas.
func (m *Client) Dial(bases string, opts ...api.Option) (*api.Client, error) {
	return api.NewClient(bases, append(opts, api.WithTLS(m.tls), api.WithToken(m.token))...)
}

// set takes the registry's list of base URLs, sorted.
func (m *Client) set(urls []string) error {
	bases := strings.Join(urls, ",")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fixed || bases == m.bases {
		return nil
	}
	m.bases = bases // the last clients known may still answer
	if bases != "" {
		if err := m.dial(bases); err != nil {
			return err
		}
	}
	m.changes.Notify()
	return nil
}

// API returns the client, nil while no netmaster is known.
func (m *Client) API() *api.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

// Await returns once a netmaster has become known, or ctx ends.
func (m *Client) Await(ctx context.Context) {
	_ = m.changes.Until(ctx, func() (bool, error) { return m.API() != nil, nil }) // its error is ctx's end
}

// Known reports whether a netmaster is known now, and what tells of a change.
func (m *Client) Known() (string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bases, m.changes.Next()
}

// Close gives idle connections up.
func (m *Client) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range []*api.Client{m.client, m.shortTimeout, m.writer} {
		if c != nil {
			c.Close()
		}
	}
}

// ErrNone: no netmaster is known.
var ErrNone = model.Errorf(model.ErrUnavailable, "no netmaster is known: none is registered in the store and --netmaster is not given")

// PlacePod asks where an interface of a pod belongs. A netmaster of before it could be asked
// follows no Kubernetes.
func (m *Client) PlacePod(ctx context.Context, p api.PodPlacementRequest) (api.PodPlacement, error) {
	c := m.API()
	if c == nil {
		return api.PodPlacement{}, ErrNone
	}
	place, err := c.PlacePod(ctx, p)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Kind == api.KindNoRoute {
		return api.PodPlacement{}, nil
	}
	if err != nil {
		return place, FromAPI("ask for the place of pod "+p.Namespace+"/"+p.Name, err)
	}
	return place, nil
}

// Place asks on which network an endpoint of a group, or of none, is to be: what a host asks
// of a tenant that it has nothing of. Errors are of the kinds by which netmaster would refuse
// the endpoint.
func (m *Client) Place(ctx context.Context, g model.GroupKey, asked model.NetworkName) (model.NetworkName, error) {
	c := m.API()
	if c == nil {
		return "", ErrNone
	}
	p, err := c.PlaceEndpoint(ctx, api.EndpointPlacement{TenantName: string(g.Tenant), NetworkName: string(asked), ServiceName: string(g.Name)})
	if err != nil {
		return "", FromAPI("ask for the network of an endpoint of tenant "+string(g.Tenant), err)
	}
	return model.ParseNetworkName(p.NetworkName)
}

// EndpointRevisions is up to where a host has to know the store to know an endpoint with all
// policies that there were before it: for each mirror the last commit that touched it.
// Netmasters of before the last two could be asked leave them 0.
type EndpointRevisions struct {
	Endpoint store.Revision // of the endpoint itself
	Tenant   store.Revision // of what the tenant has beside endpoints
	Global   store.Revision // of namespaces and settings
}

// Create asks netmaster for an endpoint and returns it with its revisions.
func (m *Client) Create(ctx context.Context, req api.CreateEndpointRequest, key model.EndpointKey) (model.Endpoint, EndpointRevisions, error) {
	var at EndpointRevisions
	c := m.API()
	if c == nil {
		return model.Endpoint{}, at, ErrNone
	}
	if err := m.allowed(); err != nil {
		return model.Endpoint{}, at, err
	}
	resp, err := c.CreateEndpoint(ctx, req)
	if err != nil {
		return model.Endpoint{}, at, FromAPI("create endpoint "+key.String(), err)
	}
	ec := resp.EndpointConfig
	ep := model.Endpoint{Key: key, Group: model.GroupName(ec.ServiceName)}
	if ep.MAC, err = model.ParseMAC(ec.MacAddress); err != nil {
		return ep, at, err
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
			return ep, at, model.InvalidField("address of endpoint "+key.String(), f.text, "must be an address; is this netmaster of the same version?")
		}
	}
	return ep, EndpointRevisions{
		Endpoint: store.Revision(resp.Revision),
		Tenant:   store.Revision(max(resp.TenantWritten, resp.TenantDeleted)),
		Global:   store.Revision(resp.GlobalRevision),
	}, nil
}

// Ping asks a netmaster for its version.
func (m *Client) Ping(ctx context.Context) error {
	c := m.API()
	if c == nil {
		return ErrNone
	}
	if err := c.Do(ctx, http.MethodGet, "/version", nil, nil); err != nil {
		return model.Errorf(model.ErrUnavailable, "ask netmaster: %w", err)
	}
	return nil
}

// MayView asks a netmaster whether a token lets view the cluster.
func (m *Client) MayView(ctx context.Context, token string) error {
	m.mu.Lock()
	bases := m.bases
	m.mu.Unlock()
	if bases == "" {
		return ErrNone
	}
	c, err := api.NewClient(bases, api.WithTimeout(Timeout), api.WithTLS(m.tls), api.WithToken(func() string { return token }))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Do(ctx, http.MethodGet, "/info", nil, nil); err != nil { // which is for viewers alone
		return FromAPI("ask netmaster about the token", err)
	}
	return nil
}

// Delete releases an endpoint at netmaster; one that is not there is fine.
func (m *Client) Delete(ctx context.Context, key model.EndpointKey, group model.GroupName) error {
	c := m.API()
	if c == nil {
		return ErrNone
	}
	if err := m.allowed(); err != nil {
		return err
	}
	_, err := c.DeleteEndpoint(ctx, api.DeleteEndpointRequest{
		TenantName: string(key.Network.Tenant), NetworkName: string(key.Network.Name),
		ServiceName: string(group), EndpointID: string(key.ID),
	})
	if err != nil && !api.IsNotFound(err) {
		return FromAPI("delete endpoint "+key.String(), err)
	}
	return nil
}

// Endpoints asks netmaster, which has them by host, for the endpoints of this
// one: their keys and groups.
func (m *Client) Endpoints(ctx context.Context) ([]model.Endpoint, error) {
	c := m.API()
	if c == nil {
		return nil, ErrNone
	}
	list, err := c.Endpoints(ctx, api.EndpointFilter{Host: string(m.host)})
	if err != nil {
		return nil, FromAPI("list endpoints of host "+string(m.host), err)
	}
	out := make([]model.Endpoint, len(list))
	for i, e := range list {
		out[i].Group = model.GroupName(e.ServiceName)
		if out[i].Key, err = model.ParseEndpointKey(e.Key); err != nil {
			return nil, fmt.Errorf("list endpoints of host %s: %w", m.host, err)
		}
	}
	return out, nil
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
	// Tokens are exchanged while all runs: trying again helps.
	api.KindUnauthorized: model.ErrUnavailable,
	api.KindTooMany:      model.ErrUnavailable,
}

// statusKinds stand in for a kind that an older netmaster does not tell.
var statusKinds = map[int]error{
	http.StatusBadRequest:         model.ErrInvalid,
	http.StatusNotFound:           model.ErrNotFound,
	http.StatusConflict:           model.ErrConflict,
	http.StatusServiceUnavailable: model.ErrUnavailable,
}

// FromAPI gives an answer of netmaster its kind back.
func FromAPI(what string, err error) error {
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

// FixedBases are the netmasters that a flag names, for a netmaster that is not
// reached at the address that it knows of itself.
func (m *Client) FixedBases() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.fixed {
		return nil
	}
	return strings.Split(m.bases, ",")
}

// ReportHost has a netmaster keep this host's place in the cluster. Errors are of
// model's kinds; that the name is another's is none.
func (m *Client) ReportHost(ctx context.Context, r api.HostReport) (kept api.HostReportResponse, err error) {
	c := m.API()
	if c == nil {
		return kept, ErrNone
	}
	if err := c.Do(ctx, http.MethodPost, "/plugin/host", r, &kept); err != nil {
		return kept, FromAPI("keep host "+r.Host, err)
	}
	return kept, nil
}

// ReportStatus has a netmaster keep what the host observes.
func (m *Client) ReportStatus(ctx context.Context, r api.HostStatusReport) error {
	c := m.API()
	if c == nil {
		return ErrNone
	}
	if err := c.Do(ctx, http.MethodPost, "/plugin/hostStatus", r, nil); err != nil {
		return FromAPI("report the status of host "+r.Host, err)
	}
	return nil
}

// RequestL2Addresses tells for which addresses of load balancers this host could answer its
// neighbours, and returns for which it does. It asks the next netmaster soon, since the
// answer is good for a short time only.
func (m *Client) RequestL2Addresses(ctx context.Context, r api.L2AnnouncerReport) (held []netip.Addr, err error) {
	m.mu.Lock()
	c := m.shortTimeout
	m.mu.Unlock()
	if c == nil {
		return nil, ErrNone
	}
	var got api.L2AnnouncerResponse
	if err := c.Do(ctx, http.MethodPost, "/plugin/answer", r, &got); err != nil {
		return nil, FromAPI("report the load balancer addresses of host "+r.Host+" could answer", err)
	}
	for _, text := range got.Held {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, model.InvalidField("held", text, "must be an address; is this netmaster of the same version?")
		}
		held = append(held, a)
	}
	return held, nil
}
