package conformance

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// naive says what becomes of a packet straight from the model's values and
// docs/design/policy.md. It shares no code with compile or internal/datapath/reference, and does
// everything the slow way.
type naive struct {
	networks   map[model.NetworkKey]model.Network
	groups     map[model.GroupKey]model.Group
	policies   map[model.PolicyKey]model.Policy
	rules      map[model.RuleKey]model.PolicyRule
	identities map[model.Identity]model.IdentityRecord
	namespaces map[model.NamespaceName]model.Namespace
	enforce    model.PolicyKey // an audited policy that counts all the same
	joined     map[model.TenantName]bool
	parties    func() []party
	seen       map[model.HostName]map[conn]bool
}

// party is an endpoint, or an outside address on a VLAN network (no host).
type party struct {
	model.Endpoint
	addr netip.Addr
}

type conn struct {
	net        model.NetworkKey // or only a tenant, whose networks are joined
	a, b       netip.Addr
	proto      model.Protocol
	sport, dpt uint16
}

// oPacket goes from one party to another. answer marks a packet that must not begin
// a connection (SYN+ACK, echo reply); about is the packet that an ICMP error
// quotes.
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

// space returns a network's address space: its own or, without a name, the one that all
// networks of the tenant share when they are joined.
func (o *naive) space(k model.NetworkKey) model.NetworkKey {
	if o.joined[k.Tenant] {
		k.Name = ""
	}
	return k
}

func (o *naive) conn(p oPacket) conn {
	return conn{o.space(p.from.Key.Network), p.from.addr, p.to.addr, p.proto, p.sport, p.dpt}
}

func (c conn) turned() conn { return conn{c.net, c.b, c.a, c.proto, c.dpt, c.sport} }

// delivered reports whether a packet arrives, and remembers its connection on
// every host that let it through.
func (o *naive) delivered(p oPacket) bool {
	n, ok := o.networks[p.from.Key.Network]
	_, toKnown := o.networks[p.to.Key.Network]
	if !ok || !toKnown || o.space(p.from.Key.Network) != o.space(p.to.Key.Network) {
		return false
	}
	if p.from.Key.Network != p.to.Key.Network && (p.from.Host == "" || p.to.Host == "") {
		return false // only endpoints are routed
	}
	if (p.from.Host == "" || p.to.Host == "") && n.Encap == model.EncapVXLAN {
		return false // a VXLAN network has no outside
	}
	if p.from.Host == "" && o.elsewhere(p.from) || p.to.Host == "" && o.elsewhere(p.to) && o.taken(p.to) {
		return false // addresses of another network are unreachable from outside
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

// elsewhere reports whether the address of somebody outside is of another network
// that is joined to the one on which it is used.
func (o *naive) elsewhere(p party) bool {
	holds := func(n model.Network) bool { return n.Subnet.Contains(p.addr) || n.Subnet6.Contains(p.addr) }
	for k, n := range o.networks {
		if k != p.Key.Network && o.space(k) == o.space(p.Key.Network) && holds(n) {
			return !holds(o.networks[p.Key.Network])
		}
	}
	return false
}

// taken reports whether an endpoint of the tenant has an address.
func (o *naive) taken(p party) bool {
	for _, e := range o.parties() {
		if _, known := o.networks[e.Key.Network]; known && e.Host != "" && e.addr == p.addr && e.Key.Network.Tenant == p.Key.Network.Tenant {
			return true
		}
	}
	return false
}

func (o *naive) passes(h model.HostName, p oPacket) bool {
	seen := o.seen[h]
	orig, src, dst := o.conn(p), p.from, p.to
	switch {
	case p.about != nil: // an error is judged as the connection that it is about
		orig, src, dst = o.conn(*p.about), p.about.from, p.about.to
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

// applying returns the policies that apply to e; open is false when one that is not
// known could apply too.
func (o *naive) applying(e party) (list []model.Policy, open bool) {
	tenant := e.Key.Network.Tenant
	open = true
	add := func(p model.Policy) {
		if p.Tier.IsKnown() {
			if !p.Audit || p.Key == o.enforce {
				list = append(list, p)
			}
		} else {
			open = false
		}
	}
	if e.Group != "" {
		g, ok := o.groups[model.GroupKey{Tenant: tenant, Name: e.Group}]
		if !ok {
			return nil, false
		}
		for _, name := range g.Policies {
			p, known := o.policies[model.PolicyKey{Tenant: tenant, Name: name}]
			if !known || !p.Attached && p.Tier.IsKnown() {
				return nil, false
			}
			if p.Attached {
				add(p)
			} else {
				open = false
			}
		}
	}
	for _, p := range o.policies {
		if p.Attached || p.Key.Tenant != tenant {
			continue
		}
		r, known := o.identities[e.Identity]
		switch s := p.Applies; {
		case known && o.unsure(r) && o.asked(tenant):
			open = false
		case known && o.selected(s, r):
			add(p)
		case known:
		case s.Network != "" && s.Network != e.Key.Network.Name || s.Group != "" && s.Group != e.Group:
		case asks(s):
			open = false
		default:
			add(p)
		}
	}
	if r, known := o.identities[e.Identity]; known && o.unsure(r) && o.asked(tenant) {
		open = false // by whatever a rule asks, too
	}
	return list, open
}

// unsure reports whether the labels of an identity's namespace are not known.
func (o *naive) unsure(r model.IdentityRecord) bool {
	_, known := o.namespaces[r.Namespace]
	return r.Namespace != "" && !known
}

func asks(s model.Selector) bool {
	return len(s.MatchLabels) > 0 || len(s.MatchExpressions) > 0 || len(s.Namespaces) > 0
}

// asked reports whether any policy or rule of a tenant asks for labels.
func (o *naive) asked(t model.TenantName) bool {
	for k, p := range o.policies {
		if k.Tenant == t && asks(p.Applies) {
			return true
		}
	}
	for k, r := range o.rules {
		for _, p := range r.Peers {
			if k.Tenant == t && p.Selector != nil && asks(*p.Selector) {
				return true
			}
		}
	}
	return false
}

// selected reports whether all that a selector asks for holds.
func (o *naive) selected(s model.Selector, r model.IdentityRecord) bool {
	if asks(s) && o.unsure(r) {
		return false
	}
	holds := s.Tenant == r.Network.Tenant && (s.Network == "" || s.Network == r.Network.Name) && (s.Group == "" || s.Group == r.Group)
	for k, want := range s.MatchLabels {
		v, has := r.Labels[k]
		holds = holds && has && v == want
	}
	of := map[string]string{}
	if len(s.Namespaces) > 0 {
		holds = holds && r.Namespace != ""
		maps.Copy(of, o.namespaces[r.Namespace].Labels)
		of["kubernetes.io/metadata.name"] = string(r.Namespace)
	}
	return holds && meets(s.MatchExpressions, r.Labels) && meets(s.Namespaces, of)
}

func meets(all []model.Requirement, labels map[string]string) bool {
	holds := true
	for _, e := range all {
		v, has := labels[e.Key]
		listed := false
		for _, x := range e.Values {
			listed = listed || has && x == v
		}
		switch e.Operator {
		case model.OpIn:
			holds = holds && listed
		case model.OpNotIn:
			holds = holds && !listed
		case model.OpExists:
			holds = holds && has
		case model.OpDoesNotExist:
			holds = holds && !has
		}
	}
	return holds
}

// allows applies the policies of e to a connection with peer.
func (o *naive) allows(e party, dir model.Direction, peer party, c conn) bool {
	policies, open := o.applying(e)
	if !open {
		return false
	}
	for _, tier := range []string{"admin", "contiv", "kubernetes", "baseline"} {
		var decision model.Action // of the best rule so far
		best := [3]int{}
		defaults := map[model.Action]bool{}
		for _, p := range policies {
			if p.Tier.String() != tier {
				continue
			}
			said := p.Default.In
			if dir == model.Out {
				said = p.Default.Out
			}
			defaults[said] = true
			for k, r := range o.rules {
				if k.PolicyKey() != p.Key || r.Direction != dir {
					continue
				}
				action, matches := o.matches(r, e, peer, c)
				if !matches {
					continue
				}
				rank := [3]int{-p.Order, r.Priority, map[model.Action]int{model.Deny: 2, model.Pass: 1, model.Allow: 0}[action]}
				if decision == "" || better(rank, best) {
					decision, best = action, rank
				}
			}
		}
		switch {
		case decision == "" && defaults[model.Deny]:
			return false
		case decision == "" && defaults[model.Allow]:
			return true
		case decision == model.Deny:
			return false
		case decision == model.Allow:
			return true
		}
	}
	return true
}

func better(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

// matches reports whether a rule of e's matches a connection with peer, and with which
// action. A port's name is resolved at the server's endpoint. If that has no record, a rule
// that denies may match any port by name.
func (o *naive) matches(r model.PolicyRule, e, peer party, c conn) (model.Action, bool) {
	if len(r.Ports) == 0 {
		return o.peerMatches(r, peer, true)
	}
	for _, m := range r.Ports {
		if m.Protocol != c.proto {
			continue
		}
		if m.Name == "" {
			if !m.Protocol.HasPorts() || m.Lo <= c.dpt && c.dpt <= m.Hi {
				if action, ok := o.peerMatches(r, peer, true); ok {
					return action, true
				}
			}
			continue
		}
		asked, byAddress := e, true
		if r.Direction == model.Out {
			asked, byAddress = peer, false
		}
		action, ok := o.peerMatches(r, peer, byAddress)
		rec, known := o.identities[asked.Identity]
		switch {
		case !ok || asked.Host == "":
		case !known:
			if r.Direction == model.Out && action != model.Allow {
				return model.Deny, true
			}
		default:
			for _, p := range rec.Ports {
				if p.Name == m.Name && p.Protocol == m.Protocol && p.Port == c.dpt {
					return action, true
				}
			}
		}
	}
	return "", false
}

// peerMatches reports whether a rule matches a peer, and with which action. Unknown names
// and peers fail closed:
//   - A rule that denies or passes denies all peers if a group or network that it names is
//     unknown, and a peer whose identity has no record. A rule that allows does not match then.
//   - A rule that denies by labels matches peers whose labels are unknown, as far as network
//     and group match. A rule that passes by labels denies those.
//
// Unless byAddress, peers by address match none.
func (o *naive) peerMatches(r model.PolicyRule, p party, byAddress bool) (model.Action, bool) {
	if len(r.Peers) == 0 {
		return r.Action, true
	}
	matches, unknown, byIdentity, identified, unsure := false, false, false, false, false
	record, recorded := o.identities[p.Identity]
	for _, x := range r.Peers {
		group, network := model.GroupKey{Tenant: r.Key.Tenant}, model.NetworkKey{Tenant: r.Key.Tenant}
		if x.Selector != nil {
			group.Name, network.Name = x.Selector.Group, x.Selector.Network
		} else {
			network.Name = x.Network.Name
		}
		_, groupKnown := o.groups[group]
		n, networkKnown := o.networks[network]
		switch {
		case x.CIDR.IsValid():
			fits := x.CIDR.Contains(p.addr)
			for _, e := range x.Except {
				fits = fits && !e.Contains(p.addr)
			}
			matches = matches || fits && byAddress
			continue
		case group.Name != "" && !groupKnown || network.Name != "" && !networkKnown:
			unknown = true
			continue
		case x.Selector == nil && p.Key.Network == network && n.Encap == model.EncapVLAN && (n.Subnet.Contains(p.addr) || n.Subnet6.Contains(p.addr)):
			matches = matches || byAddress // any peer with such an address
		}
		byIdentity = true
		if p.Host == "" || !recorded {
			continue
		}
		if x.Selector == nil {
			identified = identified || record.Network == network
		} else {
			identified = identified || o.selected(*x.Selector, record)
			if s := *x.Selector; r.Action != model.Allow && o.unsure(record) {
				unsure = unsure || o.selected(model.Selector{Tenant: s.Tenant, Network: s.Network, Group: s.Group}, record)
			}
		}
	}
	switch {
	case unknown && r.Action != model.Allow:
		return model.Deny, true
	case byIdentity && r.Action != model.Allow && p.Host != "" && !recorded:
		return model.Deny, true
	case unsure && !identified:
		return model.Deny, true
	}
	return r.Action, matches || identified
}
