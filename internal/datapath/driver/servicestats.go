package driver

import "github.com/contiv/netplugin/v2/internal/model"

// ServiceOf is what a host counts connections to services by. It counts those of
// its own clients: every connection is counted on one host.
type ServiceOf struct {
	Service  model.ServiceKey
	Protocol model.Protocol
	Port     uint16 // of the service
	IPv6     bool
	Backend  model.EndpointKey
	Client   model.EndpointKey // on this host; zero = the driver does not tell clients apart, or it is none of a network
}

// ServiceStats count connections to a backend by way of a service. What fragments
// after the first and ICMP errors carry may be left out.
type ServiceStats struct {
	Connections          uint64 // now
	Total                uint64 // that have begun
	PacketsIn, BytesIn   uint64 // to the client
	PacketsOut, BytesOut uint64 // to the backend
}

// Add adds other counts.
func (s *ServiceStats) Add(o ServiceStats) {
	s.Connections += o.Connections
	s.Total += o.Total
	s.PacketsIn += o.PacketsIn
	s.BytesIn += o.BytesIn
	s.PacketsOut += o.PacketsOut
	s.BytesOut += o.BytesOut
}
