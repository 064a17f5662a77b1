package ebpf

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// withRest is a desired state in which a rule of set 2 denies what no other allows.
func withRest(pic desired.Host) desired.Host {
	s, _ := pic.PolicySets.Get(2)
	next := *s
	next.In = []desired.Tier{{Default: model.Deny, Rules: s.In[0].Rules.Set("rest", &desired.Rule{ID: "rest", Action: model.Deny, AnyPeer: true})}}
	pic.PolicySets = pic.PolicySets.Set(2, &next)
	return pic
}

// audited is a desired state with Log on all rules of set 2, and beside it an audited
// set that denies what it allows.
func audited(pic desired.Host) desired.Host {
	s, _ := pic.PolicySets.Get(2)
	next, would := *s, *s
	var rules desired.Rules
	for id, r := range s.In[0].Rules.All() {
		with := *r
		with.Log = true
		rules = rules.Set(id, &with)
	}
	next.In, next.Audits = []desired.Tier{{Default: model.Deny, Rules: rules}}, []desired.PolicySetID{3}
	would.ID, would.Audited = 3, "blue:strict"
	would.In = []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}
	pic.PolicySets = pic.PolicySets.Set(2, &next).Set(3, &would)
	return pic
}

// TestAuditsAndLogsChangeNoVerdict: the same packets leave the same entries, and get the
// same verdicts, whether policies are logged and audited or not, also while
// somebody monitors; audited sets take no room in the maps.
func TestAuditsAndLogsChangeNoVerdict(t *testing.T) {
	type known struct {
		Out, In        uint64
		Version        uint32
		Flipped, State uint8
	}
	run := func(with bool) (conns map[connKey]known, passed, rules int, sets map[uint32]bool) {
		c := newCrowded(t, nil)
		pic := withRest(c.pic)
		if with {
			pic = audited(pic)
		}
		if _, err := (inHost{c.drv, c.rig}).Apply(t.Context(), pic); err != nil {
			t.Fatal(err)
		}
		if with {
			if _, err := c.drv.Monitor(t.Context(), driver.MonitorOptions{Connections: true}); err != nil {
				t.Fatal(err)
			}
		}
		c.connect("open", c.a, 10000, 5)
		passed += c.pass(c.a, c.segments(c.a, 20000, 7, reference.FlagSYN, false))
		denied := web(c.a, c.b, 4000, 81)
		passed += c.pass(c.a, [][]byte{conformance.Frame(denied), conformance.Frame(web(c.c, c.b, 4000, 80))})
		conns = map[connKey]known{}
		for k, v := range c.conns() {
			if v.InIfindex == 0 {
				t.Errorf("%+v was judged for nobody", k)
			}
			conns[k] = known{v.OutRule, v.InRule, v.Version, v.Flipped, v.State}
		}
		sets = map[uint32]bool{}
		for id := range c.drv.dp.policies.Sets.have {
			sets[id] = true
		}
		return conns, passed, c.drv.dp.policies.Rules.n, sets
	}
	conns, passed, rules, sets := run(false)
	conns2, passed2, rules2, sets2 := run(true)
	if diff := cmp.Diff(conns, conns2); diff != "" || len(conns) < 12 {
		t.Errorf("%d connections (-without +with):\n%s", len(conns), diff)
	}
	if passed != passed2 || rules != rules2 || !maps.Equal(sets, sets2) {
		t.Errorf("without and with: %d and %d packets pass, %d and %d entries of rules, sets %v and %v", passed, passed2, rules, rules2, sets, sets2)
	}
}

// TestFloodOfOneEndpointLeavesOthersTheirEvents: of one endpoint's flood of connections that a rule logs a bounded
// part is reported, the rest is counted, and others' are reported meanwhile.
func TestFloodOfOneEndpointLeavesOthersTheirEvents(t *testing.T) {
	c := newCrowded(t, nil)
	shareOf := func(p *desired.Port) uint16 {
		c.connect("a first", p, 9000, 1)
		var owner uint16
		for _, v := range c.conns() {
			owner = v.Owner
		}
		if err := c.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
			t.Fatal(err)
		}
		return owner % 64
	}
	if shareOf(c.a) == shareOf(c.c) {
		t.Skip("by chance, one in 64, both have one share this time")
	}
	if _, err := (inHost{c.drv, c.rig}).Apply(t.Context(), audited(withRest(c.pic))); err != nil {
		t.Fatal(err)
	}
	events, err := c.drv.Monitor(t.Context(), driver.MonitorOptions{NoDrops: true})
	if err != nil {
		t.Fatal(err)
	}
	const flood, most = 3000, 100
	var frames [][]byte
	for i := range flood {
		frames = append(frames, conformance.Frame(web(c.a, c.b, 4000, 10000+uint16(i))))
	}
	began := time.Now()
	c.pass(c.a, frames)
	c.all("another's", c.c, c.segments(c.c, 20000, 1, reference.FlagSYN, false))
	seconds := int(time.Since(began)/time.Second) + 2
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	told, lost, others := 0, 0, 0
	for told+lost < flood || others < 2 {
		select {
		case e := <-events:
			switch {
			case e.Kind == driver.FlowLost:
				lost += int(e.Count)
			case e.Src == c.c.IPv4 && e.Kind == driver.FlowLogged && e.Decisions[0].Rule == "more"+model.Protocol(8000).String() && e.Decisions[0].Action == model.Allow:
				others++
			case e.Src == c.c.IPv4 && e.Kind == driver.FlowWouldDeny && e.Policy == "blue:strict" && e.Decisions[0].Tier == model.TierContiv:
				others++
			case e.Src == c.a.IPv4 && e.Kind == driver.FlowLogged && e.Decisions[0].Rule == "rest" && e.Decisions[0].Action == model.Deny:
				told += int(e.Count)
			default:
				t.Fatalf("unexpected event %+v", e)
			}
		case <-ctx.Done():
			t.Fatalf("%d told and %d lost of %d, %d of another's 2", told, lost, flood, others)
		}
	}
	if told == 0 || told > most*cpus()*seconds {
		t.Errorf("%d connections of one endpoint were told within %d s; at most %d a second and processor", told, seconds, most)
	}
}
