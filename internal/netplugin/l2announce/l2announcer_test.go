package l2announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m, nil)) }

// patience is what a busy machine may take; TestOneHostAnnouncesAnAddress of control holds the times.
const patience = 20 * time.Second

var (
	addr4 = netip.MustParseAddr("10.9.0.100")
	addr6 = netip.MustParseAddr("fd09::100")
)

// machine is a host, or a client, with an interface eth0 on the network that all share.
type machine struct {
	t    *testing.T
	ns   netns.NsHandle
	mac  net.HardwareAddr
	peer netlink.Link // of eth0, on the bridge
	name model.HostName
	*L2Announcer
	apart atomic.Bool // it reaches no netmaster
	stop  func()
}

// in runs f on a thread in the machine's namespace.
func (m *machine) in(f func() error) {
	m.t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		err := netns.Set(m.ns)
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		m.t.Fatal(err)
	}
}

// newMachines makes a bridge and a machine with addresses for each number.
func newMachines(t *testing.T, n int) (out []*machine) {
	t.Helper()
	testenv.Need(t)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
	try(netlink.LinkAdd(br))
	t.Cleanup(func() { _ = netlink.LinkDel(br) })
	try(netlink.LinkSetUp(br))
	for i := range n {
		m := &machine{t: t, name: model.HostName(fmt.Sprintf("h%d", i+1))}
		made := make(chan error)
		go func() {
			runtime.LockOSThread()
			var err error
			m.ns, err = netns.New()
			made <- err
		}()
		try(<-made)
		t.Cleanup(func() { _ = m.ns.Close() })
		peer := fmt.Sprintf("v%d", i+1)
		try(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: peer}, PeerName: "eth0", PeerNamespace: netlink.NsFd(m.ns)}))
		var err error
		m.peer, err = netlink.LinkByName(peer)
		try(err)
		t.Cleanup(func() { _ = netlink.LinkDel(m.peer) })
		try(netlink.LinkSetMaster(m.peer, br))
		try(netlink.LinkSetUp(m.peer))
		m.in(func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			m.mac = eth0.Attrs().HardwareAddr
			for _, text := range []string{fmt.Sprintf("10.9.0.%d/24", i+1), fmt.Sprintf("fd09::%d/64", i+1)} {
				a, err := netlink.ParseAddr(text)
				if err != nil {
					return err
				}
				a.Flags = 0x02 // IFA_F_NODAD
				if err := netlink.AddrAdd(eth0, a); err != nil {
					return err
				}
			}
			return netlink.LinkSetUp(eth0)
		})
		out = append(out, m)
	}
	return out
}

// electorate is netmasters and store of some hosts, which begin to answer.
func electorate(t *testing.T, hosts ...*machine) {
	t.Helper()
	st := memory.New()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	_, err := st.Update(ctx, func(tx store.Tx) error {
		for _, m := range hosts {
			if err := tables.HostLeases.Put(tx, tables.HostLease{Host: m.name, Installation: string(m.name), Kept: true}); err != nil {
				return err
			}
		}
		for _, a := range []netip.Addr{addr4, addr6} {
			if err := tables.BalancedAddrs.Create(tx, tables.Balanced{Addr: a, Service: model.ClusterServiceKey{Namespace: "ns", Name: "web"}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	master := control.New(st, control.Options{})
	running.Go(func() { _ = master.Run(ctx) })
	if _, err := master.View(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range hosts {
		m.L2Announcer = New(slog.New(slog.DiscardHandler), func(ctx context.Context, seq uint64, able []netip.Addr) ([]netip.Addr, error) {
			if m.apart.Load() {
				return nil, errors.New("no netmaster answers")
			}
			held, _, err := master.L2Announcers.Assign(ctx, control.Admin(), control.L2AnnouncerReport{Host: m.name, Installation: string(m.name), Run: 1, Seq: seq, Able: able})
			return held, err
		}, func() {})
		hctx, stop := context.WithCancel(ctx)
		m.stop = stop
		running.Go(func() {
			runtime.LockOSThread() // and the thread ends with it
			if err := netns.Set(m.ns); err != nil {
				t.Error(err)
				return
			}
			m.Run(hctx)
		})
		m.Want([]netip.Addr{addr4, addr6})
	}
}

// has reports whether a host answers for an address, as it says.
func (m *machine) has(a netip.Addr) bool {
	held, _ := m.State()
	for _, h := range held {
		if h.Address == a.String() {
			return true
		}
	}
	return false
}

// until waits for something.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for !is() {
		if time.Now().After(end) {
			t.Fatalf("after %v not yet: %s", patience, what)
		}
		<-tick.C
	}
}

// asks asks for an address on the wire, and returns who answers.
func (m *machine) asks(a netip.Addr) (answered net.HardwareAddr) {
	m.t.Helper()
	m.in(func() error {
		kind, question := uint16(etherARP), arp(m.mac, broadcast, arpRequest, netip.MustParseAddr("10.9.0.3"), make(net.HardwareAddr, macLen), a)
		if a.Is6() {
			kind, question = etherIPv6, solicitation(m.mac, netip.MustParseAddr("fd09::3"), a)
		}
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		f, err := hear(eth0.Attrs().Index, kind)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if _, err := f.Write(question); err != nil {
			return err
		}
		if err := f.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			return err
		}
		buf := make([]byte, 2048)
		for {
			n, err := f.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			if err != nil {
				return err
			}
			if who := answerOf(buf[:n], a); who != nil {
				if answered != nil && answered.String() != who.String() {
					return fmt.Errorf("%s: both %s and %s answer", a, answered, who)
				}
				answered = who
			}
		}
	})
	return answered
}

// neighbour is at which MAC the machine's kernel knows an address, having sent there.
func (m *machine) neighbour(a netip.Addr, send bool) (mac net.HardwareAddr) {
	m.t.Helper()
	m.in(func() error {
		if send {
			c, err := new(net.Dialer).DialContext(m.t.Context(), "udp", netip.AddrPortFrom(a, 9).String())
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range list {
			if n.IP.Equal(a.AsSlice()) && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
				mac = n.HardwareAddr
			}
		}
		return err
	})
	return mac
}

// TestOneOfTwoHostsAnswers: one of two hosts answers a client's ARP and neighbour discovery, on the
// wire. When it loses contact with the cluster, it stops before the other begins, and the
// client's kernel follows the announcement. The same happens when it loses its link, cannot
// serve any more, or ends.
func TestOneOfTwoHostsAnswers(t *testing.T) {
	all := newMachines(t, 3)
	client, hosts := all[2], all[:2]
	electorate(t, hosts...)
	for _, a := range []netip.Addr{addr4, addr6} {
		t.Run(a.String(), func(t *testing.T) {
			var one, other *machine
			find := func() bool {
				for i, m := range hosts {
					if m.has(a) {
						one, other = m, hosts[1-i]
						return true
					}
				}
				return false
			}
			moved := func(what string) {
				t.Helper()
				start := time.Now()
				until(t, what+": the other host answers", func() bool {
					has := other.has(a)
					if has && one.has(a) { // asked in this sequence
						t.Errorf("%s: both answer", what)
					}
					return has
				})
				t.Logf("%s: %v", what, time.Since(start))
				until(t, what+": the client's kernel follows", func() bool { return client.neighbour(a, false).String() == other.mac.String() })
				if got := client.asks(a); got.String() != other.mac.String() {
					t.Errorf("%s: %s answers, want %s", what, got, other.mac)
				}
			}
			until(t, "somebody answers", find)
			if got := client.asks(a); got.String() != one.mac.String() {
				t.Errorf("%s answers, want %s", got, one.mac)
			}
			until(t, "the client's kernel knows who has it", func() bool { return client.neighbour(a, true).String() == one.mac.String() })

			one.apart.Store(true)
			moved("it reaches no netmaster")
			one.apart.Store(false)

			one, other = other, one
			if err := netlink.LinkSetDown(one.peer); err != nil {
				t.Fatal(err)
			}
			moved("it has no link")
			if err := netlink.LinkSetUp(one.peer); err != nil {
				t.Fatal(err)
			}

			one, other = other, one
			one.Want(nil)
			moved("it cannot serve")
			one.Want([]netip.Addr{addr4, addr6})

			// Addresses outside the pool are not answered.
			if got := client.asks(a.Next()); got != nil {
				t.Errorf("%s answers for %s", got, a.Next())
			}
		})
	}
	until(t, "both have ports", func() bool { return hosts[0].has(addr4) || hosts[1].has(addr4) })
	one, other := hosts[0], hosts[1]
	if other.has(addr4) {
		one, other = other, one
	}
	one.stop()
	until(t, "the other one answers when one ends", func() bool { return other.has(addr4) && other.has(addr6) })
}
