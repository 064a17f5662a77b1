package desired

import (
	"net/netip"

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
}

// DNSNetwork is the subnets of a network.
type DNSNetwork struct {
	Subnet  netip.Prefix
	Subnet6 netip.Prefix
}
