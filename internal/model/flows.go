package model

// MaxPolicyFlows is how many flows the rules of all policies may take on a host
// with Open vSwitch, and so those of one policy: some 0.5 GB of memory.
const MaxPolicyFlows = 1 << 19

// DriverOVS is the driver of hosts whose rules are flows (Host.Driver).
const DriverOVS = "ovs"

// FlowMeter counts how many flows rules take at most: of each, its peers times
// its blocks of ports, for IPv4 and IPv6 each where a port is named. The zero
// value is empty. It is not safe for several goroutines.
type FlowMeter struct {
	fixed     int // of peers that are no selectors
	each      int // by identity, of all selectors
	selectors map[string]*selectorFlows
}

type selectorFlows struct {
	selector Selector
	each     int // by identity
}

// Add counts a rule; by is 1, or -1 for one that goes.
func (m *FlowMeter) Add(r PolicyRule, by int) {
	f := portFlows(r.Ports)
	identity := f.anyFamily + f.v4 + f.v6
	prefix4, prefix6 := 2*f.anyFamily+f.v4+f.untracked, 2*f.anyFamily+f.v6+f.untracked
	if len(r.Peers) == 0 {
		m.fixed += by * identity
	}
	for _, p := range r.Peers {
		selector := p.Selector
		switch {
		case p.CIDR.IsValid() && p.CIDR.Addr().Is4():
			m.fixed += by * exceptPrefixCount(p) * prefix4
		case p.CIDR.IsValid():
			m.fixed += by * exceptPrefixCount(p) * prefix6
		case selector == nil: // a network, on a VLAN also by its subnets
			selector = &Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}
			m.fixed += by * (prefix4 + prefix6)
		}
		if selector != nil {
			m.addSelector(*selector, by*identity)
		}
	}
}

func (m *FlowMeter) addSelector(s Selector, by int) {
	if m.selectors == nil {
		m.selectors = map[string]*selectorFlows{}
	}
	k := s.String()
	own := m.selectors[k]
	if own == nil {
		own = &selectorFlows{selector: s}
		m.selectors[k] = own
	}
	m.each += by
	if own.each += by; own.each == 0 {
		delete(m.selectors, k)
	}
}

// AtMost bounds the flows when no selector selects more identities than are
// given. It costs nothing.
func (m *FlowMeter) AtMost(identities int) int { return m.fixed + m.each*identities }

// Flows counts the flows; identities tells how many a selector selects. It costs
// as much as the rules name different selectors.
func (m *FlowMeter) Flows(identities func(Selector) int) int {
	n := m.fixed
	for _, s := range m.selectors {
		n += s.each * identities(s.selector)
	}
	return n
}

// flowsOfPorts is how many matches a list of ports is: of either family at once, of
// IPv4 and of IPv6. Untracked are those of each family that an address is matched
// in two ways with, like those of either family.
type flowsOfPorts struct{ anyFamily, v4, v6, untracked int }

func portFlows(ports []PortMatch) (f flowsOfPorts) {
	for _, q := range pairsOf(PolicyRule{Ports: ports}) {
		switch q.proto {
		case AnyProtocol:
			return flowsOfPorts{anyFamily: 1}
		case ProtoICMPv6:
			f.v6++
		case ProtoTCP, ProtoUDP, ProtoICMP:
			f.v4, f.v6 = f.v4+1, f.v6+1
		default:
			f.v4, f.v6, f.untracked = f.v4+1, f.v6+1, f.untracked+1
		}
	}
	return f
}

// exceptPrefixCount bounds how many prefixes are left of one without its exceptions.
func exceptPrefixCount(p Peer) int {
	n := 0
	for _, x := range p.Except {
		n += max(0, x.Bits()-p.CIDR.Bits())
	}
	return max(1, n)
}
