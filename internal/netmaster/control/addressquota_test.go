package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestHostReservesOnlyItsShare: one host cannot use up a network's addresses by reserving
// them, whichever it asks for; what it attaches or gives back counts no more, and other
// hosts get theirs.
func TestHostReservesOnlyItsShare(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	n := model.NetworkKey{Tenant: "blue", Name: "net"}
	c.put(model.Tenant{Name: "blue"}, network("blue:net", "10.1.1.0/24"))
	var got []netip.Addr
	reserve := func(h model.HostName, preferred netip.Addr) error {
		a, _, err := c.Addresses.AllocAddress(ctx, Admin(), AddressRequest{Network: n, Host: h, Preferred: preferred})
		if err == nil {
			got = append(got, a)
		}
		c.fresh()
		return err
	}
	for i := range 32 {
		if err := reserve("h1", netip.Addr{}); err != nil {
			t.Fatalf("address %d: %v", i, err)
		}
	}
	refused := func(when string) {
		t.Helper()
		for _, preferred := range []netip.Addr{{}, addr("10.1.1.200")} {
			if err := reserve("h1", preferred); !errors.Is(err, model.ErrExhausted) || !strings.Contains(err.Error(), "reserved without an endpoint") {
				t.Errorf("%s, asked for %v: %v", when, preferred, err)
			}
		}
	}
	refused("its share is reserved")
	if c.Addresses.OverQuota() != 2 {
		t.Errorf("%d refusals are counted", c.Addresses.OverQuota())
	}
	if err := reserve("h2", netip.Addr{}); err != nil {
		t.Errorf("another host: %v", err)
	}
	valid, err := model.Check(model.Endpoint{Key: model.EndpointKey{Network: n, ID: "c1"}, Host: "h1", IPv4: got[0]})
	if err == nil {
		_, _, err = c.Endpoints.CreateEndpoint(ctx, Admin(), valid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := err2(c.Addresses.ReleaseAddress(ctx, Admin(), n, got[1])); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	for i := range 2 {
		if err := reserve("h1", netip.Addr{}); err != nil {
			t.Error(fmt.Sprint("after one was attached and one given back: ", i), err)
		}
	}
	refused("again")
}

// TestHostEmptiesNoPoolByReservations: whatever a host reserves, and also where it says that
// endpoints of any host may take the addresses, it leaves others as many as it has, of small
// networks, ranges and groups' pools too. A network's last address it can have.
func TestHostEmptiesNoPoolByReservations(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	ranged := network("blue:ranged", "10.4.0.0/16")
	ranged.Range = model.AddrRange{First: addr("10.4.0.10"), Last: addr("10.4.0.29")}
	group := pooled("blue:web", "large", "10.2.0.100-10.2.0.107")
	one := network("blue:one", "10.5.0.0/16")
	one.Range = model.AddrRange{First: addr("10.5.0.9"), Last: addr("10.5.0.9")}
	c.put(model.Tenant{Name: "blue"}, network("blue:small", "10.1.0.0/28"), network("blue:large", "10.2.0.0/19"), network("blue:vast", "10.6.0.0/18"), ranged, one, group)
	for _, test := range []struct {
		network, group string
		any            bool
		want           int
	}{
		{"small", "", false, 7},
		{"ranged", "", false, 10},
		{"large", "web", false, 4},
		{"one", "", false, 1},
		{"large", "", false, 256},
		{"small", "", true, 4},
		{"ranged", "", true, 5},
		{"large", "web", true, 2},
		{"vast", "", true, 4096},
	} {
		h := model.HostName("h1")
		if test.any {
			h = "h2"
		}
		r := AddressRequest{Network: netKey("blue:" + test.network), Group: model.GroupName(test.group), Host: h, AnyHost: test.any}
		got := 0
		var err error
		for ; err == nil && got <= test.want; got++ {
			_, _, err = c.Addresses.AllocAddress(ctx, Admin(), r)
			c.fresh()
		}
		if got--; got != test.want || !errors.Is(err, model.ErrExhausted) {
			t.Errorf("%+v: it gets %d, %v", test, got, err)
		}
	}
}
