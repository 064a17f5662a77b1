package fabric

import (
	"encoding/json"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// A host with settings tells its routers of its containers and services, follows what
// they tell it, and when the settings go nothing is left.
func TestHostSpeaksBGPWhileItHasSettings(t *testing.T) {
	b := newBench(t, "50.1.1.200/32", "50.1.1.201/32")
	b.start()
	r1 := b.peer("50.1.1.200", routerAS, bgp.Neighbor{Password: "hush"}, map[string]string{
		"10.50.0.0/16": "50.1.1.210", "10.60.0.0/16": "50.1.1.210", "10.1.1.0/25": "50.1.1.210", "172.19.7.0/24": "50.1.1.210", "10.0.0.0/31": "50.1.1.210", "10.70.0.0/16": "60.1.1.1", "10.80.0.0/16": "50.1.1.210",
	})
	r2 := b.peer("50.1.1.201", 501, bgp.Neighbor{Password: "hush"}, map[string]string{"10.50.0.0/16": "50.1.1.211"})
	b.set(func(in *Input) {
		in.Settings, in.Networks = settings(), []netip.Prefix{prefix("10.80.3.0/24")} // of a tenant that the desired state has nothing of
		in.Settings.More, in.Settings.Password = []model.BgpRouter{{Address: addr("50.1.1.201"), AS: 501}}, "hush"
		pic := &in.Desired
		port(pic, 5, network(1, "blue", model.EncapVLAN))
		port(pic, 6, network(2, "blue", model.EncapVXLAN))
		refused := network(3, "blue", model.EncapVLAN)
		port(pic, 7, refused)
		in.Refused = map[string]bool{"p3-7": true}
		for name, local := range map[string]bool{"here": true, "elsewhere": false} {
			s := &desired.Service{Key: model.ServiceKey{Tenant: "default", Name: name}, IPv4: addr("10.9.9.9"), Exposed: true}
			if !local {
				s.IPv4 = addr("10.9.9.10")
			}
			s.Backends = s.Backends.Set(model.EndpointKey{ID: "x"}, &desired.Backend{Network: 1, IPv4: addr("10.1.1.5"), Local: local})
			pic.Services = pic.Services.Set(s.Key, s)
		}
	})
	b.heard(r1, "10.1.1.5/32", "10.9.9.9/32")
	b.heard(r2, "10.1.1.5/32", "10.9.9.9/32")
	for _, hop := range r1.Routes().Routes[prefix("10.1.1.5/32")] {
		if hop.Address != addr("50.1.1.2") {
			t.Errorf("next hop %s, want routerip", hop.Address)
		}
	}
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210 50.1.1.211", "10.60.0.0/16": "50.1.1.210"})
	b.problem("BGP routes", "1 learned prefixes lead to what is no router")
	if got := b.owned(); !maps.Equal(got, map[string]string{"172.19.1.5": "10.1.1.5"}) {
		t.Errorf("own addresses %v", got)
	}
	st := b.router.State(t.Context())
	text, err := json.Marshal(st)
	if err != nil || st.Admin != Enabled || len(st.Peers) != 2 || strings.Contains(string(text), "hush") {
		t.Errorf("state %s: %v", text, err)
	}
	if s := b.router.Status(); s == nil || s.Routes != 3 || s.Announced != 2 || s.Neighbors != "50.1.1.200 established, 50.1.1.201 established" {
		t.Errorf("status %+v", s)
	}

	// The provider goes, a container of another tenant with the same address comes.
	b.set(func(in *Input) {
		in.Desired.Services = desired.Map[model.ServiceKey, *desired.Service]{}
		port(&in.Desired, 5, network(4, "amber", model.EncapVLAN))
		port(&in.Desired, 8, network(1, "blue", model.EncapVLAN))
	})
	b.heard(r1, "10.1.1.5/32", "10.1.1.8/32")
	b.problem("BGP address 10.1.1.5", "of tenant amber is not announced: tenant blue has the same")
	if got := b.owned(); !maps.Equal(got, map[string]string{"172.19.1.5": "10.1.1.5", "172.19.1.8": "10.1.1.8"}) {
		t.Errorf("own addresses %v", got)
	}

	b.set(func(in *Input) { in.Settings = nil })
	b.heard(r1)
	b.wantRoutes(map[string]string{})
	b.until("no router address", func() (bool, string) {
		_, there := b.find("50.1.1.2")
		return !there && b.owned() == nil && b.router.State(t.Context()).Admin == NotConfigured, "it is there"
	})
}

func (b *bench) find(a string) (string, bool) {
	b.Helper()
	all, err := hoststack.Addresses()
	if err != nil {
		b.Fatal(err)
	}
	for _, x := range all {
		if x.Prefix.Addr() == addr(a) {
			return x.Device, true
		}
	}
	return "", false
}

// Of IPv6 the host speaks once it has an address there, and it follows more prefixes than
// a limit when it is asked to.
func TestIPv6NeedsAnAddress(t *testing.T) {
	b := newBench(t, "50.1.1.200/32", "fd50::200/128")
	b.in.Settings = settings()
	b.in.Settings.RouterIP6, b.in.Settings.NoBFD = prefix("fd50::2/64"), true
	b.in.Settings.More = []model.BgpRouter{{Address: addr("fd50::200"), AS: 502}}
	b.in.Desired.HostNAT.WithIPv6()
	port(&b.in.Desired, 5, network(1, "blue", model.EncapVLAN))
	b.start()
	r1 := b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{"10.50.0.0/16": "50.1.1.210", "10.60.0.0/16": "50.1.1.210"})
	r6 := b.peer("fd50::200", 502, bgp.Neighbor{}, map[string]string{"fd99::/32": "fd50::210"})
	b.heard(r1, "10.1.1.5/32", "fd01::5/128")
	b.heard(r6, "fd01::5/128")
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210", "10.60.0.0/16": "50.1.1.210", "fd99::/32": "fd50::210"})

	b.set(func(in *Input) { in.Settings.MaxPrefixes = 1 })
	b.problem("BGP session 50.1.1.200", "more than 1 prefixes")
	b.wantRoutes(map[string]string{"fd99::/32": "fd50::210"})
	b.set(func(in *Input) { in.Settings.MaxPrefixes = 2 })
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210", "10.60.0.0/16": "50.1.1.210", "fd99::/32": "fd50::210"})

	// BFD is asked for, of neighbors that have none: sessions are there all the same.
	b.set(func(in *Input) { in.Settings.NoBFD = false })
	b.until("BFD", func() (bool, string) {
		st := b.router.State(t.Context())
		return len(st.Peers) == 2 && st.Peers[0].BFD != "" && st.Peers[0].State == bgp.Established, st.Admin
	})
}

// What a neighbor is asked follows from the settings.
func TestNeighborFollowsTheSettings(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	cfg := speakerConfig(&model.Bgp{RouterIP: prefix("50.1.1.2/24"), AS: hostAS, Neighbor: addr("50.1.1.200"), NeighborAS: routerAS, Default: true}, &hostPrefixes{}, map[string]string{})
	if !cfg.Default || cfg.Neighbors[0].BFD == nil {
		t.Fatalf("%+v", cfg)
	}
	b.in.Settings = settings()
	b.start()
	b.problem("BGP session 50.1.1.200", "none with AS 500")
}

// A process that follows another one takes over what that left: the routers keep what it
// announced, and the kernel what it learned, until they have told all.
func TestRestartTakesRoutesOver(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	b.in.Settings = settings()
	port(&b.in.Desired, 5, network(1, "blue", model.EncapVLAN))
	b.start()
	r := b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{"10.50.0.0/16": "50.1.1.210"})
	want := map[string]string{"10.50.0.0/16": "50.1.1.210"}
	b.heard(r, "10.1.1.5/32")
	b.wantRoutes(want)
	b.stop()
	b.heard(r, "10.1.1.5/32")
	if got := b.routes(); !maps.Equal(got, want) {
		t.Fatalf("routes without netplugin: %v", got)
	}
	if _, there := b.find("50.1.1.2"); !there {
		t.Fatal("the router's address went with the process")
	}
	if err := r.Announce(t.Context(), []bgp.Announcement{{Prefix: prefix("10.51.0.0/16"), NextHop: addr("50.1.1.210"), Tenant: "fabric"}}); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.heard(r, "10.1.1.5/32")
	b.wantRoutes(map[string]string{"10.51.0.0/16": "50.1.1.210"})
	b.stop()
	if err := Remove(t.Context(), b.dir, nil); err != nil {
		t.Fatal(err)
	}
	if _, there := b.find("50.1.1.2"); there || len(b.routes()) > 0 || b.owned() != nil {
		t.Errorf("left: address %t, routes %v, own addresses %v", there, b.routes(), b.owned())
	}
}

// What is asked for wrongly is a sentence, and breaks nothing.
func TestWrongSettingsBreakNothing(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	b.in.Settings = settings()
	b.start()
	r := b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{"10.50.0.0/16": "50.1.1.210"})
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210"})
	silent := func(part string) {
		t.Helper()
		b.problem("BGP", part)
		b.wantRoutes(map[string]string{})
		b.heard(r)
	}
	good := b.in
	b.set(func(in *Input) { in.OtherTenants = []model.HostName{"h0"} })
	silent("host h0 has the same router address")
	b.set(func(in *Input) { *in = good; in.Desired.FwdMode = model.FwdBridge })
	silent("forwarding mode bridge")
	b.set(func(in *Input) { *in = good })
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210"})

	if err := hoststack.PutAddress(hoststack.HostAddr{Device: "peer0", Prefix: prefix("51.1.1.3/24")}); err != nil {
		t.Fatal(err)
	}
	b.set(func(in *Input) { in.Settings.RouterIP = prefix("51.1.1.2/24") })
	silent("is on the network of interface peer0 (51.1.1.3/24), which is not up0")
	b.set(func(in *Input) {
		*in = good
		s := *good.Settings
		s.RouterIP, in.Settings, in.Networks = prefix("53.1.1.2/24"), &s, []netip.Prefix{prefix("53.1.0.0/16")}
	})
	silent("router address 53.1.1.2/24 is on 53.1.0.0/16, a network of containers: it is not added to up0")
	b.set(func(in *Input) { in.Settings.RouterIP = prefix("52.1.1.2/24") })
	b.problem("BGP neighbor 50.1.1.200", "not on the network of routerip, 52.1.1.0/24")
	// Another host may tell of the same addresses.
	b.set(func(in *Input) {
		*in = good
		port(&in.Desired, 5, network(1, "blue", model.EncapVLAN))
		in.VLANs = []model.Network{
			{Key: model.NetworkKey{Tenant: "amber", Name: "apart"}, Subnet: prefix("10.1.2.0/24")},
			{Key: model.NetworkKey{Tenant: "blue", Name: "net"}, Subnet: prefix("10.1.1.0/24")},
			{Key: model.NetworkKey{Tenant: "red", Name: "wide"}, Subnet: prefix("10.1.0.0/22")},
		}
	})
	b.problem("BGP network blue:net", "network red:wide has a subnet in common with it")
	b.heard(r, "10.1.1.5/32")
	b.set(func(in *Input) { *in = good; s := *good.Settings; s.NeighborAS = 9; in.Settings = &s })
	b.problem("BGP session 50.1.1.200", "AS")
	b.set(func(in *Input) { *in = good })
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210"})
}

// Of equal addresses of two tenants the one that was announced stays, else the first by name is.
func TestAnnouncedAddressStays(t *testing.T) {
	h := &hostPrefixes{}
	for _, tenant := range []model.TenantName{"amber", "blue", "blue"} {
		h.add(Input{Settings: settings()}, nil, addr("10.1.1.5"), netip.Addr{}, tenant)
	}
	chosen, owners, refused := h.choose(nil)
	if len(chosen) != 1 || chosen[0].Tenant != "amber" || len(refused) != 2 {
		t.Errorf("first by name: %v, %v", chosen, refused)
	}
	owners[chosen[0].Prefix] = "blue"
	if chosen, _, refused = h.choose(owners); len(chosen) != 1 || chosen[0].Tenant != "blue" || len(refused) != 1 {
		t.Errorf("who had it: %v, %v", chosen, refused)
	}
}
