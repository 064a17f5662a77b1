package hostsync

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestExposedListChangesWithItsAddressesOnly: the list is of exposed services alone, and another one only
// when an address comes or goes.
func TestExposedListChangesWithItsAddressesOnly(t *testing.T) {
	addr := netip.MustParseAddr
	key := func(name string) model.ServiceKey { return model.ServiceKey{Tenant: "default", Name: name} }
	var all desired.Map[model.ServiceKey, *desired.Service]
	var nodes desired.Map[netip.Addr, struct{}]
	var x exposed
	faces, were := false, false
	var ranges []netip.Prefix
	expect := func(when, want string, six, another bool) {
		t.Helper()
		before := x.list
		x.follow(all, nodes, ranges, func(model.ServiceKey) bool { return faces }, faces != were)
		were = faces
		got := []string{}
		for _, s := range x.list {
			text := fmt.Sprintf("{%s %s}", s.Name, s.Addr)
			if s.Optional {
				text += "?"
			}
			got = append(got, text)
		}
		if got := fmt.Sprint(got); got != want || x.six != six {
			t.Errorf("%s: %s, IPv6 %v, want %s", when, got, x.six, want)
		}
		if same := len(before) == len(x.list) && len(before) > 0 && &before[0] == &x.list[0]; same == another && len(before) > 0 {
			t.Errorf("%s: the list is another one: %v", when, !same)
		}
	}
	expect("none", "[]", false, false)
	all = all.Set(key("b"), &desired.Service{Exposed: true, IPv4: addr("10.0.0.2")}).Set(key("hidden"), &desired.Service{IPv4: addr("10.0.0.9")})
	expect("one", "[{default:b 10.0.0.2}]", false, true)
	all = all.Set(key("b"), &desired.Service{Exposed: true, IPv4: addr("10.0.0.2"), Affinity: 1})
	expect("something else of it has changed", "[{default:b 10.0.0.2}]", false, false)
	all = all.Set(key("a"), &desired.Service{Exposed: true, IPv4: addr("10.0.0.1"), IPv6: addr("fd00::1")})
	expect("two", "[{default:a 10.0.0.1} {default:b 10.0.0.2} {default:a fd00::1}]", true, true)
	all = all.Set(key("a"), &desired.Service{Exposed: false, IPv4: addr("10.0.0.1"), IPv6: addr("fd00::1")}).Delete(key("b"))
	expect("none any more", "[]", false, true)
	shared := []desired.Frontend{{Addr: netip.IPv4Unspecified(), Port: 30080}, {Addr: addr("10.0.0.3"), Port: 80}, {Addr: addr("10.0.0.3"), Port: 81}}
	all = all.Set(key("c"), &desired.Service{Key: key("c"), Exposed: true, Frontends: shared}).Set(key("d"), &desired.Service{Exposed: true, Frontends: shared[1:]})
	expect("faces that are not led to the data plane", "[]", false, false)
	faces = true
	expect("faces", "[{default:c 10.0.0.3}?]", false, true)
	nodes = nodes.Set(addr("10.0.0.3"), struct{}{})
	expect("a face at a node's address", "[]", false, true)
	nodes = nodes.Delete(addr("10.0.0.3"))
	expect("a node's no more", "[{default:c 10.0.0.3}?]", false, true)
	ranges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}
	expect("a face within a range that has a route", "[]", false, true)
	ranges = nil
	expect("no range any more", "[{default:c 10.0.0.3}?]", false, true)
	faces = false
	expect("faces that are not any more", "[]", false, true)
}
