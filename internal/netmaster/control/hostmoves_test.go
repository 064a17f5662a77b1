package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// certifiedHosts are hosts that report themselves with their certificates.
type certifiedHosts struct {
	*harness
	ctx context.Context
}

func newCertifiedHosts(t *testing.T) *certifiedHosts {
	t.Helper()
	return &certifiedHosts{harness: newCluster(t), ctx: testContext(t)}
}

// at is a report of a host with one address for all.
func (c *certifiedHosts) at(host, address string) HostReport {
	r := reportOf(model.HostName(host), "i-"+host)
	r.Control, r.VTEP, r.Listening = addr(address), addr(address), nil
	return r
}

// reports sends a report of an agent that has just started.
func (c *certifiedHosts) reports(by Actor, r HostReport) error {
	c.t.Helper()
	if err := c.HostLeases.ReleaseHost(c.ctx, Admin(), r.Name, r.Installation); err != nil {
		c.t.Fatal(err)
	}
	_, err := c.HostLeases.RenewHost(c.ctx, by, r)
	c.fresh()
	return err
}

func (c *certifiedHosts) takes(what string, by Actor, r HostReport) {
	c.t.Helper()
	if err := c.reports(by, r); err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
}

// refuses wants a refusal that says something.
func (c *certifiedHosts) refuses(what, says string, by Actor, r HostReport) {
	c.t.Helper()
	err := c.reports(by, r)
	if taken, ok := errors.AsType[LeaseTakenError](err); !ok || !strings.Contains(taken.Text, says) {
		c.t.Errorf("%s: %v, want a refusal that says %q", what, err, says)
	}
}

// enrolled are the addresses that count as a host's.
func (c *certifiedHosts) enrolled(host model.HostName) []netip.Addr {
	c.t.Helper()
	h, err := c.Hosts.Get(c.ctx, Admin(), host)
	if err != nil {
		c.t.Fatal(err)
	}
	return h.Addresses.Enrolled
}

func (c *certifiedHosts) netmasterAt(address string) {
	c.t.Helper()
	s := cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: address, Port: 9999}
	if _, err := c.st.Update(c.ctx, func(tx store.Tx) error { return s.Put(tx, nil) }); err != nil {
		c.t.Fatal(err)
	}
}

// TestAddressCountsNoMoreOnceAHostHasMoved: an address that a host had before is another
// machine's by now, so it counts only if it proves it again, and all checks are made again.
func TestAddressCountsNoMoreOnceAHostHasMoved(t *testing.T) {
	for what, change := range map[string]func(*HostReport, netip.Addr){
		"control": func(r *HostReport, a netip.Addr) { r.Control = a },
		"tunnel":  func(r *HostReport, a netip.Addr) { r.VTEP = a },
	} {
		for _, on := range [][2]string{{"10.0.0.1", "10.0.0.7"}, {"2001:db8::1", "2001:db8::7"}} {
			one, seven := on[0], on[1]
			t.Run(what+" "+one, func(t *testing.T) {
				c := newCertifiedHosts(t)
				c.takes("at first", from(one, one), c.at("h1", one))
				c.takes("moved", from(seven), c.at("h1", seven))
				if now := c.enrolled("h1"); !slices.Equal(now, []netip.Addr{addr(seven)}) {
					t.Errorf("what counts once it has moved: %v", now)
				}
				previous := c.at("h1", seven)
				change(&previous, addr(one))
				c.refuses("not its own any more", "is not enrolled", from(seven, one), previous)
				previous = c.at("h1", seven)
				previous.Listening = []netip.AddrPort{netip.AddrPortFrom(addr(one), 443)}
				c.takes("listening", from(seven), previous)
				if listed, err := cluster.Services(c.ctx, c.st, cluster.ListenService); err != nil || len(listed) > 0 {
					t.Errorf("others refuse their containers %v, %v", listed, err)
				}
				c.takes("moved back", from(one), c.at("h1", one))
				c.takes("moved again", from(seven), c.at("h1", seven))
				c.netmasterAt(one)
				c.refuses("a netmaster's by now", "is the address of a netmaster", from(one), c.at("h1", one))
			})
		}
	}
}

// TestIPv6AddressThatReturnsIsChecked: an IPv6 address that was missing for a while counts
// again, unless it is within a network or another host's by then.
func TestIPv6AddressThatReturnsIsChecked(t *testing.T) {
	c := newCertifiedHosts(t)
	mine, six := from("10.0.0.1", "2001:db8::1"), addr("2001:db8::1")
	without := c.at("h1", "10.0.0.1")
	with := without
	with.IPv6 = six
	with.Listening = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:443")}
	counts := func(what string, want bool) {
		t.Helper()
		c.takes(what, mine, with)
		h, err := c.Hosts.Get(c.ctx, Admin(), "h1")
		if err != nil {
			t.Fatal(err)
		}
		listed, err := cluster.Services(c.ctx, c.st, cluster.ListenService)
		if err != nil {
			t.Fatal(err)
		}
		if (h.IPv6 == six) != want || (len(listed) == 1) != want {
			t.Errorf("%s: IPv6 address %v, listening %v", what, h.IPv6, listed)
		}
	}
	counts("at first", true)
	c.takes("without", mine, without)
	counts("it returns", true)
	c.takes("without", mine, without)
	c.put(network("default:six", "10.60.0.0/24", "2001:db8::/64"))
	c.fresh()
	counts("within a network by now", false)
	if err := err2(c.Delete(c.ctx, Admin(), c.Networks.DeleteNetwork(netKey("default:six")))); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	counts("the network is gone", true)

	c.takes("without", mine, without)
	other := c.at("h2", "10.0.0.2")
	other.IPv6 = six
	c.takes("another host has it now", from("10.0.0.2", "2001:db8::1"), other)
	if now := c.enrolled("h1"); slices.Contains(now, six) {
		t.Errorf("the old host keeps it too: %v", now)
	}
	counts("another host's by now", false)

	// One that another has replaced does not count any more.
	proved := with
	proved.IPv6 = addr("2001:db8::9")
	c.takes("by IPv6", from("2001:db8::9"), proved)
	proved.IPv6 = addr("2001:db8::8")
	c.takes("by another one", from("2001:db8::8"), proved)
	if now := c.enrolled("h1"); !slices.Equal(now, []netip.Addr{addr("10.0.0.1"), addr("2001:db8::8")}) {
		t.Errorf("what counts once it has another IPv6 address: %v", now)
	}
}

// TestRemovedAddressStaysRemoved: when an administrator removes the only address of a host, the
// certificate's addresses do not count as at a first report.
func TestRemovedAddressStaysRemoved(t *testing.T) {
	c := newCertifiedHosts(t)
	mine := from("10.9.9.9", "10.0.0.1")
	c.takes("at first", mine, c.at("h1", "10.0.0.1"))
	if _, _, err := c.HostLeases.SetHostAddress(c.ctx, Admin(), "h1", addr("10.0.0.1"), false); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	c.refuses("certified", "is not enrolled", mine, c.at("h1", "10.0.0.1"))
	c.netmasterAt("10.9.9.9")
	c.refuses("a netmaster's", "is the address of a netmaster", mine, c.at("h1", "10.9.9.9"))
}

// TestLastAddressThatAnotherHostTakesStaysRemoved: a host whose only address has become
// another's is not taken for one that reports for the first time.
func TestLastAddressThatAnotherHostTakesStaysRemoved(t *testing.T) {
	c := newCertifiedHosts(t)
	mine := from("10.9.9.9", "2001:db8::1", "10.0.0.1")
	local := c.at("h1", "127.0.0.1")
	local.IPv6 = addr("2001:db8::1")
	c.takes("at first", mine, local)
	local.IPv6 = netip.Addr{}
	c.takes("without IPv6", mine, local)
	other := c.at("h2", "10.0.0.2")
	other.IPv6 = addr("2001:db8::1")
	c.takes("another host", from("10.0.0.2", "2001:db8::1"), other)
	c.refuses("certified", "is not enrolled", mine, c.at("h1", "10.0.0.1"))
}

// TestAddressOfSomebodyElseIsRefused: the address that the connection comes from does not count
// if an administrator added it to another host, or if it is reserved.
func TestAddressOfSomebodyElseIsRefused(t *testing.T) {
	c := newCertifiedHosts(t)
	c.takes("h1", from("10.0.0.1"), c.at("h1", "10.0.0.1"))
	c.takes("h2", from("10.0.0.2"), c.at("h2", "10.0.0.2"))
	if _, _, err := c.HostLeases.SetHostAddress(c.ctx, Admin(), "h1", addr("10.0.0.5"), true); err != nil {
		t.Fatal(err)
	}
	c.Kubernetes.Reserve(map[netip.Addr]string{addr("10.0.0.6"): "is the address of the store"})
	c.fresh()
	c.refuses("added to another host", "was added to host h1", from("10.0.0.5"), c.at("h2", "10.0.0.5"))
	c.refuses("reserved", "is the address of the store", from("10.0.0.6"), c.at("h2", "10.0.0.6"))
}

// TestLeaseIsNotReplacedFromAnotherAddress: while an agent is alive, one with the same
// installation, which reports another control or tunnel address, is a copy of the machine.
func TestLeaseIsNotReplacedFromAnotherAddress(t *testing.T) {
	for what, change := range map[string]func(*HostReport){
		"control": func(r *HostReport) { r.Control = addr("10.0.0.2") },
		"tunnel":  func(r *HostReport) { r.VTEP = addr("10.1.0.2") },
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t)
			r := reportOf("h1", "i1")
			if _, err := c.HostLeases.RenewHost(testContext(t), Admin(), r); err != nil {
				t.Fatal(err)
			}
			change(&r)
			_, err := c.HostLeases.RenewHost(testContext(t), Admin(), r)
			if taken, ok := errors.AsType[LeaseTakenError](err); !ok || !strings.Contains(taken.Text, "is alive at 10.0.0.1") {
				t.Errorf("%v", err)
			}
		})
	}
}
