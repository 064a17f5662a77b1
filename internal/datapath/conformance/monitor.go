package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// monitored is a case in which a rule denies, another allows, and a default denies.
func monitored() Case {
	rule := func(name string, dir model.Direction, prio int, action model.Action, port int) model.Rule {
		return model.Rule{
			Key:       model.RuleKey{Tenant: "blue", Policy: "p1", Rule: model.RuleID(name)},
			Direction: dir, Priority: prio, Action: action, Protocol: model.ProtoTCP, Port: uint16(port),
		}
	}
	return Case{
		Name:     "monitored",
		Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
		Rules: []model.Rule{
			rule("1", model.In, 10, model.Deny, 80),
			rule("2", model.In, 20, model.Allow, 8080),
			rule("3", model.Out, 20, model.Deny, 22),
		},
		Attach: map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: "db"}: {"p1"}},
	}
}

// testMonitor: a denied packet, an unknown source, a spoofed one and new connections are
// reported with the deciding rule. Without a monitor there are no reports.
func testMonitor(t *testing.T, h Harness) {
	t.Helper()
	top := StandardTopology()
	b, w := sending(t, h, top, monitored())
	pic := w.Desired["h1"]
	b.apply(t, pic)
	packets := monitoredPackets(top)
	for _, p := range packets[:2] { // no monitor listens yet
		b.compare(t, p.name, p.packet)
	}
	for round, opts := range []driver.MonitorOptions{{}, {Connections: true}, {Connections: true, NoDrops: true}} {
		ctx, cancel := context.WithCancel(context.Background())
		want, got := b.monitors(ctx, t, opts)
		if _, err := b.drv.Monitor(ctx, opts); !errors.Is(err, model.ErrConflict) {
			t.Errorf("a second Monitor() = %v, want a conflict", err)
		}
		if r := b.apply(t, pic); r.Changes != 0 {
			t.Errorf("the same state, monitored, made %d changes", r.Changes)
		}
		for _, p := range packets {
			b.compare(t, p.name, p.packet)
		}
		least := 6
		if opts.NoDrops {
			least = 3
		}
		compareEvents(t, want, got, least)
		cancel()
		drain(t, got)
		drain(t, want)
		packets = monitoredPackets(top)
		for i := range packets { // new connections again
			packets[i].packet.SrcPort += 100 * uint16(round+1)
		}
	}
	if h.Egress {
		monitorEgress(t, b, top)
		b.apply(t, pic)
	}
	if r := b.apply(t, pic); r.Changes != 0 {
		t.Errorf("the same state, no longer monitored, made %d changes", r.Changes)
	}
	for range 5 { // a monitor may begin as soon as the one before has ended
		ctx, cancel := context.WithCancel(context.Background())
		events, err := b.drv.Monitor(ctx, driver.MonitorOptions{Connections: true})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		drain(t, events)
	}
	monitorChanged(t, b, pic, top)
	last, err := b.drv.Monitor(context.Background(), driver.MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.close(t)
	drain(t, last)
}

// monitors begins a monitor of the reference and one of the driver.
func (b *bench) monitors(ctx context.Context, t *testing.T, opts driver.MonitorOptions) (want, got <-chan driver.FlowEvent) {
	t.Helper()
	want, err := b.ref.Monitor(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = b.drv.Monitor(ctx, opts); err != nil {
		t.Fatalf("Monitor() = %v", err)
	}
	return want, got
}

// monitorChanged: a monitor's options may change while it is under way; what is
// told then is what the new ones ask for.
func monitorChanged(t *testing.T, b *bench, pic desired.Host, top Topology) {
	t.Helper()
	if err := b.drv.ChangeMonitor(context.Background(), driver.MonitorOptions{}); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("ChangeMonitor() without a monitor = %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begin := driver.MonitorOptions{NoDrops: true}
	want, got := b.monitors(ctx, t, begin)
	packets := monitoredPackets(top)
	for round, opts := range []driver.MonitorOptions{{}, {Connections: true, NoDrops: true}, {Connections: true}} {
		if err := errors.Join(b.ref.ChangeMonitor(ctx, opts), b.drv.ChangeMonitor(ctx, opts)); err != nil {
			t.Fatalf("ChangeMonitor(%+v) = %v", opts, err)
		}
		if r := b.apply(t, pic); r.Changes != 0 {
			t.Errorf("the same state, monitored otherwise, made %d changes", r.Changes)
		}
		for _, p := range packets {
			p.packet.SrcPort += 1000 + 100*uint16(round) // new connections
			p.packet.DstPort += uint16(round) << 10      // that are not alike
			b.compare(t, p.name, p.packet)
		}
		compareEvents(t, want, got, 3)
	}
	cancel()
	drain(t, got)
	drain(t, want)
	if err := b.drv.ChangeMonitor(context.Background(), begin); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("ChangeMonitor() after the end = %v", err)
	}
	if r := b.apply(t, pic); r.Changes != 0 {
		t.Errorf("the same state, no longer monitored, made %d changes", r.Changes)
	}
}

// monitorEgress: packets to and from the host's stack are reported with the endpoint's own
// address.
func monitorEgress(t *testing.T, b *bench, top Topology) {
	t.Helper()
	pic, packets := egressPackets(top, b.Egress6)
	b.apply(t, pic)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opts := driver.MonitorOptions{Connections: true}
	want, got := b.monitors(ctx, t, opts)
	for _, p := range packets {
		b.compare(t, p.name, p.packet)
	}
	compareEvents(t, want, got, 6)
	cancel()
	drain(t, got)
	drain(t, want)
}

// egressPackets is a desired state with egress and policies, and packets that go by it.
func egressPackets(top Topology, six bool) (desired.Host, []namedPacket) {
	comp := NewCompiler(top, "h1")
	WithEgress(top, comp, six)
	attachRules(top, comp, egressRules())
	pic, _ := comp.Compile(1)
	web1 := at(top, "web1")
	private := portOf(pic, web1).Private
	var out []namedPacket
	for i, port := range []uint16{80, 443, 444} {
		p := between(top, web1, web1, model.ProtoTCP, false, 43000+uint16(i), port)
		p.Dst, p.DstMAC = Outside, desired.RouterMAC
		out = append(out, namedPacket{fmt.Sprintf("to the outside, port %d", port), p})
	}
	for i, port := range []uint16{8080, 22, 23} {
		out = append(out, namedPacket{fmt.Sprintf("from the outside, port %d", port), reference.Packet{
			Host: true, Src: Outside, Dst: private, Proto: model.ProtoTCP, SrcPort: 44000 + uint16(i), DstPort: port, TCPFlags: reference.FlagSYN,
		}})
	}
	return pic, out
}

// drain expects a channel to be closed.
func drain(t *testing.T, ch <-chan driver.FlowEvent) {
	t.Helper()
	late := time.After(eventPatience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the events' channel is not closed")
		}
	}
}

// eventPatience is how long an event may take on a busy machine.
const eventPatience = 2 * time.Minute

// compareEvents expects each event that the reference data plane told, in any order, and no other
// one before the last of them. As many may be missing as the driver says it has lost. The
// reference data plane has to have told at least least.
func compareEvents(t *testing.T, want, got <-chan driver.FlowEvent, least int) {
	t.Helper()
	var expected, seen []driver.FlowEvent
	for len(want) > 0 {
		expected = append(expected, withoutTime(<-want))
	}
	late := time.After(eventPatience)
	missing, lost := slices.Clone(expected), uint64(0)
	for uint64(len(missing)) > lost {
		select {
		case e := <-got:
			if e.Kind == driver.FlowLost {
				lost += e.Count
				t.Logf("the driver has lost %d packets' events", e.Count)
				continue
			}
			if d := time.Since(e.Time); d < -time.Minute || d > 10*time.Minute { // emulated machines are slow
				t.Errorf("event of %s: %+v", e.Time, e)
			}
			e = withoutTime(e)
			seen = append(seen, e)
			missing = slices.DeleteFunc(missing, func(m driver.FlowEvent) bool { return cmp.Equal(m, e, addresses) })
		case <-late:
			t.Fatalf("events (-want +got):\n%s", cmp.Diff(expected, seen, addresses))
		}
	}
	for _, e := range seen {
		if !slices.ContainsFunc(expected, func(x driver.FlowEvent) bool { return cmp.Equal(x, e, addresses) }) {
			t.Errorf("unexpected event %+v", e)
		}
	}
	if len(expected) < least {
		t.Errorf("only %d events were compared", len(expected))
	}
}

// withoutTime leaves out the time.
func withoutTime(e driver.FlowEvent) driver.FlowEvent {
	e.Time = time.Time{}
	return e
}

var addresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// monitoredPackets are packets of h1 that differ in more than their source port.
func monitoredPackets(top Topology) []namedPacket {
	at := func(id string) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: model.EndpointID(id)})
	}
	web1, db1, db2, solo1 := at("web1"), at("db1"), at("db2"), at("solo1")
	var out []namedPacket
	add := func(name string, p reference.Packet, edits ...func(*reference.Packet)) {
		for _, edit := range edits {
			edit(&p)
		}
		out = append(out, namedPacket{name, p})
	}
	tcp := func(from, to model.Endpoint, v6 bool, port uint16) reference.Packet {
		return between(top, from, to, model.ProtoTCP, v6, 41000, port)
	}
	add("denied by a rule for what comes in", tcp(web1, db1, false, 80))
	add("denied on IPv6", tcp(web1, db1, true, 80))
	add("denied from another host", tcp(db2, db1, false, 80))
	add("denied by a rule for what goes out", tcp(db1, web1, false, 22))
	add("from nobody", tcp(db2, web1, false, 8080), func(p *reference.Packet) {
		p.Src = netip.MustParseAddr("10.1.1.250")
		p.SrcMAC = model.MAC{2, 0x66, 0, 0, 0, 1}
	})
	add("in another's name", tcp(web1, db1, false, 8080), func(p *reference.Packet) { p.Src = solo1.IPv4 })
	add("to nobody", tcp(web1, db1, false, 8080), func(p *reference.Packet) { p.DstMAC = model.MAC{2, 0x66, 0, 0, 0, 2} })
	arp := origin(top, web1)
	arp.SrcMAC, arp.DstMAC = web1.MAC, reference.Broadcast
	arp.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: web1.MAC, SenderIP: web1.IPv4, TargetIP: netip.MustParseAddr("10.1.1.250")}
	add("ARP for nobody", arp)
	add("ARP in another's name", arp, func(p *reference.Packet) {
		a := *p.ARP
		a.SenderIP = solo1.IPv4
		p.ARP = &a
	})
	add("allowed by a rule", tcp(web1, db1, false, 8080))
	add("allowed, no rule matches", tcp(web1, db1, false, 443))
	add("allowed, no policy", tcp(db2, web1, false, 8080))
	return out
}
