package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Service is virtual addresses at which several endpoints answer: each connection
// to one of its ports, or frontends, goes to one of its backends (docs/design/services.md).
type Service struct {
	Key     model.ServiceKey
	Network model.NetworkID // its addresses are of this network's domain
	IPv4    netip.Addr      // zero = it has none of the family
	IPv6    netip.Addr
	// Ports are sorted by protocol and port, each once.
	Ports []ServicePort
	// Frontends are sorted by address, protocol and port, each once. They are made true if
	// the driver's Capabilities().Frontends says so.
	Frontends []Frontend
	Backends  Map[model.EndpointKey, *Backend]
	// Affinity is how long a client stays with its backend after its last new
	// connection, at most MaxAffinity; 0 = each connection is chosen for by itself.
	Affinity time.Duration
	// InternalPolicy and ExternalPolicy say which backends connections from endpoints, and from
	// elsewhere, may go to.
	InternalPolicy, ExternalPolicy TrafficPolicy
	// Exposed: this host's own processes, and clients that the host forwards for, reach the
	// service by Host.Private's interface, whatever its domain: at its addresses, which no other
	// exposed service has, and at its frontends. Of exposed services that have a port of an address,
	// whatever their domains, the one whose Frontend is Before the others' has it. What shows no
	// port goes to the domain of the first one by key at the address.
	Exposed bool
	// HealthPort is the port at which this host tells by HTTP how many of the backends are
	// here, for the host's agent; drivers ignore it. 0 = at none.
	HealthPort uint16
	// Balanced are its load balancers' addresses, which are among its Frontends', for the
	// host's agent; drivers ignore them.
	Balanced []netip.Addr
}

// ServicePort leads a port of a service to a port of its backends.
type ServicePort struct {
	Name     string // for names of type SRV; empty = none
	Protocol model.Protocol
	Port     uint16
	Backend  uint16
}

// CompareServicePorts orders the ports of a service.
func CompareServicePorts(a, b ServicePort) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// TrafficPolicy says which backends of a service are chosen among.
type TrafficPolicy uint8

// The traffic policies.
const (
	TrafficCluster   TrafficPolicy = iota // all
	TrafficLocal                          // backends on the choosing host only
	TrafficLocalDrop                      // as TrafficLocal; while all backends are on other hosts, packets are dropped silently
	TrafficNearest                        // the nearest ones, while it is known of all active ones how near they are
)

// Backend is an endpoint behind a service, on any host, or an address that is no
// endpoint's (External). Policy judges connections by its identity and the port that it is
// asked at. It serves a family in which it has an address.
type Backend struct {
	Network  model.NetworkID // its own, of the service's domain; 0 = it is no endpoint
	IPv4     netip.Addr
	IPv6     netip.Addr
	Identity model.Identity
	Local    bool       // it is on this host
	VTEP     netip.Addr // of its host; zero = it is here, on a VLAN network, or its host is unknown
	State    BackendState
	Near     Nearness // to this host, as who made the service says
	Port     uint16   // at which it is asked, instead of the service's ports' Backend; 0 = at that
	// Split: State, Near and Port are of IPv4 alone, and Serving6 is of IPv6.
	Split    bool
	Serving6 Serving
}

// Serving is how a backend serves one family.
type Serving struct {
	State    BackendState
	Nearness Nearness
	Port     uint16
}

// Nearness says how near a backend is.
type Nearness uint8

// The nearnesses, from the farthest on.
const (
	NearUnknown Nearness = iota // not known
	NearFar
	NearZone // for hosts of this host's zone
	NearHost // for this host
)

// BackendState says what becomes of a backend's connections.
type BackendState uint8

// The states of backends.
const (
	BackendActive    BackendState = iota
	BackendDraining               // nothing new goes there; what lives goes on
	BackendUnhealthy              // gets no new connections; its TCP and SCTP connections go on, its UDP clients get another backend
	BackendLeaving                // gets new connections only while no backend is active; established ones go on
)

// Bounds of services.
const (
	MaxAffinity = 24 * time.Hour
	// MaxAffine is of how many clients of a service the choice is remembered; for
	// clients beyond it, their address alone decides.
	MaxAffine = 16384
	// MaxServices is how many services a host holds, and MaxServiceFrontends how many pairs of
	// address and port these have together: as many as a cluster has.
	MaxServices  = model.MaxServices
	MaxFrontends = model.MaxServiceFrontends
)

// The link-local service addresses: what a backend sees in place of its own
// address when it is its own client.
var (
	ServiceAddr  = netip.AddrFrom4([4]byte{169, 254, 1, 2})
	ServiceAddr6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 13: 0x53, 15: 1})
)

// PortOf returns the port of a service that a connection asks for.
func (s *Service) PortOf(proto model.Protocol, port uint16) (ServicePort, bool) {
	i := slices.IndexFunc(s.Ports, func(p ServicePort) bool { return p.Protocol == proto && p.Port == port })
	if i < 0 {
		return ServicePort{}, false
	}
	return s.Ports[i], true
}

// Addr returns the backend's address of a family, zero when it has none.
func (b *Backend) Addr(v6 bool) netip.Addr {
	if v6 {
		return b.IPv6
	}
	return b.IPv4
}

// External reports whether the backend is no endpoint: a machine of the cluster, or anybody
// outside. It is made true if the driver's Capabilities().ForeignBackends says so.
func (b *Backend) External() bool { return b.Network == 0 }

// Serving returns how the backend serves a family.
func (b *Backend) Serving(v6 bool) Serving {
	if v6 && b.Split {
		return b.Serving6
	}
	return Serving{b.State, b.Near, b.Port}
}

// Serve gives the backend an address, and says how it serves the address's family.
func (b *Backend) Serve(a netip.Addr, s Serving) {
	v4, v6 := s, s
	if a.Is4() {
		if b.IPv4 = a; b.IPv6.IsValid() {
			v6 = b.Serving(true)
		}
	} else if b.IPv6 = a; b.IPv4.IsValid() {
		v4 = b.Serving(false)
	}
	b.State, b.Near, b.Port = v4.State, v4.Nearness, v4.Port
	if b.Split, b.Serving6 = v4 != v6, (Serving{}); b.Split {
		b.Serving6 = v6
	}
}

// PortFor returns the port at which the backend is asked in a family where its service's
// port leads to another one.
func (b *Backend) PortFor(v6 bool, port uint16) uint16 {
	return cmp.Or(b.Serving(v6).Port, port)
}

// Check returns an error unless a service can be served as the one of a key:
// model.ErrNotFound without its network (hasNetwork), else model.ErrInvalid.
func (s *Service) Check(key model.ServiceKey, hasNetwork bool) error {
	switch {
	case s.Key != key:
		return model.Errorf(model.ErrInvalid, "it calls itself %s", s.Key)
	case !hasNetwork:
		return model.Errorf(model.ErrNotFound, "network %d does not exist", s.Network)
	case !s.IPv4.IsValid() && !s.IPv6.IsValid() && len(s.Frontends) == 0, s.IPv4.IsValid() && !s.IPv4.Is4(), s.IPv6.IsValid() && !s.IPv6.Is6():
		return model.Errorf(model.ErrInvalid, "%q and %q are not addresses of either family", s.IPv4, s.IPv6)
	}
	if err := s.checkFrontends(); err != nil {
		return err
	}
	for i, port := range s.Ports {
		if port.Port == 0 || port.Backend == 0 || !port.Protocol.HasPorts() {
			return model.Errorf(model.ErrInvalid, "port %d of protocol %d, of backends %d, is invalid", port.Port, port.Protocol, port.Backend)
		}
		if i > 0 && CompareServicePorts(s.Ports[i-1], port) >= 0 {
			return model.Errorf(model.ErrInvalid, "port %d of protocol %d occurs twice or out of order", port.Port, port.Protocol)
		}
	}
	return nil
}

// Equal compares two services by what they say.
func (s *Service) Equal(o *Service) bool {
	return s.Key == o.Key && s.Network == o.Network && s.IPv4 == o.IPv4 && s.IPv6 == o.IPv6 && slices.Equal(s.Ports, o.Ports) && slices.EqualFunc(s.Frontends, o.Frontends, Frontend.Equal) &&
		s.Affinity == o.Affinity && s.InternalPolicy == o.InternalPolicy && s.ExternalPolicy == o.ExternalPolicy && s.Exposed == o.Exposed && s.HealthPort == o.HealthPort && slices.Equal(s.Balanced, o.Balanced) && s.sameBackends(o)
}

func (s *Service) sameBackends(o *Service) bool {
	for c := range s.Backends.Diff(o.Backends) {
		if !c.Had || !c.Has || *c.Old != *c.New {
			return false
		}
	}
	return true
}
