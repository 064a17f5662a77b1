package conformance

import (
	"context"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// withAuditRules returns the desired state with Log on all rules and, if audited, with
// audited sets beside each of its sets: one without the rules that deny, one with a
// rule that denies a port more, one with a tier that denies what no rule lets
// through, and one that says the same. A fifth one is named in Audits and is not
// there.
func withAuditRules(pic desired.Host, audited bool) desired.Host {
	each := func(tiers []desired.Tier, edit func(desired.Rules) desired.Rules) []desired.Tier {
		var out []desired.Tier
		for _, t := range tiers {
			t.Rules = edit(t.Rules)
			out = append(out, t)
		}
		return out
	}
	edited := func(s *desired.PolicySet, edit func(desired.Rules) desired.Rules) *desired.PolicySet {
		next := *s
		next.In, next.Out = each(s.In, edit), each(s.Out, edit)
		return &next
	}
	for id, s := range pic.PolicySets.All() {
		s = edited(s, func(rules desired.Rules) desired.Rules {
			for name, r := range rules.All() {
				with := *r
				with.Log = true
				rules = rules.Set(name, &with)
			}
			return rules
		})
		without := edited(s, func(rules desired.Rules) desired.Rules {
			for name, r := range rules.All() {
				if r.Action == model.Deny {
					rules = rules.Delete(name)
				}
			}
			return rules
		})
		more := edited(s, func(rules desired.Rules) desired.Rules {
			return rules.Set("blue:audited:1", &desired.Rule{
				ID: "blue:audited:1", Priority: 100, Action: model.Deny, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 443, Hi: 443}},
			})
		})
		closed := *s
		last := desired.Tier{Tier: model.TierKubernetes, Default: model.Deny, DefaultOf: "blue:closed"}
		closed.In = append(each(s.In, func(r desired.Rules) desired.Rules { return r }), last)
		closed.Out = append(each(s.Out, func(r desired.Rules) desired.Rules { return r }), last)
		same := *s
		if audited {
			s.Audits = []desired.PolicySetID{id + 100}
			for i, a := range []*desired.PolicySet{without, more, &closed, &same} {
				a.ID, a.Audited = id+1+desired.PolicySetID(i), []string{"without", "more", "closed", "same"}[i]
				s.Audits = append(s.Audits, a.ID)
				pic.PolicySets = pic.PolicySets.Set(a.ID, a)
			}
		}
		pic.PolicySets = pic.PolicySets.Set(id, s)
	}
	return pic
}

// testAuditRules: matches of logged rules and audited sets are reported to monitors and change
// no decision.
func testAuditRules(t *testing.T, h Harness) {
	t.Helper()
	top := StandardTopology()
	b, w := sending(t, h, top, monitored())
	if c := b.drv.Capabilities(); !c.Log || !c.Audit {
		t.Skip("the driver has neither log nor audit")
	}
	round := uint16(0)
	send := func() {
		round++
		for _, p := range monitoredPackets(top) {
			p.packet.SrcPort += 100 * round // a new connection
			b.compare(t, p.name, p.packet)
			if p.name == "allowed by a rule" {
				b.compare(t, "the same again, which begins none", p.packet)
			}
		}
	}
	for _, audited := range []bool{false, true} {
		pic := withAuditRules(w.Desired["h1"], audited)
		b.apply(t, pic)
		send() // no monitor listens
		for i, opts := range []driver.MonitorOptions{{NoDrops: true}, {}, {Connections: true}} {
			ctx, cancel := context.WithCancel(context.Background())
			want, err := b.ref.Monitor(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			b.establishedEvents(t, want, audited && i == 0) // once
			got, err := b.drv.Monitor(ctx, opts)
			if err != nil {
				t.Fatalf("Monitor() = %v", err)
			}
			if r := b.apply(t, pic); r.Changes != 0 {
				t.Errorf("the same state, monitored, made %d changes", r.Changes)
			}
			send()
			least := 4
			if audited {
				least = 9
			}
			compareEvents(t, want, got, least)
			if audited && i == 2 { // they change
				for id, s := range pic.PolicySets.All() {
					if s.Audited == "without" {
						closed := *s
						closed.In = []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}
						pic.PolicySets = pic.PolicySets.Set(id, &closed)
					}
				}
				b.apply(t, pic)
				b.establishedEvents(t, want, true)
				compareEvents(t, want, got, 0)
			}
			cancel()
			drain(t, got)
			drain(t, want)
		}
	}
	b.apply(t, w.Desired["h1"])
	send()
	if r := b.apply(t, w.Desired["h1"]); r.Changes != 0 {
		t.Errorf("the same state, without audits, made %d changes", r.Changes)
	}
	if h.Egress {
		b.establishedEgress(t, top)
	}
}

// establishedEgress: audits tell of living connections with the endpoint's own address,
// also of connections to and from the host's stack.
func (b *bench) establishedEgress(t *testing.T, top Topology) {
	t.Helper()
	pic, packets := egressPackets(top, b.Egress6)
	b.apply(t, withAuditRules(pic, true))
	for _, p := range packets {
		b.compare(t, p.name, p.packet)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	want, err := b.ref.Monitor(ctx, driver.MonitorOptions{NoDrops: true})
	if err != nil {
		t.Fatal(err)
	}
	b.establishedEvents(t, want, true)
	got, err := b.drv.Monitor(ctx, driver.MonitorOptions{NoDrops: true})
	if err != nil {
		t.Fatalf("Monitor() = %v", err)
	}
	least := 0
	if b.drv.Capabilities().AuditEstablished {
		least = 4
	}
	compareEvents(t, want, got, least)
	cancel()
	drain(t, got)
	drain(t, want)
}

// compareEstablished compares the established connections that the driver lists.
func (b *bench) compareEstablished(t *testing.T) {
	t.Helper()
	lister := b.drv.Capabilities().Connections
	if lister == nil {
		return
	}
	want, err := b.ref.Capabilities().Connections.Established(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := lister.Established(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for a, n := range want {
		if got[a].N != n.N {
			t.Errorf("%d established connections %+v, want %d", got[a].N, a, n.N)
		}
	}
	for a := range got {
		if _, ok := want[a]; !ok {
			t.Errorf("lists %+v, which is not established", a)
		}
	}
}

// establishedEvents checks whether the reference data plane tells of connections that live. Where the driver
// tells of none, it takes the reference data plane's events off the channel.
func (b *bench) establishedEvents(t *testing.T, want <-chan driver.FlowEvent, some bool) {
	t.Helper()
	if got := len(want) > 0; got != some {
		t.Errorf("connections that live are told of: %v, want %v", got, some)
	}
	b.compareEstablished(t)
	for !b.drv.Capabilities().AuditEstablished && len(want) > 0 {
		if e := <-want; !e.Established {
			t.Errorf("not of a connection that lives: %+v", e)
		}
	}
}
