package conformance

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// SCTPAnswers is the part of SCTP about what comes back against the policy's direction,
// and about answers in associations whose rule is gone.
const SCTPAnswers = "answers by SCTP, which no rule of their own lets through"

// The ports of testSCTP: one, a range that is no power of two on either side, and what
// the identities of web and of db call sctpName.
const (
	sctpOne, sctpLo, sctpHi uint16 = 80, 2905, 2917
	sctpWeb, sctpDB         uint16 = 3868, 3870
	sctpName                       = "diameter"
)

// testSCTP: rules by ports of SCTP, by number, range and name, that allow and that deny,
// in both directions, here and elsewhere, by both families. They match no other protocol,
// and answers need no rule.
func testSCTP(t *testing.T, h Harness) {
	t.Helper()
	top := Labelled(StandardTopology())
	for i, r := range top.Identities {
		port := sctpWeb
		if r.Group == "db" {
			port = sctpDB
		}
		top.Identities[i].Ports = []model.NamedPort{{Name: sctpName, Protocol: model.ProtoTCP, Port: 82}, {Name: sctpName, Protocol: model.ProtoSCTP, Port: port}}
	}
	b, w := sending(t, h, top, Case{})
	sport := uint16(35000)
	for _, dir := range []model.Direction{model.In, model.Out} {
		for _, action := range []model.Action{model.Allow, model.Deny} {
			x := sctp{bench: b, t: t, w: w, dir: dir, action: action, sport: &sport}
			t.Run(string(dir)+" "+string(action), func(t *testing.T) {
				x.t = t
				x.run()
			})
		}
	}
}

// sctp is a policy of group web in one direction, whose default is the opposite of its
// rules.
type sctp struct {
	*bench
	t      *testing.T
	w      *World
	dir    model.Direction
	action model.Action
	sport  *uint16
}

// have applies the policy, with its rules or without any.
func (x sctp) have(rules bool) {
	x.t.Helper()
	p := model.Policy{
		Key: model.PolicyKey{Tenant: "blue", Name: "n0"}, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierKubernetes, Order: 1,
		Applies: model.Selector{Tenant: "blue", MatchLabels: map[string]string{"app": "web"}},
	}
	opposite := map[model.Action]model.Action{model.Allow: model.Deny, model.Deny: model.Allow}[x.action]
	if p.Default.In = opposite; x.dir == model.Out {
		p.Default = model.Defaults{Out: opposite}
	}
	c := Case{General: []model.Policy{p}}
	db := model.Selector{Tenant: "blue", MatchLabels: map[string]string{"app": "db"}}
	for i, m := range []model.PortMatch{
		{Protocol: model.ProtoSCTP, Lo: sctpOne, Hi: sctpOne},
		{Protocol: model.ProtoSCTP, Lo: sctpLo, Hi: sctpHi},
		{Protocol: model.ProtoSCTP, Name: sctpName},
	} {
		if rules {
			c.GeneralRules = append(c.GeneralRules, model.PolicyRule{
				Key: model.RuleKey{Tenant: "blue", Policy: p.Key.Name, Rule: model.RuleID(strconv.Itoa(i))}, Direction: x.dir, Priority: 1,
				Action: x.action, Peers: []model.Peer{{Selector: &db}}, Ports: []model.PortMatch{m},
			})
		}
	}
	if err := x.w.Switch(c); err != nil {
		x.t.Fatal(err)
	}
	x.apply(x.t, x.w.Desired["h1"])
}

// passes compares a packet, and wants the reference to do what it should.
func (x sctp) passes(what string, p reference.Packet, want bool) {
	x.t.Helper()
	if x.SkipPacket != nil && x.SkipPacket(p) != "" {
		return
	}
	v := x.ref.Send(p)
	if nowhere(v) == want {
		x.t.Errorf("%s: the reference: %s, want passed = %v", what, v, want)
	}
	sameVerdict(x.t, what, p, v, x.Send(x.t, p))
}

func (x sctp) run() {
	at := func(id model.EndpointID) model.Endpoint {
		return x.w.Topology.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: id})
	}
	type pair struct{ from, to model.Endpoint }
	web := at("web1")
	for _, db := range []model.Endpoint{at("db1"), at("db2")} {
		for _, who := range []pair{{db, web}, {web, db}} {
			judged := (who.to.Key == web.Key) == (x.dir == model.In) // the policy is asked about who asks
			named, other := sctpWeb, sctpDB
			if who.to.Key != web.Key {
				named, other = other, named
			}
			for _, v6 := range ipv4and6 {
				x.have(true)
				what := fmt.Sprintf("%s > %s %s", who.from.Key.ID, who.to.Key.ID, ipText(v6))
				var asked []reference.Packet
				for _, port := range []uint16{sctpOne - 1, sctpOne, sctpOne + 1, sctpLo - 1, sctpLo, sctpLo + 7, sctpHi, sctpHi + 1, named, other, 82} {
					listed := port == sctpOne || port >= sctpLo && port <= sctpHi || port == named
					*x.sport++
					for _, proto := range []model.Protocol{model.ProtoSCTP, model.ProtoTCP, model.ProtoUDP} {
						p := between(x.w.Topology, who.from, who.to, proto, v6, *x.sport, port)
						allowed := !judged || (listed && proto == model.ProtoSCTP) == (x.action == model.Allow)
						what := fmt.Sprintf("%s:%d %s", what, port, proto)
						x.passes(what, p, allowed)
						if proto != model.ProtoSCTP || !allowed {
							continue
						}
						asked = append(asked, p)
						if judged || x.Differs[SCTPAnswers] == "" { // else it is asked about this packet
							x.passes(what+", answer", answerTo(x.w.Topology, p, who.from, who.to), true)
						}
						x.passes(what+", again", p, true)
					}
				}
				x.have(false)
				for _, p := range asked {
					allowed := !judged || x.action == model.Deny
					what := fmt.Sprintf("%s:%d, the rules are gone", what, p.DstPort)
					x.passes(what, p, allowed)
					if x.Differs[SCTPAnswers] == "" {
						x.passes(what+", answer", answerTo(x.w.Topology, p, who.from, who.to), allowed)
					}
				}
			}
		}
	}
}
