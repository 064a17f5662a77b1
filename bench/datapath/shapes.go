package main

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The shapes of policy that are measured; the traffic is what their last rule
// allows, and nothing before it matches.
const (
	setTen desired.PolicySetID = iota + 1
	setNested
	setRanges
	setMixed
	setLast
	setOpen
)

func tcp(lo, hi int) []model.PortMatch {
	return []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(lo), Hi: uint16(hi)}}
}

// shape makes a policy set of n rules whose last one allows our traffic.
func shape(id desired.PolicySetID, n int, rule func(i int) desired.Rule) *desired.PolicySet {
	t := desired.Tier{Default: model.Deny}
	for i := range n - 1 {
		r := rule(i)
		r.ID = fmt.Sprintf("s%d-r%d", id, i)
		t.Rules = t.Rules.Set(r.ID, &r)
	}
	last := &desired.Rule{
		ID: lastRule(id), Action: model.Allow, Identities: desired.IdentitiesOf(rig.Identity), Ports: tcp(port, port),
	}
	t.Rules = t.Rules.Set(last.ID, last)
	return &desired.PolicySet{ID: id, Name: fmt.Sprintf("shape %d", id), In: []desired.Tier{t}}
}

func lastRule(id desired.PolicySetID) string { return fmt.Sprintf("s%d-last", id) }

// open is a policy of ten rules whose last one allows our peer whatever it asks for.
func open(id desired.PolicySetID) *desired.PolicySet {
	s := shape(id, 10, one)
	last, _ := s.In[0].Rules.Get(lastRule(id))
	any := *last
	any.Ports = nil
	s.In[0].Rules = s.In[0].Rules.Set(any.ID, &any)
	return s
}

func alternate(i int) model.Action {
	if i%2 == 0 {
		return model.Allow
	}
	return model.Deny
}

// one is a rule for one group and port.
func one(i int) desired.Rule {
	return desired.Rule{Action: model.Allow, Identities: desired.IdentitiesOf(model.Identity(1000 + i)), Ports: tcp(80, 80)}
}

// nested is a rule for an address prefix inside, or around, other rules' prefixes:
// chains of lengths 8 to 32 that share their beginnings, around the peer too.
func nested(i int) desired.Rule {
	bits := 8 + i%25
	a := netip.AddrFrom4([4]byte{10, 9, byte(i / 25), byte(i / 25 / 256)})
	p, err := a.Prefix(bits)
	if err != nil {
		p = netip.PrefixFrom(a, 32) // lengths are right by construction
	}
	return desired.Rule{Action: alternate(i), CIDRs: []desired.CIDR{{Prefix: p}}, Ports: tcp(80+i%25, 80+i%25)}
}

// ranged is a rule for a range of ports that overlaps other rules' ranges.
func ranged(i int) desired.Rule {
	lo := 6000 + i*3
	return desired.Rule{Action: alternate(i), Identities: desired.IdentitiesOf(rig.Identity), Ports: tcp(lo, lo+5000+i%100)}
}

// mixed is a rule for anybody or for a group, in turn.
func mixed(i int) desired.Rule {
	r := desired.Rule{Action: alternate(i / 2), AnyPeer: i%2 == 0, Ports: tcp(6000+i, 6000+i)}
	if !r.AnyPeer {
		r.Identities = desired.IdentitiesOf(rig.Identity, model.Identity(1000+i))
	}
	return r
}
