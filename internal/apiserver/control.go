package apiserver

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Control is what this package needs of the use-cases. Every method fails with
// errors of model's kinds; every Put creates or updates.
type Control interface {
	// View returns a consistent picture that holds every commit made before the call.
	View(ctx context.Context) (View, error)

	PutGlobal(ctx context.Context, change model.Global) error // zero fields stay as they are
	DeleteGlobal(ctx context.Context) error                   // back to the defaults
	PutTenant(ctx context.Context, t model.Tenant) error
	DeleteTenant(ctx context.Context, k model.TenantName) error
	PutNetwork(ctx context.Context, n model.Network) error
	DeleteNetwork(ctx context.Context, k model.NetworkKey) error
	PutGroup(ctx context.Context, g model.Group) error
	DeleteGroup(ctx context.Context, k model.GroupKey) error
	PutPolicy(ctx context.Context, p model.ContivPolicy) error
	DeletePolicy(ctx context.Context, k model.PolicyKey) error
	PutRule(ctx context.Context, r model.Rule) error
	DeleteRule(ctx context.Context, k model.RuleKey) error

	CreateEndpoint(ctx context.Context, e model.Endpoint) (model.Endpoint, int64, error)
	DeleteEndpoint(ctx context.Context, k model.EndpointKey) (model.Endpoint, int64, error)
	UpdateEndpoint(ctx context.Context, u EndpointUpdate) error
	AllocAddress(ctx context.Context, r AddressRequest) (netip.Addr, error)
	ReleaseAddress(ctx context.Context, n model.NetworkKey, a netip.Addr) error
}

// EndpointUpdate is what a runtime has learnt about an endpoint's container.
type EndpointUpdate struct {
	Key       model.EndpointKey
	Container string
	Name      string
	Labels    map[string]string
	Stopped   bool // the container has ended: its labels no longer count
}

// AddressRequest asks for an address before its endpoint exists.
type AddressRequest struct {
	Network   model.NetworkKey
	Group     model.GroupName // empty = none
	IPv6      bool            // otherwise IPv4
	Preferred netip.Addr      // invalid = any
	Host      model.HostName
	Requester string
}

// View is a consistent picture of the cluster. Slices are sorted by key and
// must not be changed.
type View interface {
	Global() (model.Global, bool)
	Tenants() []model.Tenant
	Tenant(k model.TenantName) (model.Tenant, bool)
	Networks(t model.TenantName) []model.Network // empty tenant = of all tenants
	Network(k model.NetworkKey) (model.Network, bool)
	Groups(t model.TenantName) []model.Group
	Group(k model.GroupKey) (model.Group, bool)
	Policies(t model.TenantName) []model.ContivPolicy
	Policy(k model.PolicyKey) (model.ContivPolicy, bool)
	Rules(t model.TenantName) []model.Rule
	Rule(k model.RuleKey) (model.Rule, bool)

	EndpointsOfNetwork(k model.NetworkKey) []model.Endpoint
	EndpointsOfGroup(k model.GroupKey) []model.Endpoint
	FindEndpoints(text string) []model.Endpoint // endpoint id, container id or name equal text
	Addresses(k model.NetworkKey) []netip.Addr  // held by endpoints, services and reservations
	Host(k model.HostName) (model.Host, bool)
}

// Cluster tells what the service registry and the election know.
type Cluster interface {
	Info(ctx context.Context) (api.Info, error)
	// Ready returns nil when the store can be reached.
	Ready(ctx context.Context) error
}
