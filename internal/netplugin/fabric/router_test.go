package fabric

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// deadline bounds what a test waits for, on a machine under any load.
const deadline = 90 * time.Second

const (
	hostAS, routerAS = 65002, 500
	uplink           = "up0"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

func TestMain(m *testing.M) {
	// One goroutine of the library may outlive a neighbor: see docs/design/bgp.md.
	os.Exit(testenv.Run(m, nil, goleak.IgnoreTopFunction("github.com/eapache/channels.(*InfiniteChannel).infiniteBuffer")))
}

// bench is a host with an uplink, whose routers' addresses are on its loopback interface.
type bench struct {
	*testing.T
	dir    string
	router *Router
	stop   func()
	in     Input
}

// newBench makes a host on which routers have addresses.
func newBench(t *testing.T, routers ...string) *bench {
	t.Helper()
	testenv.Need(t)
	b := &bench{T: t, dir: t.TempDir(), in: Input{Desired: desired.Host{
		Name: "h1", FwdMode: model.FwdRouting, HostNAT: desired.NewHostNAT(prefix("172.19.0.0/16")), VTEP: addr("10.0.0.1"),
	}}}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: uplink}, PeerName: "peer0"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{uplink, "peer0"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(uplink); err == nil {
			if err := netlink.LinkDel(l); err != nil {
				t.Error(err)
			}
		}
	})
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range routers {
		a, err := netlink.ParseAddr(a)
		if err == nil {
			a.Flags = 2 // IFA_F_NODAD
			err = netlink.AddrReplace(lo, a)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.AddrDel(lo, a) }) // the namespace ends with the tests
	}
	return b
}

// start runs a Router, as a process of netplugin would.
func (b *bench) start() {
	b.Helper()
	b.router = New(Config{StateDir: b.dir, Uplinks: []string{"none0", uplink}, Log: slog.New(slog.DiscardHandler), Tell: func() {}, Repairs: hoststack.NoRepairs})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		b.router.Run(ctx)
		close(done)
	}()
	b.stop = func() {
		cancel()
		<-done
	}
	b.Cleanup(b.stop)
	b.router.Follow(b.in)
}

// peer is a router of the network, which announces prefixes by a next hop.
func (b *bench) peer(at string, as uint32, cfg bgp.Neighbor, by map[string]string) *bgp.Speaker {
	b.Helper()
	cfg.Address, cfg.AS, cfg.Local = addr("50.1.1.2"), hostAS, addr(at)
	if cfg.Local.Is6() {
		cfg.Address = addr("fd50::2")
	}
	cfg.IPv4, cfg.IPv6 = cfg.Local.Is4(), true
	id := cfg.Local
	if id.Is6() {
		id = addr("9.9.9.9")
	}
	s, err := bgp.Start(b.Context(), bgp.Config{AS: as, RouterID: id, Listen: []netip.Addr{cfg.Local}, Neighbors: []bgp.Neighbor{cfg}}, bgp.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := s.Close(ctx, false); err != nil {
			b.Error(err)
		}
	})
	var all []bgp.Announcement
	for p, hop := range by {
		all = append(all, bgp.Announcement{Prefix: prefix(p), NextHop: addr(hop), Tenant: "fabric"})
	}
	if err := s.Announce(b.Context(), all); err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) until(what string, ok func() (bool, string)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), deadline)
	defer cancel()
	for {
		yes, last := ok()
		if yes {
			return
		}
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			b.Fatalf("wait for %s: last %s", what, last)
		}
	}
}

// routes are the kernel's that are by a Router, with their gateways.
func (b *bench) routes() map[string]string {
	b.Helper()
	out := map[string]string{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: 198}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range list {
			var to []string
			if r.Gw != nil {
				to = append(to, r.Gw.String())
			}
			for _, n := range r.MultiPath {
				to = append(to, n.Gw.String())
			}
			slices.Sort(to)
			dst := "default"
			if r.Dst != nil {
				dst = r.Dst.String()
			}
			out[dst] = strings.Join(to, " ")
		}
	}
	return out
}

func (b *bench) wantRoutes(want map[string]string) {
	b.Helper()
	b.until(fmt.Sprint("routes ", want), func() (bool, string) {
		got := b.routes()
		return maps.Equal(got, want), fmt.Sprint(got, " ", b.router.Problems())
	})
}

// heard waits until a router knows exactly these prefixes of the host.
func (b *bench) heard(s *bgp.Speaker, want ...string) {
	b.Helper()
	b.until(fmt.Sprint("announcements ", want), func() (bool, string) {
		var got []string
		for p := range s.Routes().Routes {
			got = append(got, p.String())
		}
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprint(got, " ", b.router.Problems())
	})
}

func (b *bench) problem(object, part string) {
	b.Helper()
	b.until("a problem "+object+": "+part, func() (bool, string) {
		all := b.router.Problems()
		for _, p := range all {
			if p.Object == object && strings.Contains(p.Text, part) {
				return true, ""
			}
		}
		return false, fmt.Sprint(all)
	})
}

// set changes what the host is.
func (b *bench) set(change func(in *Input)) {
	in := b.in
	if in.Settings != nil {
		s := *in.Settings
		in.Settings = &s
	}
	change(&in)
	b.in = in
	b.router.Follow(in)
}

func settings() *model.Bgp {
	return &model.Bgp{Host: "h1", RouterIP: prefix("50.1.1.2/24"), AS: hostAS, Neighbor: addr("50.1.1.200"), NeighborAS: routerAS, NoBFD: true}
}

func network(id model.NetworkID, tenant model.TenantName, encap model.Encap) *desired.Network {
	return &desired.Network{
		ID: id, Key: model.NetworkKey{Tenant: tenant, Name: "net"}, Encap: encap, Tag: uint32(id), Joined: 1,
		Subnet: prefix("10.1.1.0/24"), Subnet6: prefix("fd01::/64"), Gateway: addr("10.1.1.254"),
	}
}

// port adds an endpoint with the n-th addresses.
func port(pic *desired.Host, n int, on *desired.Network) {
	name := fmt.Sprintf("p%d-%d", on.ID, n)
	private := addr(fmt.Sprintf("172.19.%d.%d", on.ID, n))
	pic.Networks = pic.Networks.Set(on.ID, on)
	pic.Ports = pic.Ports.Set(name, &desired.Port{
		IfName: name, Endpoint: model.EndpointKey{Network: on.Key, ID: model.EndpointID(name)}, Network: on.ID,
		IPv4: addr(fmt.Sprintf("10.1.1.%d", n)), IPv6: addr(fmt.Sprintf("fd01::%d", n)), Private: private, Private6: pic.HostNAT.Private6(private),
	})
}

// owned are the containers' own addresses by their private ones, as in the kernel.
func (b *bench) owned() map[string]string {
	b.Helper()
	c, err := nftables.New()
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]string{}
	elements, err := c.GetSetElements(&nftables.Set{Table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: hoststack.FabricTable}, Name: "own"})
	if err != nil {
		return nil
	}
	for _, e := range elements {
		k, _ := netip.AddrFromSlice(e.Key)
		v, _ := netip.AddrFromSlice(e.Val)
		out[k.String()] = v.String()
	}
	return out
}
