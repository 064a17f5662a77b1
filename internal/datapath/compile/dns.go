package compile

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// names writes the names of endpoints and networks.
//
// Takes: marked endpoints and networks.
// Gives: DNS.Records of endpoints, DNS.Networks.
type names struct {
	out           *output
	dirtyEps      *marks[*endpoint]
	dirtyNetworks *marks[*network]
}

// compile updates the names for changed endpoints and networks. All known endpoints have
// names, whether or not their network is present here.
func (nm *names) compile() {
	for e := range nm.dirtyEps.of {
		if e.deleted && e.net.eps[e.Key.ID] != nil { // deleted and made again
			continue
		}
		r := desired.DNSRecord{Network: e.Key.Network, IPv4: e.IPv4, IPv6: e.IPv6}
		if !e.deleted {
			r.Group, r.Name = dnsName(string(e.Group)), dnsName(containerName(&e.Endpoint))
		}
		nm.out.putName(desired.DNSKey{Endpoint: e.Key}, r)
	}
	for n := range nm.dirtyNetworks.of {
		if n.base != nil { // it has its network's names
			continue
		}
		if n.rec == nil {
			nm.out.DNS.Networks = nm.out.DNS.Networks.Delete(n.key)
			continue
		}
		pic := &desired.DNSNetwork{Subnet: n.rec.Subnet, Subnet6: n.rec.Subnet6}
		if old, ok := nm.out.before.DNS.Networks.Get(n.key); ok && *old == *pic {
			pic = old
		}
		nm.out.DNS.Networks = nm.out.DNS.Networks.Set(n.key, pic)
	}
}

// containerName is the name that people gave the endpoint's container; empty
// while only an id is known.
func containerName(e *model.Endpoint) string {
	if e.Name == e.Container {
		return ""
	}
	return e.Name
}

// maxDNSName is how long a name may be; the tenant's follows (RFC 1035 section
// 2.3.4: 255 octets in all).
const maxDNSName = 180

// IsDNSName reports whether the name server serves a container's name.
func IsDNSName(s string) bool { return dnsName(s) != "" }

// dnsName returns a name as queries have it, in lower case; empty when it
// cannot be written as one without escapes.
func dnsName(s string) string {
	if len(s) > maxDNSName {
		return ""
	}
	s = strings.ToLower(s)
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	return s
}
