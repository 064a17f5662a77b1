package driver

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Driver makes one host's data plane look like a picture.
type Driver interface {
	// Apply makes the host look like want: it reads back (or knows) what is
	// there, applies the difference, removes what it owns and want does not
	// mention, and never touches what it does not own. It is idempotent; applying
	// the same picture twice does nothing the second time. What failed for one
	// object is in the Report and does not stop the others; the error is for what
	// concerns the whole data plane (switch not reachable). Ports drop everything
	// until their rules are in, and rules leave after ports. Calls never overlap.
	Apply(ctx context.Context, want desired.Host) (Report, error)
	// Events yields when the actual state may have changed by itself
	// (reconnection, drift): Apply again. It is closed by Close.
	Events() <-chan Event
	// Stats returns counters per port and per rule.
	Stats(ctx context.Context) (Stats, error)
	// Inspect renders the data plane's state as text for people and goldens.
	Inspect(ctx context.Context) (string, error)
	// Close releases connections; the data plane keeps forwarding.
	Close() error
}

// Report tells what an Apply reached.
type Report struct {
	Revision int64                 // of the picture that was applied
	Ports    map[string]PortStatus // by Port.IfName, every port of the picture
	Changes  int                   // objects written or removed in the data plane
	Problems []Problem             // other objects that could not be made true
}

// PortStatus is the state of one local port: programmed, with its policy, at
// the report's revision when Err is nil.
type PortStatus struct {
	Err error // model.ErrNotFound when the interface does not exist (yet)
}

// Problem is an object that the data plane does not hold as wanted.
type Problem struct {
	Object string
	Err    error
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
