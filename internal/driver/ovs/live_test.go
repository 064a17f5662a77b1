package ovs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// box is a container: a namespace with an address and real sockets.
type box struct {
	ns   string
	port *desired.Port
}

// live is a switch with containers on one VXLAN network.
type live struct {
	*ovstest.Server
	drv   *Driver
	net   *desired.Network
	boxes []*box
	pic   desired.Host
	cfg   Config
}

func newLive(t testing.TB, n int) *live {
	t.Helper()
	ovstest.Require(t, "ping", "ethtool")
	l := &live{Server: ovstest.Start(t)}
	r := rig{Server: l.Server}
	l.cfg = r.config(t)
	l.cfg.Uplinks = nil
	l.net = &desired.Network{
		ID: 7, Key: model.NetworkKey{Tenant: "blue", Name: "vx"}, Encap: model.EncapVXLAN, Tag: 700,
		Subnet: netip.MustParsePrefix("10.9.0.0/24"), Subnet6: netip.MustParsePrefix("fd09::/64"),
	}
	l.pic = desired.Host{Name: "h1", Revision: 1, ArpMode: model.ArpProxy}
	l.pic.Networks = l.pic.Networks.Set(7, l.net)
	for i := range n {
		l.addBox(t, i)
	}
	l.open(t)
	l.apply(t)
	return l
}

func (l *live) open(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d, err := open(ctx, l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.drv = d
}

func (l *live) addBox(t testing.TB, i int) {
	t.Helper()
	b := &box{ns: fmt.Sprintf("%sb%d", l.NS, i)}
	v4, v6 := netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("fd09::%x", i+1))
	b.port = &desired.Port{
		IfName: fmt.Sprintf("cvbox%d", i), Endpoint: model.EndpointKey{Network: l.net.Key, ID: model.EndpointID(fmt.Sprint("b", i))},
		Network: l.net.ID, MAC: model.EndpointMAC(l.net.Key, v4, v6), IPv4: v4, IPv6: v6, Identity: model.Identity(300 + i),
	}
	l.Run("ip", "netns", "add", b.ns)
	t.Cleanup(func() { _, _ = l.Try("ip", "netns", "del", b.ns) })
	l.Run("ip", "-n", l.NS, "link", "add", b.port.IfName, "type", "veth", "peer", "name", "eth0", "netns", b.ns, "address", b.port.MAC.String())
	l.Run("ip", "-n", l.NS, "link", "set", b.port.IfName, "up")
	for _, args := range [][]string{
		{"addr", "add", v4.String() + "/24", "dev", "eth0"},
		{"addr", "add", v6.String() + "/64", "dev", "eth0", "nodad"},
		{"link", "set", "lo", "up"}, {"link", "set", "eth0", "up"},
	} {
		l.Run(append([]string{"ip", "-n", b.ns}, args...)...)
	}
	l.Run("ip", "netns", "exec", b.ns, "ethtool", "-K", "eth0", "tx", "off")
	l.boxes = append(l.boxes, b)
	l.pic.Ports = l.pic.Ports.Set(b.port.IfName, b.port)
}

func (l *live) apply(t testing.TB) driver.Report {
	t.Helper()
	l.pic.Revision++
	rep, err := l.drv.Apply(context.Background(), l.pic)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range rep.Ports {
		if p.Err != nil {
			t.Fatalf("port %s: %v", name, p.Err)
		}
	}
	return rep
}

// in runs a program in a box.
func (l *live) in(b *box, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", b.ns}, args...)...)
}

// deny gives box b a policy that denies TCP to port from any peer, or none.
func (l *live) deny(b *box, tcpPort uint16, on bool) {
	p := *b.port
	p.Policies = 0
	l.pic.PolicySets = desired.Map[desired.PolicySetID, *desired.PolicySet]{}
	if tcpPort != 0 {
		p.Policies = 5
		s := &desired.PolicySet{ID: 5, Name: "p"}
		tier := desired.Tier{Tier: model.TierContiv, Default: model.Pass}
		if on {
			tier.Rules = []desired.Rule{{
				ID: "r1", Priority: 5, Action: model.Deny, AnyPeer: true,
				Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: tcpPort, Hi: tcpPort}},
			}}
		}
		s.In = []desired.Tier{tier}
		l.pic.PolicySets = l.pic.PolicySets.Set(5, s)
	}
	b.port = &p
	l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
}

var pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) (?:packets )?received`)

func (l *live) ping(t testing.TB, from *box, to netip.Addr) func() (sent, received int) {
	t.Helper()
	cmd := l.in(from, "ping", "-i", "0.01", "-W", "1", to.String())
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() { // until the first answer
		if strings.Contains(lines.Text(), "seq=") {
			break
		}
	}
	done := make(chan string, 1)
	go func() {
		var s strings.Builder
		for lines.Scan() {
			s.WriteString(lines.Text() + "\n")
		}
		done <- s.String()
	}()
	return func() (int, int) {
		t.Helper()
		_ = cmd.Process.Signal(interrupt)
		s := <-done
		_ = cmd.Wait()
		m := pingSummary.FindStringSubmatch(s)
		if m == nil {
			t.Fatalf("ping said %s", s)
		}
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[2])
		return a, b
	}
}

// dial connects from one box to a port of another over TCP, in the namespace.
func (l *live) dial(t testing.TB, from *box, to netip.Addr, port int, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	var c net.Conn
	err := inNamespace(from.ns, func() (err error) {
		d := net.Dialer{Timeout: timeout}
		c, err = d.Dial("tcp", net.JoinHostPort(to.String(), strconv.Itoa(port)))
		return err
	})
	return c, err
}

// echo listens on a port of a box and sends back what comes.
func (l *live) echo(t testing.TB, b *box, port int) {
	t.Helper()
	var ln net.Listener
	if err := inNamespace(b.ns, func() (err error) {
		ln, err = net.Listen("tcp", ":"+strconv.Itoa(port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Add(1)
			go func() { defer wg.Done(); _, _ = io.Copy(c, c) }()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// roundTrip sends a line and waits for it.
func roundTrip(c net.Conn, timeout time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	b := make([]byte, 6)
	_, err := io.ReadFull(c, b)
	return err
}

// TestRestartLosesNothing restarts the driver under a ping every 10 ms over
// IPv4 and IPv6 and a TCP connection: nothing is lost, and nothing rewritten.
func TestRestartLosesNothing(t *testing.T) {
	l := newLive(t, 2)
	a, b := l.boxes[0], l.boxes[1]
	l.echo(t, b, 80)
	c, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop4, stop6 := l.ping(t, a, b.port.IPv4), l.ping(t, a, b.port.IPv6)
	for range 3 {
		if err := l.drv.Close(); err != nil {
			t.Fatal(err)
		}
		if err := roundTrip(c, time.Second); err != nil {
			t.Errorf("without a driver: %v", err)
		}
		l.open(t)
		if rep := l.apply(t); rep.Changes != 0 {
			t.Errorf("a restart made %d changes", rep.Changes)
		}
		if err := roundTrip(c, time.Second); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	}
	defer l.drv.Close()
	for i, stop := range []func() (int, int){stop4, stop6} {
		if sent, got := stop(); got < sent-1 || got == 0 { // the last one may be under way
			t.Errorf("ping over IPv%d: %d of %d answered", 4+2*i, got, sent)
		}
	}
}

// TestSwitchCrash kills the switch daemon: flows are back without an Apply, new
// connections work within 2 s of its start, and established TCP connections
// whose opening side speaks go on.
func TestSwitchCrash(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	l.deny(b, 443, true)
	l.apply(t)
	l.echo(t, b, 80)
	l.echo(t, b, 443)
	old, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := roundTrip(old, time.Second); err != nil {
		t.Fatal(err)
	}
	l.KillSwitch()
	start := time.Now()
	l.StartSwitch()
	t.Logf("switch answers its control socket after %v", time.Since(start))
	for {
		c, err := l.dial(t, a, b.port.IPv4, 80, 100*time.Millisecond)
		if err == nil {
			err = roundTrip(c, time.Second)
			c.Close()
		}
		if err == nil {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("no new connection after %v: %v", time.Since(start), err)
		}
	}
	took := time.Since(start)
	t.Logf("a new connection works %v after the switch's start", took)
	if took > 2*time.Second {
		t.Errorf("a new connection works %v after the switch's start, want 2 s at most", took)
	}
	if err := roundTrip(old, 5*time.Second); err != nil {
		t.Errorf("the established connection: %v", err)
	}
	if _, err := l.dial(t, a, b.port.IPv4, 443, 300*time.Millisecond); err == nil {
		t.Error("what policy denies passes after the crash")
	}
	select {
	case <-l.drv.Events():
	case <-time.After(5 * time.Second):
		t.Error("no event")
	}
}

// TestServerSpeaksFirstAfterCrash pins what is lost when user space's connection
// tracking dies with the switch and policy denies the server's side to open
// connections: the server's data do not pass until the client has sent something.
func TestServerSpeaksFirstAfterCrash(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	p := *a.port
	p.Policies = 6
	a.port = &p
	l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
	l.pic.PolicySets = l.pic.PolicySets.Set(6, &desired.PolicySet{ID: 6, Name: "closed", In: []desired.Tier{{Default: model.Deny}}})
	l.apply(t)
	var ln net.Listener
	if err := inNamespace(b.ns, func() (err error) { ln, err = net.Listen("tcp", ":80"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	client, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()
	expect := func(within time.Duration) error {
		_ = client.SetReadDeadline(time.Now().Add(within))
		_, err := client.Read(make([]byte, 1))
		return err
	}
	if _, err := server.Write([]byte("a")); err != nil || expect(2*time.Second) != nil {
		t.Fatalf("before the crash: %v", err)
	}
	l.KillSwitch()
	l.StartSwitch()
	for start := time.Now(); time.Since(start) < 5*time.Second; { // until the flows are back
		if l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() == nil {
			break
		}
	}
	if _, err := server.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if expect(500*time.Millisecond) == nil {
		t.Error("the server's data pass: the documentation says that they do not")
	}
	start := time.Now()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := expect(5 * time.Second); err != nil {
		t.Errorf("after the client has spoken: %v", err)
	}
	t.Logf("the server's data arrive %v after the client has spoken", time.Since(start))
}

// TestForeignBridge checks that a bridge of somebody else is refused, and that
// an uplink that is a port elsewhere is left there and reported.
func TestForeignBridge(t *testing.T) {
	s := ovstest.Start(t)
	r := rig{Server: s}
	cfg := r.config(t)
	cfg.Uplinks = []string{"theirs0"}
	s.Vsctl("add-br", "contivBr", "--", "set", "bridge", "contivBr", "datapath_type=netdev")
	if _, err := open(t.Context(), cfg); !errors.Is(err, model.ErrConflict) {
		t.Errorf("open() on a foreign bridge = %v, want a conflict", err)
	}
	s.Vsctl("del-br", "contivBr", "--", "add-br", "other", "--", "set", "bridge", "other", "datapath_type=netdev",
		"--", "add-port", "other", "theirs0", "--", "set", "interface", "theirs0", "type=internal")
	d, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rep, err := d.Apply(t.Context(), desired.Host{ArpMode: model.ArpProxy})
	if err != nil || len(rep.Problems) != 1 || !errors.Is(rep.Problems[0].Err, model.ErrConflict) {
		t.Errorf("Apply() = %+v, %v; want one conflict", rep, err)
	}
	if got := strings.TrimSpace(s.Vsctl("port-to-br", "theirs0")); got != "other" {
		t.Errorf("theirs0 is now on %s", got)
	}
}

// TestNoSwitch checks what is said when nothing answers.
func TestNoSwitch(t *testing.T) {
	r := rig{Server: &ovstest.Server{DB: "unix:" + t.TempDir() + "/none.sock", RunDir: t.TempDir()}}
	if _, err := New(t.Context(), r.config(t)); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "--ovs-db") {
		t.Errorf("New() = %v, want unavailable and the flag", err)
	}
	cfg := r.config(t)
	cfg.Datapath = "dpdk"
	if _, err := New(t.Context(), cfg); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("New() with datapath dpdk = %v, want invalid", err)
	}
}

// TestFlowDeletedByHand checks that an Apply of the same picture repairs the tables.
func TestFlowDeletedByHand(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	flows := func() []string {
		f := strings.Split(l.Ofctl("contivBr", "dump-flows", "--no-stats"), "\n")
		slices.Sort(f)
		return f
	}
	before := flows()
	l.Ofctl("contivBr", "del-flows", "table=7")
	l.drv.verified = time.Time{}
	if rep := l.apply(t); rep.Changes == 0 {
		t.Error("Apply() noticed nothing")
	}
	if diff := cmp.Diff(before, flows()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
}

// TestCloseAndOpen changes a rule under an established connection: it is cut
// and goes on, and the time to the last packet is measured.
func TestCloseAndOpen(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	l.deny(b, 80, false)
	l.apply(t)
	l.echo(t, b, 80)
	c, err := l.dial(t, a, b.port.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		l.deny(b, 80, true)
		start := time.Now()
		l.apply(t)
		closed := time.Since(start)
		if err := roundTrip(c, 100*time.Millisecond); err == nil {
			t.Error("the connection lives on although a rule denies it")
		}
		s, err := l.drv.Stats(context.Background())
		if err != nil || s.Ports[a.port.IfName].TxPackets == 0 || s.Drops[driver.DropPolicy] == 0 || s.Rules["r1"].Packets == 0 {
			t.Errorf("Stats() = %+v, %v", s, err)
		}
		l.deny(b, 80, false)
		start = time.Now()
		l.apply(t)
		opened := time.Since(start)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
			t.Errorf("the connection does not go on: %v", err)
		}
		t.Logf("closed in %v, opened in %v", closed, opened)
	}
}

// TestNeighbours lets the kernel's own neighbour discovery, duplicate detection
// and ARP meet the answers in flows.
func TestNeighbours(t *testing.T) {
	l := newLive(t, 3)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	tentative := func() bool {
		for _, x := range []*box{a, b} {
			if out, err := l.in(x, "ip", "-6", "addr", "show", "dev", "eth0", "tentative").CombinedOutput(); err != nil || len(out) > 0 {
				return true
			}
		}
		return false
	}
	for start := time.Now(); tentative() && time.Since(start) < 5*time.Second; {
	}
	for _, to := range []string{b.port.IPv4.String(), b.port.IPv6.String(), driver.LinkLocal(b.port.MAC).String() + "%eth0"} {
		if out, err := l.in(a, "ping", "-c", "2", "-i", "0.2", "-W", "2", to).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", to, err, out)
		}
	}
	out, err := l.in(a, "ip", "neigh", "show").CombinedOutput()
	if err != nil || strings.Count(string(out), b.port.MAC.String()) < 3 {
		t.Errorf("neighbours: %v\n%s", err, out)
	}
	out, err = l.in(a, "ip", "-6", "addr", "show", "dev", "eth0").CombinedOutput()
	if err != nil || strings.Contains(string(out), "dadfailed") || strings.Contains(string(out), "tentative") {
		t.Errorf("addresses: %v\n%s", err, out)
	}
	// Who takes another's address learns that it is taken.
	l.Run("ip", "-n", a.ns, "addr", "add", b.port.IPv6.String()+"/64", "dev", "eth0")
	deadline := time.Now().Add(5 * time.Second)
	for {
		out, err = l.in(a, "ip", "-6", "addr", "show", "dev", "eth0").CombinedOutput()
		if err == nil && strings.Contains(string(out), "dadfailed") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("duplicate detection: %v\n%s", err, out)
		}
	}
}

// TestFragments sends datagrams bigger than the interface's MTU.
func TestFragments(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	l.deny(b, 80, true) // policy that looks at ports
	l.apply(t)
	for _, to := range []netip.Addr{b.port.IPv4, b.port.IPv6} {
		if out, err := l.in(a, "ping", "-c", "3", "-i", "0.2", "-W", "2", "-s", "4000", to.String()).CombinedOutput(); err != nil {
			t.Errorf("ping %s with 4000 bytes: %v\n%s", to, err, out)
		}
	}
}

// settle waits until the switch has done all that is in the database: it takes
// some 14 ms to remove a port in user space, and adds nothing meanwhile.
func (l *live) settle(n int) {
	l.Vsctl("set", "Open_vSwitch", ".", fmt.Sprintf("external_ids:round=%d", n))
}

// BenchmarkPorts measures 50 ports added in one Apply, until all are programmed.
func BenchmarkPorts(b *testing.B) {
	const n = 50
	l := newLive(b, 0)
	defer l.drv.Close()
	for i := range n {
		name := fmt.Sprintf("cvb%d", i)
		l.Run("ip", "-n", l.NS, "link", "add", name, "type", "veth", "peer", "name", "p"+name)
	}
	var took time.Duration
	rounds := 0
	for b.Loop() {
		for i := range n {
			name := fmt.Sprintf("cvb%d", i)
			v4 := netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)})
			l.pic.Ports = l.pic.Ports.Set(name, &desired.Port{
				IfName: name, Network: 7, MAC: model.EndpointMAC(l.net.Key, v4, netip.Addr{}), IPv4: v4, Identity: 300,
			})
		}
		start := time.Now()
		l.apply(b)
		took += time.Since(start)
		rounds++
		l.pic.Ports = desired.Map[string, *desired.Port]{}
		l.apply(b)
		l.settle(rounds)
	}
	b.ReportMetric(float64(n*rounds)/took.Seconds(), "ports/s")
}

// BenchmarkPort measures one port added by an Apply.
func BenchmarkPort(b *testing.B) {
	l := newLive(b, 1)
	defer l.drv.Close()
	l.Run("ip", "-n", l.NS, "link", "add", "cvone", "type", "veth", "peer", "name", "pone")
	v4 := netip.AddrFrom4([4]byte{10, 9, 0, 99})
	with := l.pic.Ports.Set("cvone", &desired.Port{
		IfName: "cvone", Network: 7, MAC: model.EndpointMAC(l.net.Key, v4, netip.Addr{}), IPv4: v4, Identity: 300,
	})
	without := l.pic.Ports
	var took time.Duration
	rounds := 0
	for b.Loop() {
		l.pic.Ports = with
		start := time.Now()
		l.apply(b)
		took += time.Since(start)
		rounds++
		l.pic.Ports = without
		l.apply(b)
		l.settle(rounds)
	}
	b.ReportMetric(float64(took.Milliseconds())/float64(rounds), "ms/add")
}

// BenchmarkEndpointChange measures an Apply that changes one remote endpoint
// among many on a real switch, and a restart that reads all flows back.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newLive(b, 1)
			remote := func(i int, id model.Identity) (desired.RemoteKey, *desired.Remote) {
				r := &desired.Remote{
					Network: 7, MAC: model.MAC{2, 2, 10, 2, byte(i >> 8), byte(i)}, IPv4: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}),
					Identity: id, VTEP: netip.AddrFrom4([4]byte{1, 2, 3, 4}),
				}
				return desired.RemoteKey{Network: 7, MAC: r.MAC}, r
			}
			for i := range n {
				l.pic.Remotes = l.pic.Remotes.Set(remote(i, 300))
			}
			start := time.Now()
			l.apply(b)
			first := time.Since(start)
			id := model.Identity(301)
			for b.Loop() {
				l.pic.Remotes = l.pic.Remotes.Set(remote(n/2, id))
				id++
				l.apply(b)
			}
			b.StopTimer()
			_ = l.drv.Close()
			start = time.Now()
			l.open(b)
			if rep := l.apply(b); rep.Changes != 0 {
				b.Errorf("a restart made %d changes", rep.Changes)
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms-restart")
			b.ReportMetric(float64(first.Microseconds())/1000, "ms-first")
			_ = l.drv.Close()
		})
	}
}
