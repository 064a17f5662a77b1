package conformance

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// AskedAsks is the case of Replies in which the rules let the endpoint that was
// asked begin a connection over the living one.
const AskedAsks = "the one that was asked begins a connection, as the rules allow"

// testReplies: what comes back on a connection passes without a rule of its own,
// a request that comes back does not.
func testReplies(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	top := StandardTopology()
	web := model.GroupKey{Tenant: "blue", Name: "web"}
	policy := model.PolicyKey{Tenant: "blue", Name: "p1"}
	w, err := NewWorld(top, Case{
		Policies: []model.ContivPolicy{{Key: policy}},
		Attach:   map[model.GroupKey][]model.PolicyName{web: {"p1"}},
		Rules: []model.Rule{{ // web takes nothing but port 9000
			Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol,
		}, {
			Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "2"}, Direction: model.In, Priority: 20, Action: model.Allow, Protocol: model.ProtoTCP, Port: 9000,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	b.apply(t, w.Desired["h1"])
	network := model.NetworkKey{Tenant: "blue", Name: "vx"}
	from := top.Endpoint(model.EndpointKey{Network: network, ID: "web1"})
	sport := uint16(41000)
	for _, to := range []model.EndpointID{"db1", "db2"} { // here and elsewhere
		asked := top.Endpoint(model.EndpointKey{Network: network, ID: to})
		for _, v6 := range []bool{false, true} {
			for _, allowed := range []bool{false, true} {
				if sport++; allowed {
					if why := h.Differs[AskedAsks]; why != "" {
						t.Logf("%s: %s", AskedAsks, why)
						continue
					}
					sport = 9000
				}
				there := between(top, from, asked, model.ProtoTCP, v6, sport, 80)
				back := answerTo(top, there, from, asked)
				say := func(what string, p reference.Packet, flags uint8) {
					t.Helper()
					p.TCPFlags = flags
					b.compare(t, string(to)+": "+what, p)
				}
				say("request", there, reference.FlagSYN)
				say("answer", back, reference.FlagSYN|reference.FlagACK)
				say("acknowledgement", there, reference.FlagACK)
				say("the one that was asked asks", back, reference.FlagSYN)
				say("the connection goes on", there, reference.FlagACK)
				say("both ways", back, reference.FlagACK)
				if sport == 9000 {
					sport = 41100
				}
			}
			sport += 10
		}
	}
}
