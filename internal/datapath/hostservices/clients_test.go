package hostservices

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
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

// clientRig is a host between a client and a data plane, each in a network namespace. In the
// data plane's the addresses of services are its own, so that its stack answers there.
type clientRig struct {
	*testing.T
	host, client, plane *os.File // network namespaces
	pins                string
	c                   *Clients
	repaired            repaired
	path                Path
}

// in runs f in a network namespace.
func in(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread ends
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// namespace makes one.
func namespace(t *testing.T) *os.File {
	t.Helper()
	type made struct {
		ns  *os.File
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		var m made
		if err == nil {
			m.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		m.err = err
		done <- m
	}()
	m := <-done
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { _ = m.ns.Close() })
	return m.ns
}

func up(name string, addrs ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		parsed, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		parsed.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, parsed); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func routeTo(dev, prefix, via string) error {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: net.ParseIP(via)}
	if via == "" {
		r.Scope = unix.RT_SCOPE_LINK
	}
	return netlink.RouteAdd(r)
}

func pair(a, b string, to *os.File) error {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a}, PeerName: b}); err != nil {
		return err
	}
	l, err := netlink.LinkByName(b)
	if err != nil {
		return err
	}
	return netlink.LinkSetNsFd(l, int(to.Fd()))
}

var deviceMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}

func newClientRig(t *testing.T) *clientRig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("this test needs root")
	}
	mounted := t.TempDir()
	if err := unix.Mount("bpf", mounted, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	r := &clientRig{T: t, repaired: repaired{}, host: namespace(t), client: namespace(t), plane: namespace(t), pins: filepath.Join(mounted, "clients")}
	t.Cleanup(func() {
		if err := errors.Join(Remove(r.pins), unix.Unmount(mounted, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	in(t, r.host, func() error {
		if err := errors.Join(pair("eth0", "client", r.client), pair("contivh0", "plane", r.plane), up("lo")); err != nil {
			return err
		}
		l, err := netlink.LinkByName("contivh0")
		if err != nil {
			return err
		}
		for _, f := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+f, []byte("1"), 0); err != nil {
				return err
			}
		}
		// Connection tracking keeps a fragment until it has the whole packet.
		if out, err := exec.CommandContext(t.Context(), "nft", "table inet t { chain c { type filter hook prerouting priority 0; ct state established accept; }; }").CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return errors.Join(netlink.LinkSetHardwareAddr(l, deviceMAC), netlink.LinkSetARPOff(l), up("contivh0", "172.20.0.1/16"), up("eth0", "10.9.9.1/24", "fd09::1/64"))
	})
	in(t, r.client, func() error {
		return errors.Join(up("lo"), up("client", "10.9.9.2/24", "172.20.0.7/32", "fd09::2/64"),
			routeTo("client", "10.96.0.0/16", "10.9.9.1"), routeTo("client", "fd96::/64", "fd09::1"))
	})
	in(t, r.plane, func() error {
		l, err := netlink.LinkByName("plane")
		if err != nil {
			return err
		}
		// As everywhere without ARP, frames are to the sender's own MAC.
		return errors.Join(netlink.LinkSetHardwareAddr(l, deviceMAC), netlink.LinkSetARPOff(l), up("lo", "10.9.9.1/32", "10.96.0.10/32", "fd09::1/128", "fd96::10/128"), up("plane"),
			routeTo("plane", "0.0.0.0/0", ""), routeTo("plane", "::/0", ""))
	})
	r.path = Path{Device: "contivh0", Interfaces: []string{"eth0"}, Private: [2]netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")}}
	r.open()
	return r
}

func (r *clientRig) open() {
	r.Helper()
	in(r.T, r.host, func() (err error) {
		r.c, err = OpenClients(r.pins, r.repaired)
		return err
	})
	r.Cleanup(r.c.Close)
}

func (r *clientRig) apply(look bool) {
	r.Helper()
	in(r.T, r.host, func() error { return r.c.Apply(r.path, look) })
}

// serve answers at an address in a namespace with a text.
func (r *clientRig) serve(ns *os.File, network, at, text string) {
	r.Helper()
	in(r.T, ns, func() error {
		if strings.HasPrefix(network, "udp") {
			c, err := (&net.ListenConfig{}).ListenPacket(r.Context(), network, at)
			if err != nil {
				return err
			}
			r.Cleanup(func() { _ = c.Close() })
			go func() {
				b := make([]byte, 1<<16)
				for {
					n, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(append([]byte(text), b[:n]...), from)
				}
			}()
			return nil
		}
		l, err := (&net.ListenConfig{}).Listen(r.Context(), network, at)
		if err != nil {
			return err
		}
		r.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, text)
				_ = c.Close()
			}
		}()
		return nil
	})
}

// ask connects as a client, from an address or "", sends a datagram of a size, and returns what
// came back.
func (r *clientRig) ask(network, from, to string, size int, timeout time.Duration) (answer string, err error) {
	r.Helper()
	in(r.T, r.client, func() error {
		d := net.Dialer{Timeout: timeout}
		if from != "" && strings.HasPrefix(network, "udp") {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
		}
		c, failed := d.DialContext(r.Context(), network, to)
		if err = failed; err != nil {
			return nil
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(timeout))
		if strings.HasPrefix(network, "udp") {
			if _, err = c.Write(slices.Repeat([]byte("x"), size)); err != nil {
				return nil
			}
			b := make([]byte, 1<<16)
			n, failed := c.Read(b)
			answer, err = string(b[:n]), failed
			return nil
		}
		b, failed := io.ReadAll(c)
		answer, err = string(b), failed
		return nil
	})
	return answer, err
}

func (r *clientRig) want(network, to, text string) {
	r.Helper()
	if got, err := r.ask(network, "", to, 0, patience); err != nil || got != text {
		r.Errorf("%s %s: %q, %v", network, to, got, err)
	}
}

func TestClientsOutsideReachTheDataPlane(t *testing.T) {
	r := newClientRig(t)
	for _, network := range []string{"tcp", "udp"} {
		proto := map[string]model.Protocol{"tcp": model.ProtoTCP, "udp": model.ProtoUDP}[network]
		for _, at := range []string{"10.9.9.1:30080", "10.96.0.10:80", "[fd09::1]:30080", "[fd96::10]:80"} {
			r.serve(r.plane, network, at, "plane")
		}
		for _, at := range []string{"10.9.9.1:30080", "10.9.9.1:22", "[fd09::1]:22"} {
			r.serve(r.host, network, at, "host")
		}
		r.c.Set(Place{Addr: netip.IPv4Unspecified(), Protocol: proto, Port: 30080}, true)
		r.c.Set(Place{Addr: netip.IPv6Unspecified(), Protocol: proto, Port: 30080}, true)
		for _, a := range []string{"10.96.0.10", "fd96::10"} {
			r.c.Set(Place{Addr: netip.MustParseAddr(a), Protocol: proto, Port: 80}, true)
		}
	}
	for _, a := range []string{"10.9.9.1", "fd09::1"} {
		r.c.SetNode(netip.MustParseAddr(a), true)
	}
	r.apply(false)
	for _, network := range []string{"tcp", "udp"} {
		for _, at := range []string{"10.9.9.1:30080", "10.96.0.10:80", "[fd09::1]:30080", "[fd96::10]:80"} {
			r.want(network, at, "plane")
		}
		for _, at := range []string{"10.9.9.1:22", "[fd09::1]:22"} {
			r.want(network, at, "host")
		}
	}
	for _, to := range []string{"10.9.9.1:30080", "10.96.0.10:80", "[fd09::1]:30080", "[fd96::10]:80"} {
		if got, err := r.ask("udp", "", to, 5000, patience); err != nil || len(got) != 5000+len("plane") {
			t.Errorf("a datagram in fragments to %s: %d bytes, %v", to, len(got), err)
		}
	}
	if got, err := r.ask("udp", "172.20.0.7", "10.9.9.1:30080", 1, 200*time.Millisecond); err == nil {
		t.Errorf("who asks in the name of a container's private address is answered: %q", got)
	}
	// The next process takes over, with less.
	r.c.Close()
	r.want("tcp", "10.9.9.1:30080", "plane")
	r.open()
	r.c.SetNode(netip.MustParseAddr("10.9.9.1"), true)
	r.apply(false)
	r.want("tcp", "10.9.9.1:30080", "host")
	r.path = Path{}
	r.apply(false)
	in(t, r.host, func() error {
		for _, name := range []string{"eth0", "contivh0"} {
			i, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			if f, err := clientFilter.Find(i.Index, true); err != nil || f != nil {
				t.Errorf("interface %s: %v, %v", name, f, err)
			}
		}
		return nil
	})
	if entries, _ := filepath.Glob(filepath.Join(r.pins, linkPrefix+"*")); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestErrorsAboutAnswersReachTheDataPlane(t *testing.T) {
	r := newClientRig(t)
	r.c.Set(Place{Addr: netip.IPv4Unspecified(), Protocol: model.ProtoUDP, Port: 30053}, true)
	r.c.SetNode(netip.MustParseAddr("10.9.9.1"), true)
	r.apply(false)
	// From a port without a listener, so the client's stack answers the sender with an error.
	in(t, r.plane, func() error {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP("10.9.9.1"), Port: 30053}, &net.UDPAddr{IP: net.ParseIP("10.9.9.2"), Port: 9})
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the data plane hears %v", err)
		}
		return nil
	})
}
