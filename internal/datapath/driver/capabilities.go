package driver

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// Capabilities are the differences between drivers. Code that needs a feature that not
// every driver has checks here, and reports where it is missing: what is accepted never
// stays without effect silently.
type Capabilities struct {
	Egress           bool `json:"egress"`          // makes desired.HostNAT.Interface on the host, by which containers reach it and the outside
	Egress6          bool `json:"egress6"`         // ... by IPv6 too (desired.HostNAT.Subnet6)
	Services         bool `json:"services"`        // makes desired.Host.Services true
	ExternalServices bool `json:"servicesOutside"` // ... for clients on the host and beyond it too (desired.Service.Exposed)
	ClientsByTunnel  bool `json:"clientsByTunnel"` // takes the clients that another host leads to containers here, and answers by that host
	RoutedNetworks   bool `json:"native"`          // leads between the host's stack and endpoints of native networks (desired.Network.RoutedNetworks)
	Frontends        bool `json:"faces"`           // makes desired.Service.Frontends true
	ExternalBackends bool `json:"foreignBackends"` // leads clients on networks to backends of services that are no endpoints (desired.Backend.External)
	ServiceStats     bool `json:"serviceStats"`    // counts connections to services (Stats.Services)
	Routes           bool `json:"routes"`          // routes between networks that are joined
	Bandwidth        bool `json:"bandwidth"`       // makes desired.Host.Bandwidth true
	Multicast        bool `json:"multicast"`       // makes desired.Host.Groups true, and hands memberships over where Memberships is not nil
	Log              bool `json:"log"`             // tells who monitors of connections that meet a rule with Log
	Audit            bool `json:"audit"`           // tells who monitors how audited sets would judge new connections
	AuditEstablished bool `json:"living"`          // ... and once, when such a set comes or changes, connections that live already
	TakesUplinks     bool `json:"takesUplinks"`    // the host's stack does not see what comes by uplinks, but by desired.Host.Router, which it makes
	// UserSpace: frames are read by packet sockets. Containers' kernels have to
	// complete checksums themselves, since no network card will; and the host's
	// sides of their interfaces are promiscuous.
	UserSpace bool `json:"userSpace"`

	// Verbs that not every driver has; nil = this one has not.
	Preparer  Preparer      `json:"-"`
	Tabled    TableReporter `json:"-"`
	Drifting  DriftReporter `json:"-"`
	Verifier  Verifier      `json:"-"`
	Forgetter Forgetter     `json:"-"`
	Watched   HangReporter  `json:"-"`
	// Connections lists established connections.
	Connections ConnectionLister `json:"-"`
	// Memberships is set with Multicast where the driver sees packets.
	Memberships  Memberships  `json:"-"`
	TunnelProber TunnelProber `json:"-"`
}

// Preparer is a driver whose first Apply takes long. Prepare does beforehand, while
// another driver still forwards, everything that the other one does not notice.
type Preparer interface {
	Prepare(ctx context.Context, want desired.Host) error
}

// ConnectionLister is a driver that lists the connections that live and have an end at a port
// here. It reads the whole table of connections.
type ConnectionLister interface {
	Established(ctx context.Context) (EstablishedConnections, error)
}

// HangReporter is a driver whose data plane is another program, which may hang. Hangs answers at
// once, also while Apply waits for that program: why the data plane does not answer, nil
// while it does.
type HangReporter interface {
	Hangs() error
}

// TableReporter is a driver that tells how full the tables of its data plane are: the
// tables that it fills itself, and the ones that packets fill. It answers from what is
// counted anyway, or within a second: its cost does not grow with the entries.
type TableReporter interface {
	Tables() map[string]TableStats // by name; without tables whose fill cannot be told now
}
