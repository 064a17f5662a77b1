//go:build integration

package slice

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// beyond is somebody outside, behind the first host's link to it.
const beyond = "beyond"

var (
	beyondAddr = netip.MustParseAddr("203.0.113.7")
	linkAddr   = netip.MustParseAddr("203.0.113.1")
	hostAddr   = netip.MustParseAddr("172.19.255.254")
	routerAddr = netip.MustParseAddr("169.254.1.1")
)

// TestContainersReachOutsideAsPoliciesSay checks egress on a host: containers of two tenants with the
// same addresses reach the host and somebody behind it, policies say who may,
// ports are published, big packets and small links work, and restarts of
// netplugin and of the switch lose nothing of it.
func TestContainersReachOutsideAsPoliciesSay(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(outside))
}

func outside(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "out", 1, in(where))
	h := c.host("h1")
	c.netctl(
		"tenant create blue", "tenant create red",
		"network create -t blue -e vxlan -s 10.1.1.0/24 vx",
		"network create -t red -e vxlan -s 10.1.1.0/24 vx",
		"network create -t blue -e vxlan -s 10.1.2.0/24 -g 10.1.2.254 gw",
		"network create -t blue -e vlan -s 10.1.3.0/24 vl",
		"network create -t blue -e vxlan -s 10.1.4.0/24 -g 10.1.4.254 --subnetv6 2001:db8:4::/64 --gatewayv6 2001:db8:4::1 six",
		"policy create -t blue some",
		"policy rule-add -t blue -d out -j deny -l tcp -P 80 some 1",
		"policy rule-add -t blue -d in -j deny -l tcp -P 81 some 2",
		"group create -t blue -p some vx some",
	)
	c.attachBeyond(h)
	c.add(spec("b", "h1", "blue/vx"), spec("r", "h1", "red/vx")) // first: they get the same address
	c.add(spec("g", "h1", "blue/gw"), spec("v", "h1", "blue/vl"), spec("p", "h1", "blue/vx/some"))
	c.add(spec("s", "h1", "blue/six"), spec("s2", "h1", "blue/six"))
	// IPv6 has no route outside: a connection fails at once, and not after minutes.
	if _, err := c.space("s").Dial(t.Context(), "tcp", "[2001:db8::1]:80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("to the outside by IPv6: %v, want it to be unreachable at once", err)
	}
	c.probe("s", testcluster.Target{Proto: "tcp", Addr: c.addr("s2", "6"), Port: 80}, testcluster.OK, "s2")
	c.probe("s", testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}, testcluster.OK, beyond)
	if _, err := c.Serve("p", "tcp/81"); err != nil {
		t.Fatal(err)
	}
	if c.addr("b", "4") != c.addr("r", "4") {
		t.Fatalf("the tenants' containers have %s and %s, not the same address", c.addr("b", "4"), c.addr("r", "4"))
	}
	for _, from := range []string{"b", "r", "g", "v"} {
		for _, to := range []testcluster.Target{
			{Proto: "icmp", Addr: beyondAddr},
			{Proto: "tcp", Addr: beyondAddr, Port: 80},
			{Proto: "udp", Addr: beyondAddr, Port: 80},
			{Proto: "icmp", Addr: hostAddr},
			{Proto: "icmp", Addr: linkAddr},
			{Proto: "icmp", Addr: routerAddr},
		} {
			c.probe(from, to, testcluster.OK, "")
		}
	}
	c.probe("b", testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 9}, testcluster.Refused, "") // the host's own answer
	c.probe("p", testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}, testcluster.Denied, "")
	c.probe("p", testcluster.Target{Proto: "udp", Addr: beyondAddr, Port: 80}, testcluster.OK, beyond)

	publish := func(name string, ports ...attach.PortBinding) error {
		_, err := h.Attach().Publish(t.Context(), attach.PublishRequest{Key: c.key(name), Ports: ports})
		return err
	}
	tcp := func(host, cont uint16) attach.PortBinding {
		return attach.PortBinding{Proto: model.ProtoTCP, HostPort: host, ContainerPort: cont}
	}
	udp := attach.PortBinding{Proto: model.ProtoUDP, HostPort: 8080, ContainerPort: 80}
	for name, ports := range map[string][]attach.PortBinding{
		"b": {tcp(8080, 80), udp}, "r": {tcp(8081, 80)}, "p": {tcp(8082, 80), tcp(8083, 81)},
	} {
		if err := publish(name, ports...); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish("g", tcp(8080, 80)); !errors.Is(err, model.ErrExists) {
		t.Errorf("a port published twice: %v", err)
	}
	published := func(when string) {
		t.Helper()
		for port, name := range map[uint16]string{8080: "b", 8081: "r", 8082: "p"} {
			c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: port}, testcluster.OK, name)
			if a := h.NS.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: netip.MustParseAddr("127.0.0.1"), Port: port}, 3*time.Second); a.Verdict != testcluster.OK || a.From != name {
				t.Errorf("%s: port %d at the host's loopback: %s by %q", when, port, a, a.From)
			}
			c.probe("g", testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: port}, testcluster.OK, name)
		}
		c.probe(beyond, testcluster.Target{Proto: "udp", Addr: linkAddr, Port: 8080}, testcluster.OK, "b")
		c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 8083}, testcluster.Denied, "") // by an in rule
	}
	published("at first")
	if t.Failed() {
		t.FailNow()
	}
	c.bigThings(h)

	// Connections both ways live through a restart.
	conns := map[string]net.Conn{}
	for _, x := range []struct{ from, to string }{{"b", beyondAddr.String() + ":80"}, {beyond, linkAddr.String() + ":8080"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		conn, err := c.space(x.from).Dial(ctx, "tcp", x.to)
		if cancel(); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[x.from+" to "+x.to] = conn
	}
	alive := func(when string) {
		t.Helper()
		for name, conn := range conns {
			if err := echo(conn, 3*time.Second); err != nil {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
	}
	alive("before the restart")
	if err := h.KillAgent(); err != nil {
		t.Fatal(err)
	}
	alive("without netplugin")
	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	alive("after the restart")
	published("after the restart")
	if driver == testcluster.DriverOVS {
		c.crashSwitch(h)
		alive("after a crash of the switch")
		published("after a crash of the switch")
	}

	if err := publish("b"); err != nil {
		t.Fatal(err)
	}
	if a := c.space(beyond).Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 8080}, 2*time.Second); a.Verdict == testcluster.OK {
		t.Error("a port that is not published any more answers")
	}
	if err := c.DelContainer(t.Context(), spec("r", "h1", "red/vx")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := testcluster.Until(ctx, "the port of a container that is gone to close", func(ctx context.Context) error {
		if a := c.space(beyond).Probe(ctx, testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 8081}, 300*time.Millisecond); a.Verdict == testcluster.OK {
			return errors.New("it is open")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// crashSwitch kills ovs-vswitchd, starts it again, and waits until a container
// reaches the outside.
func (c *cluster) crashSwitch(h *testcluster.Host) {
	c.t.Helper()
	if err := h.Switch.RestartVswitchd(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	if err := testcluster.Until(ctx, "the outside to be reached again", func(ctx context.Context) error {
		if a := c.space("b").Probe(ctx, testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}, 300*time.Millisecond); a.Verdict != testcluster.OK {
			return fmt.Errorf("it is %s", a)
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) key(name string) attach.Key {
	return attach.Key{Container: c.Config().Name + "-" + name, IfName: "eth0"}
}

// attachBeyond puts somebody outside behind a link of a host.
func (c *cluster) attachBeyond(h *testcluster.Host) {
	c.t.Helper()
	ns, err := c.AddNamespace(beyond)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, args := range []string{
		"link add up0 type veth peer name o0 netns " + ns.Name,
		"addr add " + linkAddr.String() + "/24 dev up0", "link set up0 up",
	} {
		if out, err := h.Run(c.t.Context(), "ip", strings.Fields(args)...); err != nil {
			c.t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	for _, args := range []string{"addr add " + beyondAddr.String() + "/24 dev o0", "link set o0 up"} {
		if out, err := ns.Command(c.t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			c.t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	if _, err := c.Serve(beyond, "tcp/80", "udp/80"); err != nil {
		c.t.Fatal(err)
	}
}

// probe asks and compares who answers, if it is said.
func (c *cluster) probe(from string, to testcluster.Target, want testcluster.Verdict, who string) {
	c.t.Helper()
	wait := 3 * time.Second
	if want == testcluster.Denied {
		wait = 500 * time.Millisecond
	}
	a := c.space(from).Probe(c.t.Context(), to, wait)
	if a.Err != nil || a.Verdict != want || who != "" && a.From != who {
		c.t.Errorf("%s to %s: %s by %q, want %s by %q", from, to, a, a.From, want, who)
	}
}

// bigThings sends what offloads, fragments and small links make difficult.
func (c *cluster) bigThings(h *testcluster.Host) {
	c.t.Helper()
	// The far end mirrors everything.
	stop, err := c.reflector(beyond, beyondAddr.String()+":90")
	if err != nil {
		c.t.Fatal(err)
	}
	defer stop()
	stopB, err := c.reflector("b", c.addr("b", "4").String()+":90")
	if err != nil {
		c.t.Fatal(err)
	}
	defer stopB()
	bind := []attach.PortBinding{
		{Proto: model.ProtoTCP, HostPort: 8080, ContainerPort: 80},
		{Proto: model.ProtoUDP, HostPort: 8080, ContainerPort: 80},
		{Proto: model.ProtoTCP, HostPort: 8090, ContainerPort: 90},
		{Proto: model.ProtoUDP, HostPort: 8090, ContainerPort: 90},
	}
	if _, err := h.Attach().Publish(c.t.Context(), attach.PublishRequest{Key: c.key("b"), Ports: bind}); err != nil {
		c.t.Fatal(err)
	}
	both := func(what string) {
		c.t.Helper()
		for _, x := range []struct{ from, to string }{{"b", beyondAddr.String() + ":90"}, {beyond, linkAddr.String() + ":8090"}, {"r", linkAddr.String() + ":8090"}} {
			if err := c.bulk(x.from, x.to, 8<<20); err != nil {
				c.t.Errorf("%s: 8 MiB from %s to %s and back: %v", what, x.from, x.to, err)
			}
		}
	}
	both("full frames")
	for _, x := range []struct{ from, to string }{{"b", beyondAddr.String() + ":90"}, {beyond, linkAddr.String() + ":8090"}} {
		for _, size := range []int{1400, 4000, 20000} {
			if err := c.datagram(x.from, x.to, size); err != nil {
				c.t.Errorf("datagram of %d bytes from %s to %s and back: %v", size, x.from, x.to, err)
			}
		}
	}
	// A sender whose packets pass a router hears of its errors: path MTU, time
	// exceeded.
	if out, err := h.Run(c.t.Context(), "ip", "link", "set", "up0", "mtu", "1200"); err != nil {
		c.t.Fatal(err, out)
	}
	// So does the far end of a link, but it offers to take more: who sends to it
	// has to learn by those errors. (It would send more, too, of which a veth
	// takes what is to be cut later, and drops single segments: every lost one
	// would stay lost.)
	link := "route replace 203.0.113.0/24 dev o0 src " + beyondAddr.String() + " mtu 1200 advmss 1460"
	if out, err := c.space(beyond).Command(c.t.Context(), "ip", strings.Fields(link)...).CombinedOutput(); err != nil {
		c.t.Fatalf("ip %s: %v %s", link, err, out)
	}
	both("a link of 1200 bytes")
	out, _ := c.space("b").Command(c.t.Context(), "ping", "-c", "1", "-W", "2", "-M", "do", "-s", "1300", beyondAddr.String()).CombinedOutput()
	if !strings.Contains(string(out), "mtu = 1200") && !strings.Contains(string(out), "mtu=1200") {
		c.t.Errorf("a packet too big for the link:\n%s", out)
	}
	out, _ = c.space("b").Command(c.t.Context(), "ping", "-c", "1", "-W", "2", "-t", "1", beyondAddr.String()).CombinedOutput()
	if !strings.Contains(string(out), hostAddr.String()) || !strings.Contains(string(out), "Time to live exceeded") {
		c.t.Errorf("a packet whose time ends at the router:\n%s", out)
	}
}

// reflector sends everything back, over TCP and UDP.
func (c *cluster) reflector(space, at string) (stop func(), err error) {
	return c.space(space).Reflect(c.t.Context(), at)
}

// bulk sends random bytes to a reflector and compares what comes back.
func (c *cluster) bulk(from, to string, size int64) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := c.space(from).Dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	sent, sending := sha256.New(), make(chan error, 1)
	go func() {
		src := io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
		_, err := io.Copy(conn, io.TeeReader(src, sent))
		sending <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	got := sha256.New()
	n, err := io.Copy(got, conn)
	if err := errors.Join(err, <-sending); err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}
	if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		return fmt.Errorf("%d bytes came back, not those that were sent", n)
	}
	return nil
}

// datagram sends one datagram to a reflector, at most five times, and compares what
// comes back.
func (c *cluster) datagram(from, to string, size int) error {
	conn, err := c.space(from).Dial(c.t.Context(), "udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	b, back := bytes.Repeat([]byte{byte(size)}, size), make([]byte, 65536)
	for range 5 {
		if _, err = conn.Write(b); err != nil {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		var n int
		if n, err = conn.Read(back); err == nil {
			if !bytes.Equal(back[:n], b) {
				return fmt.Errorf("%d bytes came back, not those that were sent", n)
			}
			return nil
		}
	}
	return err
}
