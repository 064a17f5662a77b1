package control

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func nativeNetwork(key string, subnets ...string) model.Network {
	n := network(key, subnets...)
	n.Routed = true
	return n
}

// TestPodNetworkIsMadeOnce: it is made once, native, and never changed; what stands in a native
// network's way is named.
func TestPodNetworkIsMadeOnce(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	four, six := netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/64")
	ensure := func(subnets ...netip.Prefix) error { return c.Networks.MakePodNetwork(ctx, Admin(), subnets) }
	c.refused(model.ErrInvalid, "subnet", func() error { return ensure() })
	for range 2 {
		if err := ensure(four, six); err != nil {
			t.Fatal(err)
		}
	}
	n, ok := c.fresh().Networks.Get(PodNetwork)
	if !ok || !n.Routed || n.Encap != model.EncapVXLAN || n.Subnet != four || n.Subnet6 != six {
		t.Errorf("made %+v, %v", n, ok)
	}
	c.refused(model.ErrConflict, "ipv6Subnet", func() error { return ensure(four) })
	c.refused(model.ErrConflict, "native", func() error { return c.try(network("default-net", "10.244.0.0/16", "fd00:10:244::/64")) })

	_, err := c.st.Client().Update(ctx, func(tx store.Tx) error {
		if err := tables.ServiceRanges.Put(tx, model.ServiceRanges{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}); err != nil {
			return err
		}
		return tables.Hosts.Put(tx, model.Host{Name: "h1", Control: netip.MustParseAddr("10.1.0.5"), VTEP: netip.MustParseAddr("10.2.0.5"), IPv6: netip.MustParseAddr("2001:db8::5")})
	})
	if err != nil {
		t.Fatal(err)
	}
	c.fresh() // hosts are looked up in the view
	for subnet, why := range map[string]string{
		"10.1.0.0/16": `10.1.0.5 of host "h1"`, "10.2.0.0/24": `10.2.0.5 of host "h1"`, "2001:db8::/64": `2001:db8::5 of host "h1"`,
		"10.100.0.0/16": "10.96.0.0/12", "10.244.7.0/24": "overlap",
	} {
		c.refused(model.ErrConflict, why, func() error { return c.try(nativeNetwork("x", subnet)) })
	}
	c.refused(model.ErrConflict, `10.1.0.5 of host "h1"`, func() error { return c.try(network("y", "10.1.0.0/16")) })
	c.put(nativeNetwork("z", "10.5.0.0/16"))
	c.refused(model.ErrInvalid, "tenant default alone", func() error {
		_, err := model.Check(nativeNetwork("blue:n", "10.6.0.0/16"))
		return err
	})
	vlan := nativeNetwork("v", "10.6.0.0/16")
	vlan.Encap = model.EncapVLAN
	c.refused(model.ErrInvalid, "encap vxlan alone", func() error {
		_, err := model.Check(vlan)
		return err
	})
}
