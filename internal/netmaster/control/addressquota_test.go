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
		a, err := c.Addresses.AllocAddress(ctx, AddressRequest{Network: n, Host: h, Preferred: preferred})
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
	if err := c.Addresses.ReleaseAddress(ctx, Admin(), n, got[1]); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	for i := range 2 {
		if err := reserve("h1", netip.Addr{}); err != nil {
			t.Error(fmt.Sprint("after one was attached and one given back: ", i), err)
		}
	}
	refused("again")
	// A swarm's manager reserves for all hosts.
	manager := AddressRequest{Network: n, Host: "h3", AnyHost: true}
	for i := range 128 {
		if _, err := c.Addresses.AllocAddress(ctx, manager); err != nil {
			t.Fatalf("address %d of a manager: %v", i, err)
		}
		c.fresh()
	}
	if _, err := c.Addresses.AllocAddress(ctx, manager); !errors.Is(err, model.ErrExhausted) {
		t.Errorf("a manager has half of the network, and gets more: %v", err)
	}
}
