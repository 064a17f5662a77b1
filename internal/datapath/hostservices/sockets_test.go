package hostservices

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// rig is a host: a network namespace with backends at addresses of its own, and a cgroup of
// this process. What it does runs on the test's thread, which ends with it.
type rig struct {
	*testing.T
	cfg      Config
	s        *Sockets
	repaired repaired
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("this test needs root")
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root, err := FindCgroup(mountinfo)
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(root, fmt.Sprintf("contiv-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	moveTo(t, dir)
	mounted := t.TempDir()
	if err := unix.Mount("bpf", mounted, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join(mounted, "sockets")
	t.Cleanup(func() {
		if err := errors.Join(Remove(pins), unix.Unmount(mounted, unix.MNT_DETACH), moveBack(root), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	runtime.LockOSThread() // and never unlock it: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.1.1.1/32", "10.1.1.2/32", "10.9.9.9/32", "fd00::1/128", "fd00::2/128"} {
		parsed, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		parsed.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, parsed); err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	// The kernel makes the routes to its IPv6 addresses some time after the addresses, and may
	// make them again: one of the test's own is there at once, and stays.
	_, backends, err := net.ParseCIDR("fd00::/64")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Family: unix.AF_INET6, LinkIndex: lo.Attrs().Index, Dst: backends, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, repaired: repaired{}}
	r.cfg = Config{Log: slog.New(slog.DiscardHandler), Cgroup: dir, Pins: pins, Repairs: r.repaired}
	r.open()
	return r
}

var startCgroup string

func moveTo(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && !strings.Contains(at, "contiv-test-") {
			startCgroup = at
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
}

func moveBack(root string) error {
	return os.WriteFile(filepath.Join(root, startCgroup, "cgroup.procs"), []byte("0"), 0)
}

func (r *rig) open() {
	r.Helper()
	var err error
	if r.s, err = Open(r.cfg); err != nil {
		r.Fatal(err)
	}
	s := r.s
	r.Cleanup(func() { _ = s.Close() })
}

func (r *rig) apply(look bool) {
	r.Helper()
	if err := r.s.Apply(r.Context(), look); err != nil {
		r.Fatal(err)
	}
}

// serve answers at each address with the address.
func (r *rig) serve(network string, addrs ...string) {
	r.Helper()
	for _, a := range addrs {
		if strings.HasPrefix(network, "udp") {
			c, err := (&net.ListenConfig{}).ListenPacket(r.Context(), network, a)
			if err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { _ = c.Close() })
			go func() {
				b := make([]byte, 100)
				for {
					_, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = c.WriteTo([]byte(a), from)
				}
			}()
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(r.Context(), network, a)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(a))
				_ = c.Close()
			}
		}()
	}
}

const patience = 10 * time.Second

// ask connects to an address and returns who answered, and whom the socket has as its peer.
func (r *rig) ask(network, to string) (answer, peer string, err error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(r.Context(), network, to)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if strings.HasPrefix(network, "udp") {
		if _, err := c.Write([]byte("who")); err != nil {
			return "", "", err
		}
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), c.RemoteAddr().String(), err
}

// wantAnswers asks until all of some backends have answered, and no other one.
func (r *rig) wantAnswers(network, to string, want ...string) {
	r.Helper()
	got := map[string]bool{}
	for range 200 {
		answer, peer, err := r.ask(network, to)
		if err != nil {
			r.Fatalf("%s %s: %v", network, to, err)
		}
		if peer != to {
			r.Fatalf("the peer of a socket connected to %s is %s", to, peer)
		}
		if got[answer] = true; !slices.Contains(want, answer) {
			r.Fatalf("%s answered at %s", answer, to)
		}
		if len(got) == len(want) {
			return
		}
	}
	r.Fatalf("at %s only %v answered", to, got)
}

func place(proto model.Protocol, at string) Place {
	a := netip.MustParseAddrPort(at)
	return Place{Addr: a.Addr(), Protocol: proto, Port: a.Port()}
}

func frontend(targets ...string) *Frontend {
	f := &Frontend{}
	for _, t := range targets {
		f.Targets = append(f.Targets, netip.MustParseAddrPort(t))
	}
	f.Members = f.Targets
	return f
}

func TestProcessReachesTheBackendsOfAService(t *testing.T) {
	r := newRig(t)
	r.serve("tcp", "10.1.1.1:8080", "10.1.1.2:8080", "[fd00::1]:8080", "[fd00::2]:8080")
	r.serve("udp", "10.1.1.1:8080", "10.1.1.2:8080", "[fd00::1]:8080", "[fd00::2]:8080")
	for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
		r.s.Set(place(proto, "10.96.0.10:80"), frontend("10.1.1.1:8080", "10.1.1.2:8080"))
		r.s.Set(place(proto, "[fd96::10]:80"), frontend("[fd00::1]:8080", "[fd00::2]:8080"))
	}
	r.apply(false)
	for _, network := range []string{"tcp", "udp"} {
		r.wantAnswers(network, "10.96.0.10:80", "10.1.1.1:8080", "10.1.1.2:8080")
		r.wantAnswers(network, "[fd96::10]:80", "[fd00::1]:8080", "[fd00::2]:8080")
		r.wantAnswers(network, "10.1.1.1:8080", "10.1.1.1:8080") // itself
	}
}

func TestContainerIsReachedAtItsOwnAddress(t *testing.T) {
	r := newRig(t)
	for _, network := range []string{"tcp", "udp"} {
		r.serve(network, "10.1.1.1:8080", "[fd00::1]:8080")
	}
	own, own6 := netip.MustParseAddr("10.244.0.7"), netip.MustParseAddr("fd44::7")
	r.s.SetContainer(own, netip.MustParseAddr("10.1.1.1"))
	r.s.SetContainer(own6, netip.MustParseAddr("fd00::1"))
	r.apply(false)
	for _, network := range []string{"tcp", "udp"} {
		r.wantAnswers(network, "10.244.0.7:8080", "10.1.1.1:8080")
		r.wantAnswers(network, "[fd44::7]:8080", "[fd00::1]:8080")
	}
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "10.1.1.2:0") // a socket that is not connected
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.WriteTo([]byte("who"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, 8080))); err != nil {
		t.Fatal(err)
	}
	if _, from, err := c.ReadFrom(make([]byte, 100)); err != nil || from.String() != "10.244.0.7:8080" {
		t.Errorf("the answer comes from %v, %v", from, err)
	}
	r.s.SetContainer(own, netip.Addr{})
	r.apply(false)
	if answer, _, err := r.ask("tcp", "10.244.0.7:8080"); err == nil {
		t.Errorf("%s answers at the address of a container that is gone", answer)
	}
}

func TestServiceWithoutBackendsRefuses(t *testing.T) {
	r := newRig(t)
	r.s.Set(place(model.ProtoTCP, "10.96.0.10:80"), frontend())
	r.s.Set(place(model.ProtoUDP, "10.96.0.10:80"), frontend())
	r.apply(false)
	for _, network := range []string{"tcp", "udp"} {
		if _, _, err := r.ask(network, "10.96.0.10:80"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v", network, err)
		}
	}
}

func TestSocketsOfOtherNamespacesAreLeftAlone(t *testing.T) {
	r := newRig(t)
	r.serve("tcp", "10.1.1.1:8080")
	r.s.Set(place(model.ProtoTCP, "10.9.9.9:80"), frontend("10.1.1.1:8080"))
	r.apply(false)
	r.wantAnswers("tcp", "10.9.9.9:80", "10.1.1.1:8080")
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := netlink.ParseAddr("10.9.9.9/32")
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, a)); err != nil {
		t.Fatal(err)
	}
	r.serve("tcp", "10.9.9.9:80")
	r.wantAnswers("tcp", "10.9.9.9:80", "10.9.9.9:80")
}

func TestNodePortsAreServedAtNodesAddresses(t *testing.T) {
	r := newRig(t)
	r.serve("tcp", "10.1.1.1:8080", "10.1.1.2:8080")
	reserved := frontend("10.1.1.1:8080")
	reserved.Reserved = true
	r.s.Set(place(model.ProtoTCP, "0.0.0.0:30080"), reserved)
	r.s.Set(place(model.ProtoTCP, "0.0.0.0:30081"), frontend("10.9.9.9:30081")) // whose backend is a process of a node
	r.s.Set(place(model.ProtoTCP, "10.8.8.8:30080"), frontend("10.1.1.2:8080")) // another one there
	r.s.SetNode(netip.MustParseAddr("10.9.9.9"), true)
	r.s.SetNode(netip.MustParseAddr("10.7.7.7"), true)
	r.s.SetNode(netip.MustParseAddr("10.8.8.8"), true)
	r.apply(false)
	for _, at := range []string{"127.0.0.1:30080", "10.9.9.9:30080", "10.7.7.7:30080"} {
		r.wantAnswers("tcp", at, "10.1.1.1:8080")
	}
	r.wantAnswers("tcp", "10.8.8.8:30080", "10.1.1.2:8080")
	if _, _, err := r.ask("tcp", "10.1.1.2:30080"); !errors.Is(err, unix.ECONNREFUSED) { // no node's
		t.Errorf("at an address that is no node's: %v", err)
	}
	for _, at := range []string{"0.0.0.0:30080", "[::]:30080", "10.9.9.9:30080"} {
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("listen at %s: %v, %v", at, l, err)
		}
	}
	for _, at := range []string{"10.1.1.2:30080", "0.0.0.0:30081", "10.9.9.9:30081"} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func TestDatagramsStayWithTheirBackend(t *testing.T) {
	r := newRig(t)
	backends := []string{"10.1.1.1:8080", "10.1.1.2:8080"}
	r.serve("udp", backends...)
	at := place(model.ProtoUDP, "10.96.0.10:53")
	r.s.Set(at, frontend(backends...))
	r.apply(false)
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "10.9.9.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.96.0.10:53"))
	who := func() string {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.WriteTo([]byte("who"), to); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, from, err := c.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		if from.String() != to.String() {
			t.Fatalf("the answer is from %s", from)
		}
		return string(b[:n])
	}
	first := who()
	other := backends[1-slices.Index(backends, first)]
	r.s.Set(at, &Frontend{Targets: []netip.AddrPort{netip.MustParseAddrPort(other)}, Members: frontend(backends...).Members}) // it drains
	r.apply(false)
	if again := who(); again != first {
		t.Errorf("%s answered, then %s, although the former is a member still", first, again)
	}
	r.s.Set(at, frontend(other))
	r.apply(false)
	if now := who(); now != other {
		t.Errorf("%s answered although it has left", now)
	}
}

func TestSocketConnectedToARemovedBackendIsClosed(t *testing.T) {
	r := newRig(t)
	r.serve("udp", "10.1.1.1:8080", "10.1.1.2:8080")
	at := place(model.ProtoUDP, "0.0.0.0:30053")
	r.s.SetNode(netip.MustParseAddr("10.9.9.9"), true)
	r.s.Set(at, frontend("10.1.1.1:8080"))
	r.apply(false)
	dial := func(to string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "udp4", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	by, direct := dial("10.9.9.9:30053"), dial("10.1.1.1:8080")
	r.s.Set(at, frontend("10.1.1.2:8080"))
	r.apply(false)
	_ = by.SetReadDeadline(time.Now().Add(patience))
	if _, err := by.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("a socket connected by the service: %v", err)
	}
	if _, err := direct.Write([]byte("who")); err != nil {
		t.Fatal(err)
	}
	_ = direct.SetReadDeadline(time.Now().Add(patience))
	if _, err := direct.Read(make([]byte, 100)); err != nil {
		t.Errorf("a socket connected to the backend itself: %v", err)
	}
}

func TestNextProcessTakesOver(t *testing.T) {
	r := newRig(t)
	r.serve("tcp", "10.1.1.1:8080", "10.1.1.2:8080")
	at, other := place(model.ProtoTCP, "10.96.0.10:80"), place(model.ProtoTCP, "10.96.0.11:80")
	r.s.Set(at, frontend("10.1.1.1:8080"))
	r.s.Set(other, frontend("10.1.1.2:8080"))
	r.apply(false)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	r.wantAnswers("tcp", "10.96.0.10:80", "10.1.1.1:8080") // without a process
	r.open()
	r.s.Set(at, frontend("10.1.1.1:8080"))
	r.apply(false)
	if f := r.s.frontends.have[toPlaceKey(at)]; f.Version != 1 {
		t.Errorf("what stayed the same was written again: %+v", f)
	}
	if len(r.s.frontends.have) != 1 || len(r.s.targets.have) != 1 || len(r.s.members.have) != 1 {
		t.Errorf("the maps have %v, %v, %v", r.s.frontends.have, r.s.targets.have, r.s.members.have)
	}
	r.wantAnswers("tcp", "10.96.0.10:80", "10.1.1.1:8080")
	if len(r.repaired) != 0 {
		t.Errorf("what the former process has left counts as changed by others: %v", r.repaired)
	}
}

func TestFindCgroupTakesTheRoot(t *testing.T) {
	for name, c := range map[string]struct{ mountinfo, want string }{
		"alone":         {"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup"},
		"beside v1":     {"30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n", "/sys/fs/cgroup/unified"},
		"a part of it":  {"30 23 0:26 /kubepods/x /part rw - cgroup2 cgroup2 rw\n", ""},
		"above its own": {"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 23 0:26 /../.. /host/cgroup rw - cgroup2 cgroup2 rw\n", "/host/cgroup"},
		"none":          {"31 23 0:27 / / rw - ext4 /dev/sda rw\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FindCgroup([]byte(c.mountinfo))
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestLayoutsHaveTheSizesOfC checks that the Go types have the sizes of the C types.
func TestLayoutsHaveTheSizesOfC(t *testing.T) {
	spec, err := loadSockets()
	if err != nil {
		t.Fatal(err)
	}
	for name, kv := range map[string][2]any{
		"frontends": {placeKey{}, frontendEntry{}}, "targets": {targetKey{}, target{}}, "members": {memberKey{}, uint32(0)},
		"nodes": {addr{}, uint32(0)}, "services_of_peers": {peer{}, placeKey{}}, "datagram_targets": {peer{}, placeKey{}},
	} {
		m := spec.Maps[name]
		if k, v := binary.Size(kv[0]), binary.Size(kv[1]); k != int(m.KeySize) || v != int(m.ValueSize) {
			t.Errorf("map %s: key %d and value %d bytes in Go, %d and %d in C", name, k, v, m.KeySize, m.ValueSize)
		}
	}
}
