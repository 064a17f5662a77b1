package attach

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Key names an attachment on this host: one interface of one container.
type Key struct {
	Container string `json:"container"` // the runtime's container id
	IfName    string `json:"ifname"`    // inside the container
}

func (k Key) String() string { return k.Container + "/" + k.IfName }

// Request asks to attach a container's interface.
type Request struct {
	Key
	Netns     string            `json:"netns"`             // path of the container's network namespace
	Tenant    string            `json:"tenant,omitempty"`  // empty = default
	Network   string            `json:"network,omitempty"` // empty = the group's network, the tenant's default network, else default-net
	Group     string            `json:"group,omitempty"`   // empty = none
	Name      string            `json:"name,omitempty"`    // common name, for people
	Labels    map[string]string `json:"labels,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"` // preferred: at most one IPv4 and one IPv6
	MAC       model.MAC         `json:"mac,omitzero"`        // preferred; zero = the one made of the address
	MTU       int               `json:"mtu,omitempty"`       // 0 = the underlay's, less the tunnel's headers
	Source    string            `json:"source,omitempty"`    // who asks, such as SourceCNI
	Config    string            `json:"config,omitempty"`    // name of the CNI network configuration
	Rates     model.Rates       `json:"rates,omitzero"`      // its own limits, beside its group's net profile
	// Pod is the pod of Kubernetes that the container is of; where netmaster follows
	// Kubernetes, that says what Tenant, Network, Group and Labels leave empty or say else.
	Pod Pod `json:"pod,omitzero"`
	// LabelsLater: a fact tells the container's labels, before it runs if all goes
	// well. Until then its port is shut if policies of its tenant select by labels.
	LabelsLater bool `json:"labelsLater,omitempty"`
	// Parked: the container's side stays in the host's namespace, down and
	// without addresses, for a runtime that moves and configures it itself
	// (Docker). Netns must be empty then.
	Parked bool `json:"parked,omitempty"`
	// OnHost: the container's side is the host's own interface on an infra network: it
	// stays in the host's namespace, up and with its addresses; no default route leads by
	// it, and it has no other egress. Netns must be empty then. netplugin alone asks so.
	OnHost bool `json:"onHost,omitempty"`
}

// Pod names a pod of Kubernetes; zero = the container is of none.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// SourceCNI marks attachments that came through CNI: only those are subject to Collect.
const SourceCNI = "cni"

// SourceDocker marks attachments that came through Docker's remote driver.
const SourceDocker = "docker"

// SourceInfra marks the host's own endpoints on infra networks.
const SourceInfra = "infra"

// AddressRequest asks for an address before its endpoint exists.
type AddressRequest struct {
	Network   model.NetworkKey
	Group     model.GroupName // empty = none; its pool is used if it has one
	Pool      netip.Prefix    // one of the network's subnets
	Preferred netip.Addr      // invalid = any
	AnyHost   bool            // an endpoint on any host may take it, not only on this one
}

// DefaultNetwork is used when neither request, group nor tenant name one.
const DefaultNetwork model.NetworkName = "default-net"

// Result is a finished attachment.
type Result struct {
	Endpoint  string    `json:"endpoint"` // tenant:network:id
	Group     string    `json:"group,omitempty"`
	HostIf    string    `json:"hostIf"` // host side of the veth pair
	HostMAC   model.MAC `json:"hostMac"`
	IfName    string    `json:"ifname"`
	Netns     string    `json:"netns"`
	MAC       model.MAC `json:"mac"` // container side
	MTU       int       `json:"mtu"`
	Addresses []Address `json:"addresses"`
	Routes    []Route   `json:"routes,omitempty"`
	// Router is the virtual router's address where the network has no gateway: a
	// default route by it must be on-link, for it is in no subnet. Zero = none.
	Router netip.Addr `json:"router,omitzero"`
	// Router6 is the same for IPv6: its link-local address, by which a route needs
	// nothing else.
	Router6    netip.Addr `json:"router6,omitzero"`
	NameServer netip.Addr `json:"nameServer,omitzero"` // that knows the tenant's names; zero = none
	Search     string     `json:"search,omitempty"`    // the tenant's domain, in which containers look names up; with NameServer
	Revision   int64      `json:"revision"`            // store revision of the endpoint
	// PolicyRevision is the store revision up to which all policies were in force at the
	// port when the attachment was answered.
	PolicyRevision int64  `json:"policyRevision,omitempty"`
	Parked         string `json:"parked,omitempty"` // name of the container's side in the host's namespace
}

// Address is an address of the interface with its subnet's length.
type Address struct {
	Prefix  netip.Prefix `json:"prefix"`           // not masked
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero = the network has none
}

// Route is a route in the container's namespace.
type Route struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gateway"`
}

// DetachRequest undoes an attachment; one that does not exist is a success.
type DetachRequest struct {
	Key
	Netns string `json:"netns,omitempty"` // may be gone already
	// Known asks for an error of kind model.ErrNotFound where there is no such attachment,
	// as for people; runtimes repeat deletions.
	Known bool `json:"known,omitempty"`
}

// CheckRequest asks whether an attachment is as its result said. The
// expectations, when given, come from what the runtime remembers.
type CheckRequest struct {
	Key
	Netns     string         `json:"netns"`
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// CollectRequest releases the attachments that came from one CNI network
// configuration on this host and are not in Valid.
type CollectRequest struct {
	Config string `json:"config"`
	Valid  []Key  `json:"valid"`
}

// Service attaches containers. Errors are of the kinds of model.
type Service interface {
	// Attach is idempotent on Key; it answers when the port is programmed with
	// its policy.
	Attach(ctx context.Context, r Request) (Result, error)
	// Detach succeeds when the attachment is absent, and without the control plane.
	Detach(ctx context.Context, r DetachRequest) error
	// Check fails when the attachment is not as Attach made it.
	Check(ctx context.Context, r CheckRequest) error
	// Publish makes ports of an attached container reachable at its host, in place of
	// the ports that it published before; detaching ends them all. It answers when
	// the ports work. A host port that is taken: model.ErrExists, nothing changed.
	Publish(ctx context.Context, r PublishRequest) (PublishResult, error)
	// Report takes what an orchestrator knows of a container. It answers when the
	// cluster has it; of an attachment that does not stand yet, at once: that gets
	// the facts when it is made, if they have not become too old or too many.
	Report(ctx context.Context, f Fact) error
	// Collect detaches what is not in Valid, as CollectRequest says.
	Collect(ctx context.Context, r CollectRequest) error
	// Ready fails with model.ErrUnavailable when Attach would; the error is
	// ErrDegraded when running containers may suffer too.
	Ready(ctx context.Context) error
}

// ErrDegraded: the data plane is not in sync; running containers may have
// limited connectivity. It is of kind model.ErrUnavailable.
var ErrDegraded = model.Errorf(model.ErrUnavailable, "the data plane is not in sync")

// SocketPath is where netplugin listens unless told otherwise.
const SocketPath = "/run/contiv/contiv-cni.sock"

// StateDir is where netplugin keeps its state unless told otherwise; the spool
// is in SpoolDir below it.
const StateDir = "/var/lib/contiv"

// The paths of the socket's HTTP interface. All are POST with a JSON body.
const (
	PathAttach  = "/v2/attach"
	PathDetach  = "/v2/detach"
	PathCheck   = "/v2/check"
	PathCollect = "/v2/collect"
	PathPublish = "/v2/publish"
	PathTell    = "/v2/tell"
	PathReady   = "/v2/ready"
)
