package control

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// from is a report by a host's certificate.
func from(at string, certified ...string) Actor {
	o := Origin{From: netip.MustParseAddr(at)}
	for _, a := range certified {
		o.Certified = append(o.Certified, netip.MustParseAddr(a))
	}
	return Agent("").From(o)
}

// TestHostReportsOnlyItsEnrolledAddresses: with a host's certificate one makes no other
// address count as the host's: not as control, tunnel or IPv6 address, nor as one that
// containers are kept from. An address counts once the connection comes from it, or an
// administrator added it.
func TestHostReportsOnlyItsEnrolledAddresses(t *testing.T) {
	c := newCluster(t)
	st, ctx := c.st, testContext(t)
	r := reportOf("h1", "i1")
	mine := from("10.0.0.1", "10.1.0.1", "127.0.0.1")
	k, err := c.HostLeases.RenewHost(ctx, mine, r)
	if err != nil || !strings.Contains(k.Enrolled, "10.0.0.1, 10.1.0.1") {
		t.Fatalf("enrolment: %+v, %v", k, err)
	}
	refuses := func(what, says string, by Actor, change func(*HostReport)) {
		t.Helper()
		bad := r
		change(&bad)
		_, err := c.HostLeases.RenewHost(ctx, by, bad)
		if taken, ok := errors.AsType[LeaseTakenError](err); !ok || !strings.Contains(taken.Text, says) || strings.Contains(taken.Text, "netctl host address-add h1") == strings.Contains(says, "network") {
			t.Errorf("%s: %v, want a refusal that says %q", what, err, says)
		}
	}
	// mayReplace takes a change of the control or tunnel address for a copy of the machine
	// while the claim stands.
	leave := func() {
		t.Helper()
		if err := c.HostLeases.ReleaseHost(ctx, Admin(), "h1", "i1"); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	stranger := addr("198.51.100.7")
	refuses("control", "is not enrolled", mine, func(r *HostReport) { r.Control = stranger })
	refuses("tunnel", "is not enrolled", mine, func(r *HostReport) { r.VTEP = stranger })
	refuses("certified later", "is not enrolled", from("10.0.0.1", "198.51.100.7"), func(r *HostReport) { r.VTEP = stranger })

	r.IPv6 = addr("2001:db8::7")
	r.Listening = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:9090"), netip.MustParseAddrPort("198.51.100.7:443"), netip.MustParseAddrPort("10.1.0.1:9090")}
	if _, err := c.HostLeases.RenewHost(ctx, mine, r); err != nil {
		t.Fatal(err)
	}
	has(t, st, "h1", "claim", "record", "netplugin.vtep@10.1.0.1:4789/10", "contiv.listen@10.0.0.1:9090/10", "contiv.listen@10.1.0.1:9090/10")
	kv, err := st.Get(ctx, tables.Hosts.Key("h1"))
	if err != nil {
		t.Fatal(err)
	}
	if row, err := tables.Hosts.Decode(kv); err != nil || row.Value.IPv6.IsValid() {
		t.Errorf("an IPv6 address that nobody enrolled counts: %+v, %v", row.Value, err)
	}

	// The connection proves a new address, unless it is somebody's.
	leave()
	c.put(network("default:net", "10.50.0.0/16"))
	other := reportOf("h2", "i2")
	other.Control, other.VTEP, other.Listening = addr("10.0.0.2"), addr("10.0.0.2"), nil
	if _, err := c.HostLeases.RenewHost(ctx, from("10.0.0.2"), other); err != nil {
		t.Fatal(err)
	}
	master := cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.0.0.9", Port: 9999}
	if _, err := st.Update(ctx, func(tx store.Tx) error { return master.Put(tx, nil) }); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	for at, says := range map[string]string{"10.50.0.5": "lies in network default:net: give the host an address outside of network default:net, or delete the network", "10.0.0.2": "is the address of host h2", "10.0.0.9": "is the address of a netmaster"} {
		refuses(at, says, from(at), func(r *HostReport) { r.Control = addr(at) })
	}
	moved := r
	moved.Control = addr("10.0.0.7")
	if k, err := c.HostLeases.RenewHost(ctx, from("10.0.0.7"), moved); err != nil || k.Enrolled != "enrolled address 10.0.0.7" {
		t.Errorf("the address that the connection comes from: %+v, %v", k, err)
	}

	// An administrator's word counts.
	leave()
	if _, _, err := c.HostLeases.SetHostAddress(ctx, Admin(), "h1", addr("10.50.0.5"), true); !errors.Is(err, model.ErrConflict) {
		t.Errorf("an address within a network was added: %v", err)
	}
	h, _, err := c.HostLeases.SetHostAddress(ctx, Admin(), "h1", stranger, true)
	if err != nil || !h.Addresses.Has(stranger) {
		t.Fatalf("%+v, %v", h.Addresses, err)
	}
	moved.VTEP = stranger
	if _, err := c.HostLeases.RenewHost(ctx, from("10.0.0.7"), moved); err != nil {
		t.Error(err)
	}
	if _, _, err := c.HostLeases.SetHostAddress(ctx, Admin(), "h1", stranger, false); err != nil {
		t.Error(err)
	}
	moved.Look = true
	if _, err := c.HostLeases.RenewHost(ctx, from("10.0.0.7"), moved); !errors.As(err, new(LeaseTakenError)) {
		t.Errorf("an address that was taken away counts still: %v", err)
	}
}

// TestTenantNetworkKeepsNoHostOut: a host joins though a tenant administrator has made a network
// around its address, unless hosts may have a route to that network.
func TestTenantNetworkKeepsNoHostOut(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(model.Tenant{Name: "blue"})
	joins := func(host, at string) error {
		r := reportOf(model.HostName(host), "i-"+host)
		r.Control, r.VTEP, r.Listening = addr(at), addr(at), nil
		_, err := c.HostLeases.RenewHost(ctx, from(at), r)
		return err
	}
	create := func(by Actor, key, subnet string) {
		t.Helper()
		valid, err := model.Check(network(key, subnet))
		if err == nil {
			_, err = c.Put(ctx, by, c.Networks.ChangeNetwork(valid))
		}
		if err != nil {
			t.Fatal(err)
		}
		c.fresh()
	}
	create(TenantAdmin("blue"), "blue:t", "10.60.0.0/24")
	if err := joins("h1", "10.60.0.5"); err != nil {
		t.Errorf("a host in a tenant administrator's network: %v", err)
	}
	create(Admin(), "blue:c", "10.61.0.0/24")
	if err := joins("h2", "10.61.0.5"); !errors.As(err, new(LeaseTakenError)) {
		t.Errorf("a host in a cluster administrator's network: %v", err)
	}
}

// TestHostNamesDifferByMoreThanCase: a host does not join under the name of another one in
// other letters; one that is known already goes on.
func TestHostNamesDifferByMoreThanCase(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), reportOf("Node-A", "i1")); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	other := reportOf("node-a", "i2")
	other.Control, other.VTEP = addr("10.0.0.2"), addr("10.1.0.2")
	_, err := c.HostLeases.RenewHost(ctx, Admin(), other)
	if taken, ok := errors.AsType[LeaseTakenError](err); !ok || !strings.Contains(taken.Text, `host "Node-A"`) || !strings.Contains(taken.Text, "--host") {
		t.Errorf("node-a beside Node-A: %v", err)
	}
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), reportOf("Node-A", "i1")); err != nil {
		t.Errorf("Node-A itself: %v", err)
	}
}
