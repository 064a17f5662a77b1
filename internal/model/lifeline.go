package model

import "net/netip"

// LifelineKind is what hosts need an address for.
type LifelineKind int

// Kinds of lifelines.
const (
	OtherLifeline      LifelineKind = iota // such as the address of a host, a netmaster or the store
	GatewayLifeline                        // packets to others leave by it
	NameServerLifeline                     // it answers for names
)

// Lifeline says what an address is that hosts have to reach by their own routes.
type Lifeline struct {
	Kind LifelineKind
	Name string // in words
}

// Lifelines are addresses that hosts have to reach by their own routes.
type Lifelines map[netip.Addr]Lifeline

// In returns the lowest of the addresses that lies in a subnet of a network, but for spared
// ones (nil = none is), and the subnet. It is invalid where there is none.
func (l Lifelines) In(n Network, spared func(netip.Addr, Lifeline) bool) (at netip.Addr, subnet netip.Prefix) {
	for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
		for a, what := range l {
			if p.Contains(a) && (!at.IsValid() || a.Less(at)) && (spared == nil || !spared(a, what)) {
				at, subnet = a, p
			}
		}
	}
	return at, subnet
}
