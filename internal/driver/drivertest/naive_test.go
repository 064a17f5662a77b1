package drivertest

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// naive says what becomes of a packet straight from the model's values and
// docs/design/policy.md. It shares no code with compile or internal/oracle, and does
// everything the slow way.
type naive struct {
	networks   map[model.NetworkKey]model.Network
	groups     map[model.GroupKey]model.Group
	policies   map[model.PolicyKey]bool
	rules      map[model.RuleKey]model.Rule
	identities map[model.Identity]bool // those with a record
	seen       map[model.HostName]map[conn]bool
}

// party is an endpoint, or an outside address on a VLAN network (no host).
type party struct {
	model.Endpoint
	addr netip.Addr
}

type conn struct {
	net        model.NetworkKey
	a, b       netip.Addr
	proto      model.Protocol
	sport, dpt uint16
}

// oPacket goes from one party to another; answer marks what must not begin a
// connection (SYN+ACK, echo reply), about an ICMP error and what it is about.
type oPacket struct {
	from, to   party
	proto      model.Protocol // ProtoICMP for both families
	sport, dpt uint16
	answer     bool
	about      *oPacket
}

func (p oPacket) String() string {
	s := fmt.Sprintf("%s %s(%s) > %s %s(%s) proto %d %d>%d answer %v", p.from.Key, p.from.addr, p.from.Host,
		p.to.Key, p.to.addr, p.to.Host, p.proto, p.sport, p.dpt, p.answer)
	if p.about != nil {
		s += " about " + p.about.String()
	}
	return s
}

func (p oPacket) conn() conn {
	return conn{p.from.Key.Network, p.from.addr, p.to.addr, p.proto, p.sport, p.dpt}
}

func (c conn) turned() conn { return conn{c.net, c.b, c.a, c.proto, c.dpt, c.sport} }

// delivered tells whether a packet arrives, and remembers its connection on
// every host that let it through.
func (o *naive) delivered(p oPacket) bool {
	n, ok := o.networks[p.from.Key.Network]
	if !ok || p.from.Key.Network != p.to.Key.Network {
		return false
	}
	if (p.from.Host == "" || p.to.Host == "") && n.Encap == model.EncapVXLAN {
		return false // nobody is outside of a VXLAN network
	}
	hosts := []model.HostName{p.from.Host, p.to.Host}
	if p.from.Host == p.to.Host {
		hosts = hosts[:1]
	}
	for _, h := range hosts {
		if h != "" && !o.passes(h, p) {
			return false
		}
	}
	return true
}

func (o *naive) passes(h model.HostName, p oPacket) bool {
	seen := o.seen[h]
	orig, src, dst := p.conn(), p.from, p.to
	switch {
	case p.about != nil: // an error is judged as the connection that it is about
		orig, src, dst = p.about.conn(), p.about.from, p.about.to
		if !seen[orig] {
			orig, src, dst = orig.turned(), dst, src
		}
		if !seen[orig] {
			return false
		}
	case p.proto == model.ProtoICMP && !p.answer: // a request is always in its own direction
	case seen[orig.turned()] && (p.proto == model.ProtoICMP || !seen[orig]):
		orig, src, dst = orig.turned(), dst, src
	case p.proto == model.ProtoICMP, p.answer && !seen[orig]:
		return false
	}
	if src.Host == h && !o.allows(src, model.Out, dst, orig) || dst.Host == h && !o.allows(dst, model.In, src, orig) {
		return false
	}
	if seen == nil {
		seen = map[conn]bool{}
		o.seen[h] = seen
	}
	seen[orig] = true
	return true
}

// allows applies the policies of e's group to a connection with peer.
func (o *naive) allows(e party, dir model.Direction, peer party, c conn) bool {
	if e.Group == "" {
		return true
	}
	g, ok := o.groups[model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}]
	if !ok {
		return false
	}
	best, allow := -1, true
	for _, name := range g.Policies {
		if !o.policies[model.PolicyKey{Tenant: g.Key.Tenant, Name: name}] {
			return false
		}
		for k, r := range o.rules {
			if k.PolicyKey() != (model.PolicyKey{Tenant: g.Key.Tenant, Name: name}) || r.Direction != dir || r.Priority < best {
				continue
			}
			if r.Protocol != model.AnyProtocol && r.Protocol != c.proto || r.Port != 0 && r.Port != c.dpt || !o.peerMatches(r, peer) {
				continue
			}
			if r.Priority > best {
				best, allow = r.Priority, true
			}
			if r.Action == model.Deny {
				allow = false
			}
		}
	}
	return allow
}

// peerMatches tells whether a rule means a peer. What is not known is meant by
// every rule that denies and by none that allows.
func (o *naive) peerMatches(r model.Rule, p party) bool {
	var fits bool
	switch {
	case r.Group != "":
		if _, known := o.groups[model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}]; !known {
			return r.Action == model.Deny
		}
		fits = p.Host != "" && p.Key.Network.Tenant == r.Key.Tenant && p.Group == r.Group
	case r.Network != "":
		k := model.NetworkKey{Tenant: r.Key.Tenant, Name: r.Network}
		n, known := o.networks[k]
		if !known {
			return r.Action == model.Deny
		}
		fits = p.Key.Network == k
		if fits && n.Encap == model.EncapVLAN && (n.Subnet.Contains(p.addr) || n.Subnet6.Contains(p.addr)) {
			return true // by address, whoever it is
		}
		if p.Host == "" {
			return false
		}
	case r.Addr.IsValid():
		return r.Addr.Contains(p.addr)
	default:
		return true
	}
	if p.Host != "" && !o.identities[p.Identity] {
		return r.Action == model.Deny
	}
	return fits
}
