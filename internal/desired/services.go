package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Service is an address of a network at which several endpoints answer: each
// connection to one of its ports goes to one of its backends. No picture has one
// before issue 13, which compiles them and adds affinity, traffic policy and
// draining; until then services have names only (DNS).
type Service struct {
	Key      model.ServiceKey
	Network  model.NetworkID
	Addr     netip.Addr
	Ports    []ServicePort
	Backends Map[model.EndpointKey, *Backend]
}

// ServicePort leads a port of a service to a port of its backends.
type ServicePort struct {
	Protocol model.Protocol
	Port     uint16
	Backend  uint16
}

// Backend is an endpoint behind a service, on any host. Policy judges connections
// by its identity and port.
type Backend struct {
	Addr     netip.Addr
	Identity model.Identity
	VTEP     netip.Addr // zero = it is on this host
}
