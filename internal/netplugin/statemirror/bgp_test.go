package statemirror

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A host goes by its own settings, and gives way to hosts before it by name that have the
// same router address.
func TestHostUsesItsOwnBGPSettings(t *testing.T) {
	hosts := newHostTable(Config{Host: "h2", StateDir: t.TempDir()})
	put := func(h model.HostName, ip string) {
		hosts.bgps[tables.BgpKey{Host: h}] = model.Bgp{Host: h, RouterIP: netip.MustParsePrefix(ip)}
	}
	put("h1", "50.1.1.1/24")
	if own, rivals := hosts.Bgp(); own != nil || rivals != nil {
		t.Errorf("without settings: %v, %v", own, rivals)
	}
	put("h2", "50.1.1.2/24")
	put("h3", "50.1.1.2/24")
	if own, rivals := hosts.Bgp(); own == nil || own.Host != "h2" || len(rivals) > 0 {
		t.Errorf("its own: %v, %v", own, rivals)
	}
	put("h1", "50.1.1.2/25")
	if _, rivals := hosts.Bgp(); !slices.Equal(rivals, []model.HostName{"h1"}) {
		t.Errorf("rivals %v", rivals)
	}
	b := hosts.bgps[tables.BgpKey{Host: "h3"}]
	b.RouterIP, b.Neighbor = netip.MustParsePrefix("10.61.0.3/24"), netip.MustParseAddr("10.62.0.1")
	hosts.bgps[tables.BgpKey{Host: "h3"}] = b
	var want []netip.Prefix
	for _, p := range []string{"10.61.0.0/24", "10.62.0.1/32", "50.1.1.0/24", "50.1.1.0/25"} {
		want = append(want, netip.MustParsePrefix(p))
	}
	if got := hosts.Routers(); !slices.Equal(got, want) {
		t.Errorf("networks of routers: %v", got)
	}
}

// A host that speaks BGP knows the subnets of all tenants' networks, whatever it has of
// them, in its first desired state already, and of ones that come later; without settings it
// knows none of tenants that it has nothing of.
func TestSpeakerKnowsAllSubnets(t *testing.T) {
	st := memory.New()
	network := func(tenant model.TenantName, id model.NetworkID, subnet string) func(store.Tx) error {
		return func(tx store.Tx) error {
			if err := tables.Tenants.Put(tx, model.Tenant{Name: tenant, Router: model.RouterID(id)}); err != nil {
				return err
			}
			k := model.NetworkKey{Tenant: tenant, Name: "net"}
			return tables.Networks.Put(tx, model.Network{Key: k, ID: id, Encap: model.EncapVXLAN, Tag: uint32(id), Subnet: netip.MustParsePrefix(subnet)})
		}
	}
	put(t, st, func(tx store.Tx) error { return tables.Globals.Put(tx, model.Global{FwdMode: model.FwdRouting}) })
	put(t, st, network("strange", 7, "10.7.0.0/16"))
	settings := model.Bgp{Host: "h1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 65002}
	c := newCluster(t, st)
	put(t, st, func(tx store.Tx) error { return tables.Bgps.Put(tx, settings) })
	follow(t, c)
	known := func(c *State, what string, want ...string) {
		t.Helper()
		until(t, c, what, func() error {
			var got []string
			for _, p := range c.mirrors.subnets() {
				got = append(got, p.String())
			}
			if slices.Sort(got); c.Guard.entered() && !slices.Equal(got, want) {
				return fmt.Errorf("known: %v", got)
			}
			if !c.Guard.entered() {
				return errors.New("no desired state yet")
			}
			return nil
		})
	}
	first := true
	until(t, c, "the first desired state", func() error {
		if !c.Guard.entered() {
			return errors.New("no desired state yet")
		}
		if got := c.mirrors.subnets(); first && len(got) != 1 {
			t.Errorf("the first desired state comes with %v", got)
		}
		first = false
		return nil
	})
	put(t, st, network("later", 8, "10.8.0.0/16"))
	known(c, "of a later tenant", "10.7.0.0/16", "10.8.0.0/16")
	put(t, st, func(tx store.Tx) error {
		tables.Bgps.Delete(tx, tables.BgpKey{Host: c.Host})
		return nil
	})
	until(t, c, "no settings", func() error {
		if len(c.Hosts.bgps) > 0 && c.Hosts.bgps[tables.BgpKey{Host: c.Host}].AS != 0 {
			return errors.New("still there")
		}
		return nil
	})
	c.dropUnused(time.Now().Add(time.Hour), time.Minute)
	known(c, "without settings")

	other := newCluster(t, st)
	follow(t, other)
	known(other, "of a host that never had any")
	put(t, st, func(tx store.Tx) error { return tables.Bgps.Put(tx, settings) })
	known(other, "with settings that come later", "10.7.0.0/16", "10.8.0.0/16")
}

// Only a host with settings of its own leads who comes from outside to its own providers.
func TestSpeakersPreferTheirOwnProviders(t *testing.T) {
	st := memory.New()
	k := model.NetworkKey{Tenant: model.DefaultTenant, Name: "net"}
	put(t, st, func(tx store.Tx) error {
		return errors.Join(
			tables.Globals.Put(tx, model.Global{FwdMode: model.FwdRouting}),
			tables.Tenants.Put(tx, model.Tenant{Name: k.Tenant, Router: 7}),
			tables.Networks.Put(tx, model.Network{Key: k, ID: 7, Encap: model.EncapVXLAN, Tag: 7, Subnet: netip.MustParsePrefix("10.7.0.0/16")}),
			tables.LoadBalancers.Put(tx, model.Service{
				Key: model.ServiceKey{Tenant: k.Tenant, Name: "shop"}, Network: k, Addrs: []netip.Addr{netip.MustParseAddr("10.7.0.9")},
				Selectors: []model.ServiceSelector{{Key: "of", Value: "shop"}}, Ports: []model.ServicePort{{Port: 80, Target: 8080, Protocol: model.ProtoTCP}},
			}))
	})
	c := newCluster(t, st)
	follow(t, c)
	c.AcquireTenant(k.Tenant)
	defer c.ReleaseTenant(k.Tenant)
	near := func(what string, want desired.TrafficPolicy) {
		t.Helper()
		until(t, c, what, func() error {
			if !c.Guard.entered() {
				return errors.New("no desired state yet")
			}
			pic, _ := c.comp.Compile(int64(c.mirrors.rev))
			for _, s := range pic.Services.All() {
				if s.ExternalPolicy == want {
					return nil
				}
				return fmt.Errorf("leads to %d, want %d", s.ExternalPolicy, want)
			}
			return errors.New("no service")
		})
	}
	near("no settings", desired.TrafficCluster)
	set := func(h model.HostName, last string) {
		put(t, st, func(tx store.Tx) error {
			return tables.Bgps.Put(tx, model.Bgp{Host: h, RouterIP: netip.MustParsePrefix("50.1.1." + last + "/24"), AS: 65002})
		})
	}
	set("h9", "9")
	until(t, c, "another host's settings", func() error {
		if len(c.Hosts.bgps) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	near("another host's settings", desired.TrafficCluster)
	set(c.Host, "2")
	near("settings", desired.TrafficNearest)
	put(t, st, func(tx store.Tx) error {
		tables.Bgps.Delete(tx, tables.BgpKey{Host: c.Host})
		return nil
	})
	near("no settings any more", desired.TrafficCluster)
}
