package compile

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// A host that speaks BGP leads who comes from outside to its own providers while it has
// some that take connections, to all otherwise; one that does not leads to all.
func TestSpeakersPreferTheirOwnProviders(t *testing.T) {
	c := New("h1")
	s := outsider(c, model.DefaultTenant, model.EncapVXLAN)
	c.SetService(s)
	here := model.Endpoint{
		Key: model.EndpointKey{Network: s.Network, ID: "e2"}, Identity: 300, Host: "h1", IPv4: netip.MustParseAddr("10.1.0.2"), MAC: model.EndpointMAC(s.Network, netip.MustParseAddr("10.1.0.2"), netip.Addr{}),
		Labels: map[string]string{"app": "shop"},
	}
	expect := func(when string, outside ...model.EndpointID) {
		t.Helper()
		pic, _ := c.Compile(1)
		got, _ := pic.Services.Get(s.Key)
		for _, among := range []struct {
			policy desired.TrafficPolicy
			want   []model.EndpointID
		}{{got.ExternalPolicy, outside}, {got.InternalPolicy, []model.EndpointID{"e1", "e2"}}} {
			pool := map[model.EndpointID]bool{}
			for k := range got.Pool(false, among.policy) {
				pool[k.ID] = true
			}
			for _, id := range among.want {
				if !pool[id] {
					t.Errorf("%s: %s is not chosen, by %d of %v", when, id, among.policy, pool)
				}
			}
			if len(pool) > len(among.want) {
				t.Errorf("%s: chosen by %d are %v, want %v", when, among.policy, pool, among.want)
			}
		}
	}
	c.SetEndpoint(here)
	expect("it does not speak", "e1", "e2")
	c.Services.SpeaksBGP(true)
	expect("it speaks", "e2")
	c.Services.SpeaksBGP(false)
	expect("it speaks no more", "e1", "e2")

	c.Services.SpeaksBGP(true)
	c.Hosts.SetDrained("h2", true)
	c.Hosts.SetDrained("h1", true)
	c.Hosts.SetDrained("h2", false)
	pic, _ := c.Compile(1)
	got, _ := pic.Services.Get(s.Key)
	n := 0
	for k := range got.Pool(false, got.ExternalPolicy) {
		if n++; k.ID != "e1" {
			t.Errorf("%s is chosen of a host that drains", k.ID)
		}
	}
	if n != 1 {
		t.Errorf("%d are chosen while this host drains, want the other", n)
	}
}
