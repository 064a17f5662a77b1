package docker

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Source lists the cluster's networks and groups.
type Source interface {
	Networks(ctx context.Context) ([]model.Network, error)
	Groups(ctx context.Context) ([]model.Group, error)
}

// Backend carries out what Docker's verbs ask for. Errors are of model's kinds.
type Backend struct {
	Attachments
	Objects
	Conditions
}

// Attachments attaches and detaches the containers of this host.
type Attachments interface {
	// Attach and Detach are as in attach.Service.
	Attach(ctx context.Context, r attach.Request) (attach.Result, error)
	Detach(ctx context.Context, r attach.DetachRequest) error
	// Attached returns the result that a present attachment was answered with.
	Attached(k attach.Key) (attach.Result, bool)
	// Publish is as in attach.Service.
	Publish(ctx context.Context, r attach.PublishRequest) (attach.PublishResult, error)
	// Published lists the ports that an attachment publishes.
	Published(k attach.Key) []attach.PortBinding
	// AttachedBy lists the present attachments that came from a source.
	AttachedBy(source string) []attach.Key
	// RouteReplies has what is sent from an attachment's addresses leave by its own
	// gateways, whatever default route the engine has set; again is harmless.
	RouteReplies(k attach.Key) error
	// RemoveReplyRoutes undoes it, before the engine takes the interface out of the container.
	RemoveReplyRoutes(k attach.Key) error
	// Report is as in attach.Service.
	Report(ctx context.Context, f attach.Fact) error
}

// Conditions shows this host's status.
type Conditions interface {
	// SetCondition shows a sentence about an object in this host's status; "" takes it back.
	SetCondition(object, text string)
}

// Objects reads and changes the cluster's objects.
type Objects interface {
	Source
	// MayCreateNetworks fails where no CreateNetwork can succeed, and says what to do.
	MayCreateNetworks() error
	// HasTenant fails with ErrNotFound when there is no such tenant.
	HasTenant(ctx context.Context, t model.TenantName) error
	Network(ctx context.Context, k model.NetworkKey) (model.Network, error)
	CreateNetwork(ctx context.Context, n model.Network) error
	DeleteNetwork(ctx context.Context, k model.NetworkKey) error
	Group(ctx context.Context, k model.GroupKey) (model.Group, error)

	// ReserveAddress keeps an address for an endpoint that does not exist yet.
	ReserveAddress(ctx context.Context, r AddressRequest) (netip.Addr, error)
	// ReleaseAddress gives a reserved address back; one that is not reserved is fine.
	ReleaseAddress(ctx context.Context, k model.NetworkKey, addr netip.Addr) error
}

// AddressRequest asks for an address.
type AddressRequest = attach.AddressRequest

// Ref names the Contiv object behind a Docker network: a network, or a group on it.
type Ref struct {
	Network model.NetworkKey `json:"network"`
	Group   model.GroupName  `json:"group,omitempty"`
}

// Name is the Docker network's name: the group's or network's, with /tenant behind it
// outside the default tenant, as in 1.x.
func (r Ref) Name() string {
	name := string(r.Network.Name)
	if r.Group != "" {
		name = string(r.Group)
	}
	if r.Network.Tenant != model.DefaultTenant {
		name += "/" + string(r.Network.Tenant)
	}
	return name
}

func (r Ref) String() string {
	if r.Group != "" {
		return "group " + string(r.Group) + " on network " + r.Network.String()
	}
	return "network " + r.Network.String()
}

// The options and labels that name a Docker network's Contiv objects.
const (
	optTenant  = "tenant"
	optNetwork = "network"
	optGroup   = "group"
	optEncap   = "encap"
	optTag     = "pkt-tag"
)

// parseRef reads the options of a Docker network; ok is false when they name neither
// a network nor a group.
func parseRef(o map[string]string) (r Ref, ok bool, err error) {
	r.Network.Tenant = model.DefaultTenant
	if s := o[optTenant]; s != "" {
		if r.Network.Tenant, err = model.ParseTenantName(s); err != nil {
			return r, false, err
		}
	}
	if s := o[optNetwork]; s != "" {
		if r.Network.Name, err = model.ParseNetworkName(s); err != nil {
			return r, false, err
		}
	}
	if s := o[optGroup]; s != "" {
		if r.Group, err = model.ParseGroupName(s); err != nil {
			return r, false, err
		}
	}
	return r, r.Network.Name != "" || r.Group != "", nil
}

// options is the reverse of parseRef.
func (r Ref) options() map[string]string {
	o := map[string]string{optTenant: string(r.Network.Tenant), optNetwork: string(r.Network.Name)}
	if r.Group != "" {
		o[optGroup] = string(r.Group)
	}
	return o
}
