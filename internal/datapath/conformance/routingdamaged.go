package conformance

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testRoutingDamaged: malformed packets are neither routed nor answered, in cases where a
// valid packet is: to an endpoint, to an unused address, to an address beyond all networks,
// and without hops left. IPv4 options and the like change nothing.
func testRoutingDamaged(t *testing.T, h Harness) {
	t.Helper()
	top := RoutedTopology()
	b, w := routing(t, h, top, true)
	b.apply(t, w.Desired["h1"])
	web1 := at(top, "web1")
	sport := uint16(30000)
	for _, to := range []string{"app1", "app2", "nobody", "beyond", "hops"} {
		for _, v6 := range ipv4and6 {
			for _, x := range damaged() {
				if h.Differs[x.name] != "" || v6 && x.only4 {
					continue
				}
				e, n := at(top, "app1"), top.Network(at(top, "app1").Key.Network)
				if to == "app2" {
					e = at(top, to)
				}
				sport++
				p := routed(top, web1, e, x.proto, v6, sport, 80)
				switch to {
				case "nobody":
					if p.Dst = host4(n, 77); v6 {
						p.Dst = host6(n, 77)
					}
				case "beyond":
					if p.Dst = Outside; v6 {
						p.Dst = Outside6
					}
				case "hops":
					p.TTL = 1
				}
				what := fmt.Sprintf("to %s, %s: %s", to, ipText(v6), x.name)
				bad := p
				if bad.Damage = x.damage; x.proto == model.ProtoTCP && x.damage == reference.Intact {
					bad.TCPFlags = x.flags
				}
				if bad.Damage == reference.NoHopsLeft {
					bad.TTL = 0
				}
				b.compare(t, what, bad)
				if x.damage != reference.CutShort { // once for each protocol
					continue
				}
				for _, form := range []reference.Form{reference.Options, reference.Padded, reference.Unsummed} {
					sport++
					p.Form, p.SrcPort = form, sport
					b.compare(t, fmt.Sprintf("to %s, %s: form %d of %s", to, ipText(v6), form, x.proto), p)
				}
			}
		}
	}
}
