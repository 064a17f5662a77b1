package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestInfraInterfaceStaysUntilItsNetworkGoes: the host's own endpoint on an infra network keeps its address when the
// journal is lost, and when its endpoint is taken from the store (an eviction); it goes
// with the network, and with netplugin when that is uninstalled.
func TestInfraInterfaceStaysUntilItsNetworkGoes(t *testing.T) {
	b := newBed(t, often)
	b.network("blue", "stor", 9)
	key := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "stor"}, ID: model.HostEndpoint(testHost)}
	infra := func(names ...model.NetworkName) {
		t.Helper()
		b.put(func(tx store.Tx) error {
			return tables.Tenants.Put(tx, model.Tenant{Name: "blue", DefaultNetwork: "net1", Infra: names})
		})
	}
	// The lowest address has another owner when the host comes, and none later: a new
	// request for an endpoint would get it.
	lowest := model.Endpoint{
		Key: model.EndpointKey{Network: key.Network, ID: "elsewhere"}, Host: "h9", Identity: model.IdentityFirst, IPv4: netip.MustParseAddr("10.1.9.1"),
	}
	lowest.MAC = model.EndpointMAC(key.Network, lowest.IPv4, lowest.IPv6)
	b.put(func(tx store.Tx) error { return tables.Endpoints.Put(tx, lowest) })
	infra("stor")
	b.ready()
	stands := func(when string, want netip.Addr) (is netip.Addr) {
		t.Helper()
		b.eventually(when+": the host's interface", func() error {
			var ep model.Endpoint
			for _, e := range b.endpoints() {
				if e.Key == key {
					ep = e
				}
			}
			l, err := netlink.LinkByName("stor")
			if err != nil {
				return err
			}
			addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
			if err != nil || len(addrs) != 1 {
				return fmt.Errorf("addresses %v: %w", addrs, errors.Join(err, errors.New("one is wanted")))
			}
			is, _ = netip.AddrFromSlice(addrs[0].IP.To4())
			if is != ep.IPv4 || want.IsValid() && is != want {
				return fmt.Errorf("it has %s, the endpoint %s, want %s", is, ep.IPv4, want)
			}
			var e attachment.Entry // which a stop in the middle of an attachment undoes
			data, err := os.ReadFile(b.agent.Attachments.File(attach.Key{Container: "infra/blue:stor", IfName: "stor"}))
			if err == nil {
				err = json.Unmarshal(data, &e)
			}
			if err == nil && e.State != attachment.StateDone {
				err = fmt.Errorf("entry: %+v", e)
			}
			return err
		})
		return is
	}
	gone := func(when string) {
		t.Helper()
		b.eventually(when+": no interface of the host's", func() error {
			if l, err := netlink.LinkByName("stor"); err == nil {
				return fmt.Errorf("there is %s", l.Attrs().Name)
			}
			return nil
		})
	}
	first := stands("at first", netip.Addr{})
	if first == lowest.IPv4 {
		t.Fatalf("the host got %s", first)
	}
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, lowest.Key); return nil })

	b.stop()
	if err := os.RemoveAll(attachment.JournalDir(b.cfg.StateDir)); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	stands("without a journal", first)
	l, err := netlink.LinkByName("stor")
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	stands("somebody has deleted the interface", first)

	subnet := &net.IPNet{IP: net.IPv4(10, 1, 9, 0).To4(), Mask: net.CIDRMask(24, 32)}
	routed := func(when string) {
		t.Helper()
		b.eventually(when+": the route to the subnet", func() error {
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: subnet}, netlink.RT_FILTER_DST)
			if err == nil && len(routes) == 0 {
				return errors.New("there is none")
			}
			return err
		})
	}
	routed("made again")
	if err := netlink.RouteDel(&netlink.Route{Dst: subnet, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatal(err)
	}
	routed("somebody has deleted it")
	stands("somebody has deleted its route", first)

	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, key); return nil })
	stands("evicted", first)

	infra()
	gone("another type")
	infra("stor")
	stands("and again", netip.Addr{})
	b.stop()
	h, err := TakeIdle(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	if n, err := h.LeaveInfra(); n != 1 || err != nil {
		t.Errorf("uninstalled: %d interfaces, %v", n, err)
	}
	gone("uninstalled")
}

// TestHostKeepsItsWayToTheCluster: a host makes no interface on an infra network whose
// subnet holds an address that it has to reach by its own routes, and takes away one that
// it has when such an address appears; its status says why.
func TestHostKeepsItsWayToTheCluster(t *testing.T) {
	b := newBed(t, often)
	b.network("blue", "stor", 9)
	b.put(func(tx store.Tx) error {
		return tables.Tenants.Put(tx, model.Tenant{Name: "blue", DefaultNetwork: "net1", Infra: []model.NetworkName{"stor"}})
	})
	b.ready()
	interfaces := func(want bool) {
		t.Helper()
		b.eventually(fmt.Sprintf("the host's interface, wanted: %v", want), func() error {
			if _, err := netlink.LinkByName("stor"); (err == nil) != want {
				return fmt.Errorf("found: %w", errors.Join(err, errors.New("otherwise wanted")))
			}
			return nil
		})
	}
	interfaces(true)
	peer := model.Host{Name: "h9", Control: netip.MustParseAddr("10.1.9.77"), VTEP: netip.MustParseAddr("10.1.9.77")}
	b.put(func(tx store.Tx) error { return tables.Hosts.Put(tx, peer) })
	interfaces(false)
	b.eventually("the host's status", func() error {
		for _, p := range b.agent.Attachments.Problems() {
			if strings.Contains(p.Text, "10.1.9.77") && p.Object == "infra network blue:stor" {
				return nil
			}
		}
		return errors.New("nothing says why")
	})
	b.put(func(tx store.Tx) error { tables.Hosts.Delete(tx, "h9"); return nil })
	interfaces(true)

	// A gateway to netmasters on the network itself, which the host reaches by its interface
	// there, is no reason to take that away; one that it reaches otherwise is.
	master := netip.MustParseAddr("198.51.100.77")
	b.put(func(tx store.Tx) error {
		return cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: master.String(), Port: 9999}.Keep(tx)
	})
	b.eventually("the netmaster is known", func() error {
		if !slices.Contains(b.agent.mirror.control.ReachabilityAddresses(), master) {
			return errors.New("it is not")
		}
		return nil
	})
	for _, device := range []string{"stor", "lo"} {
		endangered := device == "lo"
		l, err := netlink.LinkByName(device)
		if err != nil {
			t.Fatal(err)
		}
		to := &net.IPNet{IP: master.AsSlice(), Mask: net.CIDRMask(32, 32)}
		gateway := net.IPv4(10, 1, 9, 200)
		direct := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: gateway.To4(), Mask: to.Mask}, Scope: netlink.SCOPE_LINK}
		by := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Gw: gateway}
		if err := errors.Join(netlink.RouteAdd(direct), netlink.RouteAdd(by)); err != nil {
			t.Fatalf("%s: %v", device, err)
		}
		if why := b.agent.mirror.cluster.Endangers(model.NetworkKey{Tenant: "blue", Name: "stor"}); (why != "") != endangered {
			t.Errorf("the gateway is reached by %s, and the network endangers %q", device, why)
		}
		if err := errors.Join(netlink.RouteDel(by), netlink.RouteDel(direct)); err != nil {
			t.Errorf("%s: %v", device, err)
		}
	}
	b.put(func(tx store.Tx) error {
		cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: master.String(), Port: 9999}.Delete(tx)
		return nil
	})
	interfaces(true)

	// One that is taken back stays down until it is applied again.
	k := model.NetworkKey{Tenant: "blue", Name: "stor"}
	up := func(want bool) {
		t.Helper()
		b.eventually(fmt.Sprintf("the interface is up: %v", want), func() error {
			l, err := netlink.LinkByName("stor")
			if err == nil && (l.Attrs().Flags&net.FlagUp != 0) != want {
				err = errors.New("it is otherwise")
			}
			return err
		})
	}
	b.agent.mirror.cluster.HostChanges.Note(hostchanges.Infra, k.String())
	change, _ := b.agent.mirror.cluster.HostChanges.Newest()
	become := func(s hostchanges.State) {
		t.Helper()
		change.State = s
		b.agent.mirror.cluster.HostChanges.Set(change.Number, s)
		if err := (&rollback{of: b.agent}).follow(change); err != nil {
			t.Fatal(err)
		}
	}
	told := func() {
		t.Helper()
		b.eventually("the host's status says it", func() error {
			for _, p := range b.agent.Attachments.Problems() {
				if strings.Contains(p.Text, "no netmaster answered, and without it one does") {
					return nil
				}
			}
			return errors.New("nothing says that it is taken back")
		})
		up(false)
	}
	become(hostchanges.Reverting)
	told()
	b.stop()
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	told()
	become(hostchanges.Reapplied)
	up(true)
	b.put(func(tx store.Tx) error {
		return tables.Tenants.Put(tx, model.Tenant{Name: "blue", DefaultNetwork: "net1"})
	})
	b.eventually("the host is off the network", func() error {
		if _, err := netlink.LinkByName("stor"); err == nil {
			return errors.New("the interface is there")
		}
		if eps := b.endpoints(); len(eps) > 0 { // a recreated interface keeps its endpoint
			return fmt.Errorf("%d endpoints are there", len(eps))
		}
		return nil
	})
}
