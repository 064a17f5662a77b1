package driver

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Driver makes one host's data plane look like a desired state.
type Driver interface {
	// Apply makes the host look like want: it reads back (or knows) what is
	// there, applies the difference, removes what it owns and want does not
	// mention, and never touches what it does not own. It is idempotent; applying
	// the same desired state twice does nothing the second time. What failed for one
	// object is in the Report and does not stop the others; the error is for what
	// concerns the whole data plane (switch not reachable). Ports drop everything
	// until their rules are in, and rules leave after ports. Calls never overlap.
	Apply(ctx context.Context, want desired.Host) (Report, error)
	// Events yields when the actual state may have changed by itself
	// (reconnection, drift): Apply again. It is closed by Close.
	Events() <-chan Event
	// Stats returns counters per port, per rule, and of connections to services.
	Stats(ctx context.Context) (Stats, error)
	// Monitor reports dropped packets and, if asked for, new connections, until ctx ends or
	// the driver closes; then the channel is closed. Without a monitor, passing packets
	// cost nothing for it. Equal packets may be reported together, and excess events are
	// dropped and counted (FlowLost), so that a flood takes a bounded part of a processor.
	// There is one monitor at a time: a second one fails with model.ErrConflict.
	Monitor(ctx context.Context, opts MonitorOptions) (<-chan FlowEvent, error)
	// ChangeMonitor changes the options of the running monitor. Events that both the old
	// and the new options ask for are reported without a gap. It fails with
	// model.ErrNotFound when no monitor runs.
	ChangeMonitor(ctx context.Context, opts MonitorOptions) error
	// Capabilities say what the driver does beside these verbs. They are the same
	// for as long as it is open.
	Capabilities() Capabilities
	// Inspect renders the data plane's state as text for people and goldens.
	Inspect(ctx context.Context) (string, error)
	// Close releases connections; the data plane keeps forwarding.
	Close() error
}

// Predecessor is what another driver left on a host that changes its driver
// with containers running. The new driver takes the containers' interfaces over
// in this order, so that no packet ever passes unjudged: Prepare, where the new
// one has it (Capabilities), Release, Apply, Remove, Apply. Traffic stands still from Release
// until the new driver has applied the desired state. Both may be repeated; what is
// gone already is fine.
type Predecessor interface {
	// Release gives up what only one driver of a host can hold: the tunnel's UDP
	// port, the host's interface to its containers, and the first look at what
	// containers send.
	Release(ctx context.Context) error
	// Remove takes everything away that the driver owned, the container's
	// interfaces themselves excepted, which never were its own.
	Remove(ctx context.Context) error
	// String names it to people.
	String() string
}

// Report tells what an Apply reached.
type Report struct {
	Revision int64        // of the desired state that was applied
	Ports    PortStatuses // every port of the desired state
	Changes  int          // objects written or removed in the data plane
	Problems []Problem    // other objects that could not be made true
	// Verified is when the last comparison of the whole data plane with its desired state
	// began. Drivers compare in the background; zero = they have not come to an end yet.
	Verified time.Time
}

// Problem is an object that the data plane does not hold as wanted.
type Problem struct {
	Object string
	Err    error
	// Unmanaged: it is about what somebody else has added, which is left alone; the desired state is
	// true all the same.
	Unmanaged bool
}

// DownError says that somebody has set a port's interface down, on the host's
// side: it drops what comes from the container and what goes there.
func DownError(ifName string) error {
	return model.Errorf(model.ErrUnavailable, "interface %s is down: set it up again ('ip link set %[1]s up')", ifName)
}

// Event says why actual state may differ from what was applied.
type Event struct {
	Reason string
}

// Stats are counters since the objects were installed.
type Stats struct {
	Ports map[string]PortStats // by IfName
	Rules map[string]RuleStats // by rule ID
	Drops map[string]uint64    // packets dropped, by reason: spoof, unknown-source, policy, ...
	// Services counts connections to services, with Capabilities().ServiceStats. What
	// is counted of a backend that has gone may stay while its service does.
	Services map[ServiceOf]ServiceStats
	// Uncounted says which services are not counted, and why.
	Uncounted map[model.ServiceKey]string
	// ConnectionsUnknown says why ServiceStats.Connections is not known of any service now; empty
	// = it is known.
	ConnectionsUnknown string
}

// TableStats tell how full a table is, as of some seconds ago.
type TableStats struct {
	Entries  uint64 `json:"entries"`
	Capacity uint64 `json:"capacity"` // 0 = unbounded
	Evicts   bool   `json:"-"`        // it makes room when it is full, else it refuses what is new
	Evicted  uint64 `json:"evicted"`  // entries that made room for others since the driver opened
	Quiet    bool   `json:"-"`        // to be full is its usual state and no loss
}

// PortStats count frames of one port, as seen from the container.
type PortStats struct {
	Endpoint                               model.EndpointKey
	RxPackets, RxBytes, TxPackets, TxBytes uint64
}

// RuleStats count the packets that a rule decided.
type RuleStats struct {
	Packets, Bytes uint64
}
