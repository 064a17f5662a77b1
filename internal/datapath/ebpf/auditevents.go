package ebpf

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Rules with Log and audited sets are no affair of the programs': they send up
// what the connections are that begin at ports whose sets have any, and what
// became of them, and the policies are asked again here. So neither costs a
// packet's way or a map anything.

// endOf is the end here of a connection whose set has a number; false when its
// rules are not in.
func (d *Driver) endOf(asked driver.Asked, set uint32) (driver.End, bool) {
	s := d.setIn(desired.PolicySetID(set))
	if s == nil {
		return driver.End{}, false
	}
	return driver.EndOf(asked, s, d.audited), true
}

// setIn is a set whose rules are in; nil = they are not.
func (d *Driver) setIn(id desired.PolicySetID) *desired.PolicySet {
	if x := d.index[id]; x != nil {
		return x.set
	}
	return nil
}

// audited is an audited set; nil = it is none of the picture's.
func (d *Driver) audited(id desired.PolicySetID) *desired.PolicySet {
	s, _ := d.last.PolicySets.Get(id)
	return s
}

// peerAt is who policy takes an address for: ask_about of bpf/forward.h.
func (d *Driver) peerAt(net uint32, a addr, way bool) desired.Peer {
	p := desired.Peer{Addr: a.netip(), Network: model.NetworkID(net)}
	switch h, known := d.hosts.have[d.keyOf(net, a)]; {
	case way:
		p.Identity = model.IdentityExternal
	case known:
		p.Identity, p.Network = model.Identity(h.Identity), model.NetworkID(h.Net)
	case d.networks.have[net].Encap == encapVLAN:
		p.Identity = model.IdentityExternal
	}
	return p
}

// verdict is what the programs found at an end.
type verdict struct {
	driver.End
	passed bool
	number uint64 // of the rule that decided; 0 = none
	rule   string // its id, where it is known
}

// verdicts are those of an event, of the ends that have a policy.
func (d *Driver) verdicts(e event) (out []verdict) {
	add := func(dir model.Direction, set uint32, peer addr, passed bool, number uint64) {
		if set == 0 {
			return
		}
		asked := driver.Asked{Direction: dir, Peer: d.peerAt(e.Net, peer, e.Way != 0), Proto: model.Protocol(e.Proto), Port: e.DstPort}
		if at, ok := d.endOf(asked, set); ok {
			out = append(out, verdict{at, passed, number, d.ruleIDs[number]})
		}
	}
	add(model.Out, e.OutSet, e.Dst, e.Reason == 0 || e.InSet != 0, e.OutRule)
	add(model.In, e.InSet, e.Src, e.Reason == 0, e.InRule)
	return out
}

// is tells whether a ruling is the verdict. It is not when the picture has
// changed since: nobody can say then what the connection met. Of rules that are
// alike in all but their ids the programs and desired may name two.
func (v verdict) is(said desired.Ruling) bool {
	if said.Pass != v.passed || (said.Rule == nil) != (v.number == 0) {
		return false
	}
	if said.Rule == nil || ruleNumber(said.Rule.ID) == v.number {
		return true
	}
	for _, t := range v.Set.Tiers(v.Direction) {
		if r, ok := t.Rules.Get(v.rule); ok && rankOf(r).weight == rankOf(said.Rule).weight {
			return true
		}
	}
	return false
}

// auditEvents tells what the policies asked about a new connection say of it beside
// their verdicts.
func (m *monitor) auditEvents(f driver.FlowEvent, list []verdict) {
	defer m.asking.Spent(time.Now())
	for _, v := range list {
		if !m.asking.Left() {
			m.queue.Lose(f.Count)
			return
		}
		said := v.Judge(v.Set)
		if !v.is(said) {
			m.queue.Lose(f.Count)
			continue
		}
		for _, e := range v.AuditEvents(said) {
			m.queue.Send(f.About(e))
		}
	}
}
