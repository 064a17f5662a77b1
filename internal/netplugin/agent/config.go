package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Config is what an Agent needs. Fields are required unless they say otherwise.
type Config struct {
	Host       model.HostName
	Control    netip.Addr        // of this host, for the control plane
	VTEP       netip.Addr        // of this host, for tunnels
	OwnIPv6    func() netip.Addr // of this host towards others, now; nil = it has none
	VXLANPort  int               // registered as netplugin.vtep; 0 = 4789
	DriverName string            // as shown to people: ebpf, ovs, fake
	DriverWhy  string            // as shown to people: why this one; optional
	Store      store.Mirrorer    // an agent only reads: netmasters write for it; not used with FromNetmasters
	Driver     driver.Driver
	Log        *slog.Logger
	// TLS is how netmasters are asked and inspection is served; zero = plain.
	TLS transport.Config

	// Token is shown to netmasters; nil = none is.
	Token func() string
	// NetworkToken is shown instead when a runtime creates or deletes networks; nil = as Token.
	NetworkToken func() string

	// Predecessor is what another driver left on this host, nil when nothing: the
	// first pass takes the containers over from it.
	Predecessor driver.Predecessor

	// Netmasters are base URLs, separated by commas, used instead of the service
	// registry; optional.
	Netmasters string
	// Joined: TLS is of a cluster with --secure, so that no netmaster of the registry is
	// asked plainly.
	Joined bool
	// FromNetmasters: follow the cluster by netmasters only, and not by Store.
	FromNetmasters bool
	// Seeds are base URLs of netmasters that tell of all others, until the registry has;
	// optional, with FromNetmasters.
	Seeds []string
	// Mirrored, when set, comes between the desired state and what is mirrored: measurements
	// count there.
	Mirrored func(store.Mirrorer) store.Mirrorer
	// StoreAddresses tells where the store answers, as host:port; nil = nowhere
	// that containers could reach. With an error it tells what it knows.
	StoreAddresses func(context.Context) ([]string, error)
	// ContainersReachControl lets containers reach the control plane (netmasters,
	// the store, netplugins), from which they are kept otherwise.
	ContainersReachControl bool
	// Probe asks another host whether it is there, as peerhealth.Config's Ask; nil = none is asked.
	Probe func(context.Context, netip.Addr) (bool, error)
	// DebugAddress is where profiling is served, by others; empty = nowhere.
	DebugAddress string
	// Metrics are exported beside the agent's own: the store client's; optional.
	Metrics []prometheus.Collector

	// FlowLog gets the connections that rules with log and audits tell of; optional.
	FlowLog observe.FlowSink

	// Support is what people who search for a fault get of this process; nil = little.
	Support *supportbundle.Support

	// TakeHost takes the host's name over from an installation that is not alive
	// and had other addresses; its endpoints are then released.
	TakeHost bool
	// FwdMode and PvtSubnet, when set, must be the cluster's: Run fails otherwise.
	FwdMode   model.FwdMode
	PvtSubnet netip.Prefix

	// Cgroup is a directory of cgroup2 whose processes are led to services at their sockets;
	// empty = the root of it. SocketPins is where the programs for that are pinned, on a BPF
	// file system; empty = the host's stack leads all. ClientPins is the same for clients outside.
	Cgroup, SocketPins, ClientPins string

	StateDir    string // journal, spool and lock; empty = attach.StateDir
	Socket      string // empty = attach.SocketPath
	RESTAddress string // inspection over HTTP; empty = none, "127.0.0.1:0" = any port
	Version     string // for the service registry; optional

	// IPForward: set net.ipv4.ip_forward where it is off, so that containers reach
	// the outside; otherwise the status only says so.
	IPForward bool

	// NoDNS switches the containers' name server off. DNSUpstreams are the resolvers
	// that it asks; nil = those of ResolvConf (empty = /etc/resolv.conf).
	NoDNS        bool
	DNSUpstreams []netip.AddrPort
	ResolvConf   string

	// MTU of the underlay; 0 = the MTU of the interface that holds VTEP, else 1500.
	UnderlayMTU int
	// Uplinks carry VLAN networks, whose MTU is the first existing one's.
	Uplinks []string

	// FirstStart bounds the wait for the store when this host has no attachments;
	// 0 = wait for ever.
	FirstStart time.Duration

	// Timings; zero fields get defaults.
	AttachTimeout time.Duration // default 25 s
	SpoolEvery    time.Duration // how often the spool is looked at; default 10 s
	OrphanGrace   time.Duration // default statemirror.OrphanGrace
	TenantLinger  time.Duration // how long a tenant stays mirrored after its last endpoint; default 5 min
	Drift         time.Duration // mean time between passes that nothing asks for; default 1 min, and 5 s where they cost little
	driftSoonest  time.Duration
	StatusEvery   time.Duration // least time between two status writes; default 2 s
	StoreGrace    time.Duration // how long a host waits for what others put back into a restored store; default 1 min
	LeasePatience time.Duration // how long a start waits for a former run's claim to the name to end; default 25 s: 10 s of silence, and an election
	StatusLook    time.Duration // how often the host's health is looked at when nothing happens; default 5 s
	StatusBeat    time.Duration // longest time between two status writes; default 1 min

	// Now is the time of day, which may be set; default time.Now.
	Now func() time.Time

	// Hook, when set, is called at every step of Attach and Detach: tests kill or
	// fail there. An error fails the step.
	Hook func(step string) error
	// DebugHooks enables the endpoints that pause the mirror: tests only.
	DebugHooks bool
}

func (c *Config) complete() error {
	switch {
	case c.Host == "":
		return errors.New("agent: Host is required")
	case c.Store == nil && !c.FromNetmasters, c.Driver == nil, c.Log == nil:
		return errors.New("agent: Store, Driver and Log are required")
	}
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&c.AttachTimeout, 25*time.Second)
	or(&c.TenantLinger, 5*time.Minute)
	if c.Drift == 0 {
		c.Drift, c.driftSoonest = time.Minute, 5*time.Second
	}
	or(&c.StatusEvery, 2*time.Second)
	or(&c.StoreGrace, statemirror.StoreGrace)
	or(&c.LeasePatience, cluster.ServiceTTL+15*time.Second)
	or(&c.StatusLook, 5*time.Second)
	or(&c.StatusBeat, time.Minute)
	if c.StateDir == "" {
		c.StateDir = attach.StateDir
	}
	if c.Socket == "" {
		c.Socket = attach.SocketPath
	}
	if c.VXLANPort == 0 {
		c.VXLANPort = 4789
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Hook == nil {
		c.Hook = func(string) error { return nil }
	}
	return nil
}
