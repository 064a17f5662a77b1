package ovs

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRuleChangeCutsAndResumesAConnection changes a rule under an established connection: it is cut
// and goes on, and the time to the last packet is measured.
func TestRuleChangeCutsAndResumesAConnection(t *testing.T) {
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
		err := roundTrip(c, 100*time.Millisecond)
		for ovstest.Kernel() && err == nil && time.Since(start) < 2*time.Second {
			closed = time.Since(start) // the kernel's flows follow, and no caller waits for them
			err = roundTrip(c, 100*time.Millisecond)
		}
		if err == nil {
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

// TestKernelAcceptsTheRespondersAnswers lets the kernel's own neighbour discovery, duplicate detection
// and ARP meet the answers in flows.
func TestKernelAcceptsTheRespondersAnswers(t *testing.T) {
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
	for _, to := range []string{b.port.IPv4.String(), b.port.IPv6.String(), b.port.MAC.LinkLocal().String() + "%eth0"} {
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
	if ovstest.Kernel() {
		return // who is asked answers to all, and is not heard: docs/design/ovs-pipeline.md
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

// TestFragmentedDatagramsArrive sends datagrams bigger than the interface's MTU.
func TestFragmentedDatagramsArrive(t *testing.T) {
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

// TestFragmentsFollowThePortOfTheirFirst: later fragments have no ports, and go where their first
// one may go, also where only its port is allowed: new datagrams, more of the
// same connection, and answers.
func TestFragmentsFollowThePortOfTheirFirst(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	only := func(port uint16) {
		p := *b.port
		p.Policies = 5
		s := &desired.PolicySet{ID: 5, Name: "p", In: []desired.Tier{{
			Tier: model.TierContiv, Default: model.Deny,
			Rules: desired.RulesOf(desired.Rule{
				ID: "r1", Priority: 5, Action: model.Allow, AnyPeer: true,
				Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: port, Hi: port}},
			}),
		}}}
		l.pic.PolicySets = l.pic.PolicySets.Set(5, s)
		b.port = &p
		l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
		l.apply(t)
	}
	for _, to := range []netip.Addr{b.port.IPv4, b.port.IPv6} {
		only(8053)
		for _, size := range []int{16, 4000} {
			if _, err := l.datagrams(t, a, b, to, size); err != nil {
				t.Errorf("%d bytes to an allowed port of %v: %v", size, to, err)
			}
		}
		only(8054)
		bytes := func(s driver.Stats) uint64 {
			return max(s.Ports[b.port.IfName].RxBytes, s.Ports[b.port.IfName].TxBytes)
		}
		before, err := l.drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.datagrams(t, a, b, to, 4000); err == nil {
			t.Errorf("4000 bytes reach a port of %v that is not allowed", to)
		}
		after, err := l.drv.Stats(t.Context())
		if err != nil || bytes(after) > bytes(before)+1000 {
			t.Errorf("of what is not allowed %v got something: %+v, then %+v, %v", to, before.Ports[b.port.IfName], after.Ports[b.port.IfName], err)
		}
	}
}
