package hoststack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

var count atomic.Int32

func namespace(t testing.TB, kind string) string {
	t.Helper()
	name := fmt.Sprintf("Xhn%s%d-%d", kind, os.Getpid(), count.Add(1))
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return name
}

// in runs fn on a thread in a namespace.
func in(t testing.TB, ns string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(ns)
		if err == nil {
			err = errors.Join(netns.Set(h), h.Close())
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// site is a host between its containers and the outside. In place of a data plane
// there is a veth pair, whose far end has the containers' private addresses and does
// no ARP.
type site struct {
	t                   testing.TB
	host, conts, beyond string
	stack               *Stack
	repairs             *repairs
	want                Config
}

var (
	web   = netip.MustParseAddr("172.19.0.5")
	other = netip.MustParseAddr("172.19.0.6")
	far   = netip.MustParseAddr("198.51.100.7")
	near  = netip.MustParseAddr("198.51.100.1")
)

func newSite(t testing.TB) *site {
	t.Helper()
	testenv.SkipShort(t)
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range []string{"ip", "iptables-nft", "sysctl"} {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatalf("this test needs %v", missing)
		}
		t.Skipf("this test needs %v", missing)
	}
	s := &site{t: t, host: namespace(t, "h"), conts: namespace(t, "c"), beyond: namespace(t, "o")}
	mac := desired.RouterMAC.String()
	run(t, "ip", "-n", s.host, "link", "add", desired.HostInterface, "address", mac, "type", "veth", "peer", "name", "c0", "address", mac, "netns", s.conts)
	s.wireContainers()
	run(t, "ip", "-n", s.host, "link", "add", "up0", "type", "veth", "peer", "name", "o0", "netns", s.beyond)
	run(t, "ip", "-n", s.host, "addr", "add", near.String()+"/24", "dev", "up0")
	run(t, "ip", "-n", s.host, "link", "set", "up0", "up")
	run(t, "ip", "-n", s.beyond, "addr", "add", far.String()+"/24", "dev", "o0")
	run(t, "ip", "-n", s.beyond, "link", "set", "o0", "up")
	run(t, "ip", "-n", s.beyond, "route", "add", "172.19.0.0/16", "via", near.String())
	s.restart(true)
	s.want = Config{Private: desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")), MTU: 1450, NameServer: 5353, Endpoints: []Endpoint{
		{Addr: web, Ports: []attach.PortBinding{
			{Proto: model.ProtoTCP, HostPort: 8080, ContainerPort: 80},
			{Proto: model.ProtoUDP, HostPort: 8080, ContainerPort: 80},
			{Proto: model.ProtoTCP, HostIP: near, HostPort: 8081, ContainerPort: 80},
		}},
	}}
	s.want.Private.TunnelPort = 4789
	return s
}

// wireContainers sets up the far end of the host's interface.
func (s *site) wireContainers() {
	s.t.Helper()
	run(s.t, "ip", "-n", s.conts, "link", "set", "c0", "arp", "off", "up")
	run(s.t, "ip", "-n", s.conts, "addr", "add", web.String()+"/32", "dev", "c0")
	run(s.t, "ip", "-n", s.conts, "addr", "add", other.String()+"/32", "dev", "c0")
	run(s.t, "ip", "-n", s.conts, "route", "add", "default", "dev", "c0", "src", web.String())
}

func (s *site) apply() map[string]error { return s.applyLooking(true) }

func (s *site) applyLooking(look bool) map[string]error {
	s.t.Helper()
	var problems map[string]error
	if err := in(s.t, s.host, func() error { problems = s.stack.Apply(context.Background(), s.want, look); return nil }); err != nil {
		s.t.Fatal(err)
	}
	return problems
}

func (s *site) good() {
	s.t.Helper()
	if p := s.apply(); len(p) > 0 {
		s.t.Fatalf("Apply() = %v", p)
	}
}

// serve answers every connection or datagram with the address it came from.
func (s *site) serve(ns, network, at string) {
	s.t.Helper()
	err := in(s.t, ns, func() error {
		if network == "udp" {
			c, err := new(net.ListenConfig).ListenPacket(s.t.Context(), network, at)
			if err != nil {
				return err
			}
			s.t.Cleanup(func() { c.Close() })
			go func() {
				b := make([]byte, 64)
				for {
					_, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = c.WriteTo([]byte(from.(*net.UDPAddr).IP.String()), from)
				}
			}()
			return nil
		}
		l, err := new(net.ListenConfig).Listen(s.t.Context(), network, at)
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
				c.Close()
			}
		}()
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask connects, and returns which address the other side saw; "" = no answer.
func (s *site) ask(ns, network, from, to string) (seen string) {
	s.t.Helper()
	return s.askFor(10*time.Second, ns, network, from, to)
}

// askFor is ask that takes that time for no answer.
func (s *site) askFor(wait time.Duration, ns, network, from, to string) (seen string) {
	s.t.Helper()
	err := in(s.t, ns, func() error {
		d := net.Dialer{Timeout: wait}
		if from != "" {
			if network == "udp" {
				d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
			} else {
				d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
			}
		}
		c, err := d.Dial(network, to)
		if err != nil {
			return nil // it is not reached, which is an answer
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return nil
			}
		}
		b := make([]byte, 64)
		n, _ := c.Read(b)
		seen = string(b[:n])
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
	return seen
}

// unanswered is how long a question has no answer that has none.
const unanswered = time.Second

// question is a request from a namespace, with the client address that the server has to
// see; "" = no server may answer.
type question struct{ name, ns, network, from, to, seen string }

// asks sends requests one after another. Requests that must stay without an answer are sent
// in parallel, since each would be waited for.
func (s *site) asks(all ...question) {
	s.t.Helper()
	var none sync.WaitGroup
	defer none.Wait()
	for _, q := range all {
		if q.seen == "" {
			none.Go(func() {
				if seen := s.askFor(unanswered, q.ns, q.network, q.from, q.to); seen != "" {
					s.t.Errorf("%s: %s to %s was seen as %q, want no answer", q.name, q.network, q.to, seen)
				}
			})
			continue
		}
		if seen := s.ask(q.ns, q.network, q.from, q.to); seen != q.seen {
			s.t.Errorf("%s: %s to %s was seen as %q, want %q", q.name, q.network, q.to, seen, q.seen)
		}
	}
}

// restartsAsItWas restarts the stack, which must not write again what is there.
func (s *site) restartsAsItWas() {
	s.t.Helper()
	made := s.handles()
	s.good()
	s.restart(true)
	s.good()
	if again := s.handles(); !slices.Equal(again, made) {
		s.t.Errorf("what was there was written again:\n%v\nbefore:\n%v", again, made)
	}
}

// handles are the handles of all rules in the host: a rule that is written again has
// another one.
func (s *site) handles() (all []string) {
	s.t.Helper()
	err := in(s.t, s.host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		chains, err := c.ListChains()
		if err != nil {
			return err
		}
		for _, ch := range chains {
			all = append(all, ch.Table.Name+" "+ch.Name)
		}
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{Version: nl.NFNETLINK_V0})
		return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
			of := func(what uint16) []byte { return bytes.TrimRight(attr(m[nfgenBytes:], what), "\x00") }
			all = append(all, fmt.Sprintf("%s %s %x", of(unix.NFTA_RULE_TABLE), of(unix.NFTA_RULE_CHAIN), attr(m[nfgenBytes:], unix.NFTA_RULE_HANDLE)))
			return true
		})
	})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestHostStackServesEgressAndPorts is the whole: with a firewall as Docker sets it up, containers
// reach the outside in the host's name, published ports lead to them from
// everywhere, nothing else does; nothing is written twice; all of it goes.
func TestHostStackServesEgressAndPorts(t *testing.T) {
	s := newSite(t)
	iptables := func(args ...string) string {
		return run(t, append([]string{"ip", "netns", "exec", s.host, "iptables-nft"}, args...)...)
	}
	iptables("-P", "FORWARD", "DROP")
	iptables("-N", "DOCKER-USER")
	iptables("-A", "DOCKER-USER", "-j", "RETURN")
	iptables("-I", "FORWARD", "-j", "DOCKER-USER")
	before := s.handles()
	s.good()

	s.serve(s.beyond, "tcp", far.String()+":80")
	s.serve(s.beyond, "udp", far.String()+":80")
	s.serve(s.conts, "tcp", web.String()+":80")
	s.serve(s.conts, "udp", web.String()+":80")
	s.serve(s.host, "udp", s.want.Private.Addr.String()+":5353")
	s.serve(s.host, "tcp", s.want.Private.Addr.String()+":5353")
	s.serve(s.host, "tcp", near.String()+":22")
	host := s.want.Private.Addr.String()
	s.asks([]question{
		{"outside, TCP", s.conts, "tcp", "", far.String() + ":80", near.String()},
		{"outside, UDP", s.conts, "udp", "", far.String() + ":80", near.String()},
		{"the host by its private address", s.conts, "tcp", "", host + ":5353", web.String()},
		{"the host by its other address", s.conts, "tcp", "", near.String() + ":22", web.String()},
		{"the host as the router", s.conts, "tcp", "", desired.RouterAddr.String() + ":5353", web.String()},
		{"a name server somewhere, UDP", s.conts, "udp", "", far.String() + ":53", web.String()},
		{"a name server somewhere, TCP", s.conts, "tcp", "", far.String() + ":53", web.String()},
		{"published, from outside, TCP", s.beyond, "tcp", "", near.String() + ":8080", far.String()},
		{"published, from outside, UDP", s.beyond, "udp", "", near.String() + ":8080", far.String()},
		{"published at one address", s.beyond, "tcp", "", near.String() + ":8081", far.String()},
		{"published, from the host", s.host, "tcp", "", near.String() + ":8080", near.String()},
		{"published, from the host's loopback", s.host, "tcp", "", "127.0.0.1:8080", host},
		{"published, from the host's loopback, UDP", s.host, "udp", "", "127.0.0.1:8080", host},
		{"published at one address only", s.host, "tcp", "", "127.0.0.1:8081", ""},
		{"published, from another container", s.conts, "tcp", other.String(), near.String() + ":8080", host},
		{"published, from itself", s.conts, "tcp", web.String(), near.String() + ":8080", host},
		{"from the host", s.host, "tcp", "", web.String() + ":80", host},
		{"not published", s.beyond, "tcp", "", web.String() + ":80", ""},
	}...)
	s.destinations(netip.AddrPortFrom(s.want.Private.Addr, 5353))
	// Only hosts use tunnels. Only one port, and only packets to hosts.
	s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: other, Ports: []attach.PortBinding{{Proto: model.ProtoUDP, HostPort: 5000, ContainerPort: 4789}}})
	s.good()
	for _, at := range []string{near.String(), s.want.Private.Addr.String()} {
		s.serve(s.host, "udp", at+":4789")
		s.serve(s.host, "udp", at+":4790")
	}
	s.serve(s.beyond, "udp", far.String()+":4789")
	s.serve(s.conts, "udp", other.String()+":4789")
	s.asks([]question{
		{"this host's tunnel", s.conts, "udp", "", near.String() + ":4789", ""},
		{"this host's tunnel by its private address", s.conts, "udp", "", s.want.Private.Addr.String() + ":4789", ""},
		{"this host's tunnel as the router", s.conts, "udp", "", desired.RouterAddr.String() + ":4789", ""},
		{"another host's tunnel", s.conts, "udp", "", far.String() + ":4789", ""},
		{"the port beside", s.conts, "udp", "", near.String() + ":4790", web.String()},
		{"the tunnel from another host", s.beyond, "udp", "", near.String() + ":4789", far.String()},
		{"another host's tunnel from this one", s.host, "udp", "", far.String() + ":4789", near.String()},
		{"a container's own tunnel, published", s.beyond, "udp", "", near.String() + ":5000", far.String()},
		{"a container's own tunnel, published, from another one", s.conts, "udp", "", near.String() + ":5000", host},
	}...)
	if got := iptables("-S", "DOCKER-USER"); !strings.Contains(got, "-i contivh0") || !strings.Contains(got, "-o contivh0") || !strings.Contains(got, "RETURN") {
		t.Errorf("iptables does not list our rules:\n%s", got)
	}

	s.restartsAsItWas()
	// A recreated interface is noticed without checking everything.
	remake := func() {
		run(t, "ip", "-n", s.host, "link", "del", desired.HostInterface)
		mac := desired.RouterMAC.String()
		run(t, "ip", "-n", s.host, "link", "add", desired.HostInterface, "address", mac, "type", "veth", "peer", "name", "c0", "address", mac, "netns", s.conts)
	}
	remake()
	if p := s.applyLooking(false); len(p) > 0 {
		t.Errorf("Apply() = %v", p)
	}
	if mtu := run(t, "ip", "-n", s.host, "route", "show", "172.19.0.0/16"); !strings.Contains(mtu, "mtu 1450") {
		t.Errorf("route: %s", mtu)
	}

	// Somebody empties everything: the next look repairs it.
	if err := in(t, s.host, func() error { c, err := nftables.New(); c.FlushRuleset(); return errors.Join(err, c.Flush()) }); err != nil {
		t.Fatal(err)
	}
	s.good()
	s.wireContainers()
	if seen := s.ask(s.conts, "tcp", "", far.String()+":80"); seen != near.String() {
		t.Errorf("after the rules were lost, the outside sees %q", seen)
	}

	s.want.Endpoints = nil
	s.good()
	s.asks(question{"a port that is not published any more", s.beyond, "udp", "", near.String() + ":8080", ""})
	iptables("-P", "FORWARD", "DROP")
	s.want = Config{}
	s.restart(true)
	s.good()
	left := slices.DeleteFunc(s.handles(), func(h string) bool { return strings.HasPrefix(h, "filter ") })
	if len(left) > 0 || strings.Contains(iptables("-S"), "contiv") {
		t.Errorf("left behind: %v\n%s\nbefore: %v", left, iptables("-S"), before)
	}
}

// destinations checks that the host knows to which server a question was sent that
// its own name server got.
func (s *site) destinations(server netip.AddrPort) {
	s.t.Helper()
	from := netip.AddrPortFrom(web, 40053)
	local := map[model.Protocol]net.Addr{model.ProtoUDP: net.UDPAddrFromAddrPort(from), model.ProtoTCP: net.TCPAddrFromAddrPort(from)}
	for proto, network := range map[model.Protocol]string{model.ProtoUDP: "udp", model.ProtoTCP: "tcp"} {
		err := in(s.t, s.conts, func() error {
			c, err := (&net.Dialer{LocalAddr: local[proto], Timeout: 2 * time.Second}).Dial(network, far.String()+":53")
			if err != nil {
				return err
			}
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			s.t.Fatal(err)
		}
		var got netip.Addr
		err = in(s.t, s.host, func() (err error) { got, err = Destination(proto, from, server); return err })
		if err != nil || got != far {
			s.t.Errorf("a question over %s was sent to %v, %v, want %v", network, got, err, far)
		}
	}
	err := in(s.t, s.host, func() error { _, err := Destination(model.ProtoUDP, netip.AddrPortFrom(other, 1), server); return err })
	if err == nil {
		s.t.Error("what nobody sent has a destination")
	}
}

// TestMissingForwardingIsReported: without IP forwarding the problem says what to do, and the
// host itself is reached.
func TestMissingForwardingIsReported(t *testing.T) {
	s := newSite(t)
	run(t, "ip", "netns", "exec", s.host, "sysctl", "-q", "-w", "net.ipv4.ip_forward=0")
	s.restart(false)
	p := s.apply()
	if err := p["egress"]; len(p) != 1 || err == nil || !strings.Contains(err.Error(), "--ip-forward") {
		t.Fatalf("Apply() = %v", p)
	}
	s.serve(s.host, "tcp", near.String()+":22")
	if seen := s.ask(s.conts, "tcp", "", near.String()+":22"); seen != web.String() {
		t.Errorf("the host sees %q", seen)
	}
	s.restart(true)
	s.good()
}

// TestChainThatCannotBeWrittenIsNamed: the error names a chain that cannot be written to.
func TestChainThatCannotBeWrittenIsNamed(t *testing.T) {
	s := newSite(t)
	drop := nftables.ChainPolicyDrop
	if err := in(t, s.host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		c.AddChain(&nftables.Chain{
			Table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "strange"}), Name: "pass", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop,
		})
		return c.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.apply()["firewall"]; err == nil || !strings.Contains(err.Error(), "strange pass") {
		t.Errorf("Apply() = %v", err)
	}
}

// TestMissingInterfaceIsReported: the error says that the data plane has not made the interface.
func TestMissingInterfaceIsReported(t *testing.T) {
	s := newSite(t)
	run(t, "ip", "-n", s.host, "link", "del", desired.HostInterface)
	if err := s.apply()["interface "+desired.HostInterface]; !errors.Is(err, model.ErrNotFound) {
		t.Errorf("Apply() = %v", err)
	}
}
