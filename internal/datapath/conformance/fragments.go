package conformance

import (
	"bytes"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testFragmentsInAnyOrder: a datagram's fragments are delivered in whatever order they
// come (RFC 791 section 3.2, RFC 8200 section 4.5), and denied in whatever order.
func testFragmentsInAnyOrder(t *testing.T, h Harness) {
	t.Helper()
	if h.Frames == nil {
		t.Skip("the harness has no Frames")
	}
	top := StandardTopology()
	policy := model.PolicyKey{Tenant: "blue", Name: "p1"}
	attach := []model.PolicyName{policy.Name}
	b, w := sending(t, h, top, Case{
		Policies: []model.ContivPolicy{{Key: policy}},
		Attach: map[model.GroupKey][]model.PolicyName{
			{Tenant: "blue", Name: "web"}: attach, {Tenant: "blue", Name: "db"}: attach, {Tenant: "blue", Name: "lan"}: attach,
		},
		Rules: []model.Rule{{
			Key:       model.RuleKey{Tenant: "blue", Policy: policy.Name, Rule: "1"},
			Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoUDP, Port: 81,
		}},
	})
	b.apply(t, w.Desired["h1"])
	at := func(network model.NetworkName, id string) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: network}, ID: model.EndpointID(id)})
	}
	sport := uint16(21000)
	for _, pair := range [][2]model.Endpoint{
		{at("vx", "web1"), at("vx", "db1")},
		{at("vx", "web1"), at("vx", "db2")},
		{at("vx", "db2"), at("vx", "web1")},
		{at("vl", "lan1"), at("vl", "lonely1")},
		{at("vl", "lan1"), at("vl", "lan2")},
		{at("vl", "lan2"), at("vl", "lan1")},
	} {
		for _, v6 := range []bool{false, true} {
			for _, port := range []uint16{80, 81} {
				for _, lastFirst := range []bool{false, true} {
					sport++
					first := between(top, pair[0], pair[1], model.ProtoUDP, v6, sport, port)
					first.Frag = &reference.Fragment{ID: uint32(sport), More: true}
					last := first
					last.Frag = &reference.Fragment{ID: uint32(sport), Offset: 1400}
					mark := between(top, pair[0], pair[1], model.ProtoUDP, v6, sport+5000, 80) // behind them
					list := []reference.Packet{first, last, mark}
					if lastFirst {
						list = []reference.Packet{last, first, mark}
					}
					var frames [][]byte
					for _, p := range list {
						frames = append(frames, Frame(p))
					}
					want := map[bool]int{true: 3, false: 1}[port == 80 || pair[1].Host != "h1" || pair[1].Group == ""]
					count := func(came map[string][][]byte) (n int, marked bool) {
						for _, out := range came {
							for _, g := range out {
								for i, f := range frames {
									if bytes.Contains(g, f[14:]) {
										n++
										marked = marked || i == 2
									}
								}
							}
						}
						return n, marked
					}
					came := h.Frames(t, list, frames, func(came map[string][][]byte) bool {
						n, marked := count(came)
						return marked && n >= want
					})
					if n, _ := count(came); n != want {
						t.Errorf("%s to %s, port %d, IPv6 %v, the last fragment first: %v: %d of 3 frames arrive, want %d", pair[0].Key.ID, pair[1].Key.ID, port, v6, lastFirst, n, want)
					}
				}
			}
		}
	}
}
