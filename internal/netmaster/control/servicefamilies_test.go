package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A service has an address of each family of its network, takes others that it
// asks for, and frees what it had, and all when it goes.
func TestServiceHasAnAddressOfEachFamily(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24", "2001:db8::/64"), network("six", "2001:db8:6::/64"))
	has := func(name, want4, want6 string) {
		t.Helper()
		s, _ := c.fresh().Services.Get(svcKey(name))
		if v4, v6 := s.AddrsByFamily(); fmt.Sprint(v4, v6) != want4+" "+want6 {
			t.Errorf("%s has %s and %s, want %s and %s", name, v4, v6, want4, want6)
		}
		checkKinds(t, c)
	}
	wish := func(name, net, ip, ip6 string) model.Service {
		s := service(name, net, ip, "a=b")
		if ip6 != "" {
			s.ReqAddr6 = addr(ip6)
		}
		return s
	}
	c.put(wish("s", "n", "", ""))
	has("s", "10.1.0.1", "2001:db8::1")
	c.put(wish("s", "n", "10.1.0.9", "2001:db8::9"))
	has("s", "10.1.0.9", "2001:db8::9")
	c.put(wish("s", "n", "", "")) // as it is
	has("s", "10.1.0.9", "2001:db8::9")
	c.put(wish("s", "n", "2001:db8::a", "")) // 1.x's field, by itself
	has("s", "10.1.0.9", "2001:db8::a")
	c.put(wish("two", "n", "", "2001:db8::9"))
	has("two", "10.1.0.2", "2001:db8::9")
	c.put(wish("six", "six", "", "2001:db8:6::5"))
	has("six", "invalid IP", "2001:db8:6::5")
	c.put(wish("six", "six", "2001:db8:6::6", "2001:db8:6::6"))
	has("six", "invalid IP", "2001:db8:6::6")
	for part, s := range map[string]model.Service{
		`ipv6Address "2001:db8::9"`:                      wish("x", "n", "", "2001:db8::9"),
		"must lie inside the subnet 2001:db8::/64":       wish("x", "n", "", "2001:db9::1"),
		"must be empty: network default:six has no such": wish("x", "six", "10.1.0.3", ""),
		`"10.1.0.3": must be empty`:                      wish("x", "six", "10.1.0.3", "2001:db8:6::7"),
		`ipv6Address "2001:db8::a"`:                      wish("x", "n", "10.1.0.77", "2001:db8::a"),
		`ipAddress "2001:db8::a"`:                        wish("x", "n", "2001:db8::a", ""),
	} {
		kind := model.ErrInvalid
		if strings.Contains(part, "ddress") {
			kind = model.ErrConflict
		}
		c.refused(kind, part, func() error { return c.try(s) })
	}
	for _, name := range []string{"s", "two", "six"} {
		c.ok(c.remove(svcKey(name)))
	}
	checkKinds(t, c)
	if n := len(c.fresh().Addresses.space(netKey("n")).owners) + len(c.fresh().Addresses.space(netKey("six")).owners); n != 0 {
		t.Errorf("%d addresses are left", n)
	}
}

// Services of before there were two families get the one that they lack from the
// leader; where there is no room others do.
func TestLeaderCompletesServices(t *testing.T) {
	c := newCluster(t)
	c.put(network("a", "10.1.0.0/24", "2001:db8::/126"), network("n", "10.2.0.0/24", "2001:db8:1::/64"), network("four", "10.3.0.0/24"))
	for i := range 3 { // as many as there are
		c.put(service(fmt.Sprint("full", i), "a", "", "a=b"))
	}
	before := service("old", "n", "", "a=b")
	before.Addrs = []netip.Addr{addr("10.2.0.50")}
	six := service("six", "n", "2001:db8:1::5", "a=b") // as 1.x's field gave it
	six.Addrs = []netip.Addr{six.ReqAddr}
	room := service("room", "a", "", "a=b")
	room.Addrs = []netip.Addr{addr("10.1.0.50")}
	if _, err := c.st.Update(t.Context(), func(tx store.Tx) error {
		for _, s := range []model.Service{before, six, room} {
			if err := tables.Addresses.Put(tx, tables.Address{AddressKey: tables.AddressKey{Network: s.Network, Addr: s.Addrs[0]}, Service: s.Key.Name}); err != nil {
				return err
			}
			if err := addReference(tx, tables.TargetNetwork(s.Network), "service", s.Key.String()); err != nil {
				return err
			}
			if err := tables.LoadBalancers.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.put(service("plain", "four", "", "a=b"))
	former := c.leader()
	c.fresh()
	fence := c.leader()
	if err := c.Repair.SweepOnce(t.Context(), former); !errors.Is(err, store.ErrFenced) {
		t.Errorf("one that leads no more: %v", err)
	}
	for range 2 {
		c.ok(c.Repair.SweepOnce(t.Context(), fence))
	}
	v := c.fresh()
	for name, want := range map[string]string{
		"old": "10.2.0.50 2001:db8:1::7", "six": "10.2.0.51 2001:db8:1::5", "room": "10.1.0.50 invalid IP", "plain": "10.3.0.1 invalid IP",
	} {
		s, _ := v.Services.Get(svcKey(name))
		if v4, v6 := s.AddrsByFamily(); fmt.Sprint(v4, v6) != want {
			t.Errorf("%s has %s and %s, want %s", name, v4, v6, want)
		}
	}
	checkKinds(t, c)
}
