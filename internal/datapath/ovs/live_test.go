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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
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

// opened is a driver. An emulated switch that is busy may not answer it in time: it tries
// again, as netplugin does when it is started again.
func opened(t testing.TB, cfg Config) *Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ovstest.Patience(20*time.Second))
	defer cancel()
	for {
		d, err := open(ctx, cfg)
		if err == nil {
			return d
		}
		if !ovstest.Kernel() || ctx.Err() != nil || !errors.Is(err, model.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

func (l *live) open(t testing.TB) {
	t.Helper()
	l.drv = opened(t, l.cfg)
}

func (l *live) addBox(t testing.TB, i int) {
	t.Helper()
	l.addBoxOn(t, l.net, i, i+1)
}

func (l *live) addBoxOn(t testing.TB, n *desired.Network, i, addr int) {
	t.Helper()
	b := &box{ns: fmt.Sprintf("%sb%d", l.NS, i)}
	sub4, sub6 := n.Subnet.Addr().As4(), l.net.Subnet6.Addr().As16()
	if n.Subnet6.IsValid() {
		sub6 = n.Subnet6.Addr().As16()
	}
	sub4[3], sub6[15] = byte(addr), byte(addr)
	v4, v6 := netip.AddrFrom4(sub4), netip.AddrFrom16(sub6)
	b.port = &desired.Port{
		IfName: fmt.Sprintf("cvbox%d", i), Endpoint: model.EndpointKey{Network: n.Key, ID: model.EndpointID(fmt.Sprint("b", i))},
		Network: n.ID, MAC: model.EndpointMAC(n.Key, v4, v6), IPv4: v4, IPv6: v6, Identity: model.Identity(300 + i),
	}
	l.Run("ip", "netns", "add", b.ns)
	t.Cleanup(func() { _, _ = l.Try("ip", "netns", "del", b.ns) })
	l.plug(b)
	l.boxes = append(l.boxes, b)
	l.pic.Ports = l.pic.Ports.Set(b.port.IfName, b.port)
}

// plug makes a box's interface.
func (l *live) plug(b *box) {
	l.Run("ip", "-n", l.NS, "link", "add", b.port.IfName, "type", "veth", "peer", "name", "eth0", "netns", b.ns, "address", b.port.MAC.String())
	l.Run("ip", "-n", l.NS, "link", "set", b.port.IfName, "up")
	for _, args := range [][]string{
		{"addr", "add", b.port.IPv4.String() + "/24", "dev", "eth0"},
		{"addr", "add", b.port.IPv6.String() + "/64", "dev", "eth0", "nodad"},
		{"link", "set", "lo", "up"},
		{"link", "set", "eth0", "up"},
	} {
		l.Run(append([]string{"ip", "-n", b.ns}, args...)...)
	}
	l.Run("ip", "netns", "exec", b.ns, "ethtool", "-K", "eth0", "tx", "off")
}

func (l *live) apply(t testing.TB) driver.Report {
	t.Helper()
	l.pic.Revision++
	rep, err := l.drv.Apply(context.Background(), l.pic)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range rep.Ports.All() {
		if p.Err != nil {
			t.Fatalf("port %s: %v", name, p.Err)
		}
	}
	return rep
}

// in prepares a program in a box; who starts it waits for it.
func (l *live) in(b *box, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "ip", append([]string{"netns", "exec", b.ns}, args...)...)
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
			tier.Rules = desired.RulesOf(desired.Rule{
				ID: "r1", Priority: 5, Action: model.Deny, AnyPeer: true,
				Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: tcpPort, Hi: tcpPort}},
			})
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
		ln, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+strconv.Itoa(port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(c, c) })
		}
	})
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
