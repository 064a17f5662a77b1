package desired

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// DNS is what the host's name server knows of the tenants that are mirrored
// here. Like the other maps it is persistent, so that a reader follows it by Diff.
type DNS struct {
	Records  Map[DNSKey, *DNSRecord]
	Networks Map[model.NetworkKey, *DNSNetwork] // an address of their subnets has its names here, or none
}

// DNSKey names what a record stands for: an endpoint or a service, one of both.
type DNSKey struct {
	Endpoint model.EndpointKey
	Service  model.ServiceKey
}

// DNSRecord is the names and addresses of one endpoint or service. Names are in
// lower case, relative to the tenant, and can be written in a query.
type DNSRecord struct {
	Network model.NetworkKey // tenant included
	Service string           // name of the service; empty for an endpoint
	Group   string           // name of the endpoint's group; empty = none
	Name    string           // the container's; empty = none is known
	IPv4    netip.Addr
	IPv6    netip.Addr
	Ports   []ServicePort // of the service, as Service has them
}

// Equal compares two records by what they say.
func (r *DNSRecord) Equal(o *DNSRecord) bool {
	return r.Network == o.Network && r.Service == o.Service && r.Group == o.Group && r.Name == o.Name &&
		r.IPv4 == o.IPv4 && r.IPv6 == o.IPv6 && slices.Equal(r.Ports, o.Ports)
}

// DNSNetwork is the subnets of a network.
type DNSNetwork struct {
	Subnet  netip.Prefix
	Subnet6 netip.Prefix
}
