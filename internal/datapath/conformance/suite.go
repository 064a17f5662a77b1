package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Harness is one data plane under test, and what the suite needs to do to it
// behind the driver's back. A nil hook skips the tests that need it, by name.
type Harness struct {
	// Open starts a driver on the data plane, as a (re)started agent would. The
	// suite closes it before it opens the next one.
	Open func(t testing.TB) driver.Driver
	// AddInterface makes the host side of a container's interface, not yet part
	// of the data plane. It goes away at the end of the test.
	AddInterface func(t testing.TB, name string, mac model.MAC)
	// RemoveInterface deletes what AddInterface made; DownInterface sets it down,
	// or up again; RenameInterface gives it another name (nil = the data plane goes
	// on with a renamed interface).
	RemoveInterface func(t testing.TB, name string)
	DownInterface   func(t testing.TB, name string, down bool)
	RenameInterface func(t testing.TB, from, to string)
	// HasInterface reports whether the host has an interface; nil = the data plane is
	// not on this machine, and makes none.
	HasInterface func(t testing.TB, name string) bool
	// Unmanaged makes objects that are not ours in the data plane and returns a
	// check that they are still there, unchanged.
	Unmanaged func(t testing.TB) (intact func(t testing.TB))
	// Garbage makes objects that are recognisably ours but in no desired state (a port,
	// flows, a tunnel), as an agent that died long ago would leave them, and
	// returns a check that they are gone.
	Garbage func(t testing.TB) (swept func(t testing.TB))
	// Break makes the next Apply fail midway (the connection is cut, the n-th
	// write is refused), and only that one.
	Break func(t testing.TB, n int)
	// Send puts a packet into the data plane and says where it came out: Ports,
	// VTEPs, Uplink and Answer (ReadAnswer) are compared with the reference data plane's verdict;
	// Drop is set when it came out nowhere (which reason does not matter). Of a
	// routed packet, Network or VLAN say on which one it came out, and Sent
	// (ReadPacket) what it looked like there.
	Send func(t testing.TB, p reference.Packet) reference.Verdict
	// Frames puts frames into the data plane, each where a packet comes from, and returns
	// what has come out by interface, "" being the uplink (frames with their tag), once
	// done says that it is enough.
	Frames func(t testing.TB, from []reference.Packet, frames [][]byte, done func(came map[string][][]byte) bool) map[string][][]byte
	// Egress: Send knows packets from and to the host's interface
	// (desired.HostNAT), and says in Sent what a translated packet looks like
	// (ReadPacket) where it came out.
	Egress bool
	// Egress6: likewise by IPv6, as the driver's Capabilities say.
	Egress6 bool
	// Slow: packets take so long that a sample of the generated policies, which the
	// seed chooses, and a fifth of their packets have to do.
	Slow bool
	// SkipPacket says why the harness cannot send a packet; "" = it can.
	SkipPacket func(p reference.Packet) string
	// Differs are the names of the cases in which the data plane is known to let
	// through less than the reference data plane, with the reason.
	Differs map[string]string
}

// suite has the conformance tests; programs marks those whose outcome only the
// data plane's programs decide, however they are attached.
var suite = []struct {
	name     string
	run      func(*testing.T, Harness)
	programs bool
}{
	{name: "Empty", run: testEmpty},
	{name: "GrowAndShrink", run: testGrowShrink},
	{name: "SameTwice", run: testSameTwice},
	{name: "RestartSameIsQuiet", run: testRestartSame},
	{name: "RestartSweeps", run: testRestartSweeps},
	{name: "UnmanagedUntouched", run: testUnmanaged},
	{name: "MissingInterface", run: testMissingInterface},
	{name: "LostInterface", run: testLostInterface},
	{name: "BreakThenConverge", run: testBreak},
	{name: "Cancelled", run: testCancelled},
	{name: "Packets", run: testPackets},
	{name: "LiveChange", run: testLiveChange},
	{name: "FragmentsInAnyOrder", run: testFragmentsInAnyOrder, programs: true},
	{name: "StrayFrames", run: testStrayFrames, programs: true},
	{name: "RoutedStrayFrames", run: testRoutedStrayFrames, programs: true},
	{name: "Multicast", run: testMulticast, programs: true},
	{name: "MulticastMessages", run: testMessages, programs: true},
	{name: "TunnelProbes", run: testTunnelProbes, programs: true},
	{name: "Selectors", run: testSelectors, programs: true},
	{name: "Tiers", run: testTiers, programs: true},
	{name: "Replies", run: testReplies, programs: true},
	{name: "SCTP", run: testSCTP, programs: true},
	{name: "Damaged", run: testDamaged, programs: true},
	{name: "Egress", run: testEgress},
	{name: "Routing", run: testRouting},
	{name: "RoutingPolicy", run: testRoutingPolicy, programs: true},
	{name: "RoutingLive", run: testRoutingLive, programs: true},
	{name: "RoutingEgress", run: testRoutingEgress},
	{name: "RoutingDamaged", run: testRoutingDamaged},
	{name: "SharedNetworks", run: testShared, programs: true},
	{name: "Services", run: testServices, programs: true},
	{name: "RoutedServices", run: testRoutedServices, programs: true},
	{name: "RandomServices", run: testRandomServices, programs: true},
	{name: "ExternalClients", run: testServicesOutside},
	{name: "Frontends", run: testFrontends},
	{name: "RandomFrontends", run: testRandomFrontends},
	{name: "ClientsByTunnel", run: testClientsByTunnel},
	{name: "RoutedNetworks", run: testNative},
	{name: "ExternalBackends", run: testExternalBackends},
	{name: "Monitor", run: testMonitor, programs: true},
	{name: "AuditRules", run: testAuditRules, programs: true},
	{name: "RandomAuditRules", run: testRandomAuditRules, programs: true},
	{name: "Capabilities", run: testCapabilities, programs: true},
}

// Run runs the conformance suite. start returns an empty data plane; it is
// called once per test.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	t.Helper()
	for _, test := range suite {
		t.Run(test.name, func(t *testing.T) { test.run(t, start(t)) })
	}
}

// bench is a harness with an open driver and the reference data plane that it is compared with.
type bench struct {
	Harness
	drv driver.Driver
	ref *reference.Driver
}

func open(t testing.TB, h Harness) *bench {
	t.Helper()
	b := &bench{Harness: h, drv: h.Open(t), ref: reference.New()}
	t.Cleanup(func() { b.close(t) })
	return b
}

func (b *bench) close(tb testing.TB) {
	tb.Helper()
	if b.drv != nil {
		if err := b.drv.Close(); err != nil {
			tb.Errorf("Close() = %v", err)
		}
		b.drv = nil
	}
}

func (b *bench) restart(tb testing.TB) {
	tb.Helper()
	b.close(tb)
	b.drv = b.Open(tb)
}

func (b *bench) interfaces(tb testing.TB, pics ...desired.Host) {
	tb.Helper()
	done := map[string]bool{}
	for _, pic := range pics {
		for name, p := range pic.Ports.All() {
			if !done[name] {
				done[name] = true
				b.AddInterface(tb, name, p.MAC)
			}
		}
	}
}

// apply applies a desired state to both and checks the report.
func (b *bench) apply(tb testing.TB, pic desired.Host) driver.Report {
	tb.Helper()
	report, err := b.drv.Apply(context.Background(), pic)
	if err != nil {
		tb.Fatalf("Apply() = %v", err)
	}
	if err := Failed(report); err != nil {
		tb.Errorf("Apply() reports %v", err)
	}
	if report.Revision != pic.Revision {
		tb.Errorf("report's revision = %d, want %d", report.Revision, pic.Revision)
	}
	if report.Ports.Len() != pic.Ports.Len() {
		tb.Errorf("report has %d ports, want %d", report.Ports.Len(), pic.Ports.Len())
	}
	if _, err := b.ref.Apply(context.Background(), pic); err != nil {
		tb.Fatalf("reference: Apply() = %v", err)
	}
	return report
}

func (b *bench) inspect(tb testing.TB) string {
	tb.Helper()
	text, err := b.drv.Inspect(context.Background())
	if err != nil {
		tb.Fatalf("Inspect() = %v", err)
	}
	return text
}

// DesiredStates returns the first host's desired state of the standard topology with some
// policies, and smaller and bigger ones: for tests of drivers.
func DesiredStates(tb testing.TB) (small, big desired.Host) {
	tb.Helper()
	top := StandardTopology()
	c := Cases(top)[1]
	w, err := NewWorld(top, c)
	if err != nil {
		tb.Fatal(err)
	}
	big = w.Desired["h1"]
	comp := NewCompiler(top, "h1")
	for _, e := range top.Endpoints {
		if e.Key.Network.Tenant == "red" || e.Key.ID == "db1" {
			comp.DeleteEndpoint(e.Key)
		}
	}
	small, _ = comp.Compile(1)
	return small, big
}

func emptyState(revision int64) desired.Host {
	comp := compile.New("h1")
	top := StandardTopology()
	comp.SetGlobal(top.Global)
	comp.SetHost(top.Hosts[0])
	pic, _ := comp.Compile(revision)
	return pic
}

// testEmpty: an empty desired state can be applied to an empty data plane.
func testEmpty(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	b.apply(t, emptyState(1))
	if r := b.apply(t, emptyState(2)); r.Changes != 0 {
		t.Errorf("the empty state again made %d changes", r.Changes)
	}
}

// testGrowShrink: state depends on the last desired state only, not on the way to it.
func testGrowShrink(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	small, big := DesiredStates(t)
	b.interfaces(t, small, big)
	b.apply(t, small)
	first := b.inspect(t)
	b.apply(t, big)
	second := b.inspect(t)
	b.apply(t, small)
	if diff := cmp.Diff(first, b.inspect(t)); diff != "" {
		t.Errorf("small, big, small differs from small (-want +got):\n%s", diff)
	}
	b.apply(t, emptyState(1))
	b.apply(t, big)
	if diff := cmp.Diff(second, b.inspect(t)); diff != "" {
		t.Errorf("empty, big differs from small, big (-want +got):\n%s", diff)
	}
}

// testSameTwice: applying the same desired state changes nothing, also when it was compiled
// again and shares no memory.
func testSameTwice(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	_, big := DesiredStates(t)
	_, again := DesiredStates(t)
	b.interfaces(t, big)
	if r := b.apply(t, big); r.Changes == 0 {
		t.Error("the first Apply made no changes")
	}
	for _, pic := range []desired.Host{big, again} {
		pic.Revision++
		if r := b.apply(t, pic); r.Changes != 0 {
			t.Errorf("the same state again made %d changes", r.Changes)
		}
	}
}

// testRestartSame: a restarted agent that wants what is there leaves the same state.
func testRestartSame(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	_, big := DesiredStates(t)
	b.interfaces(t, big)
	b.apply(t, big)
	b.restartsSame(t, big)
}

// restartsSame restarts the driver, which makes the same of a desired state as before, and
// has nothing to change then.
func (b *bench) restartsSame(tb testing.TB, pic desired.Host) {
	tb.Helper()
	before := b.inspect(tb)
	b.restart(tb)
	b.apply(tb, pic)
	if diff := cmp.Diff(before, b.inspect(tb)); diff != "" {
		tb.Errorf("state after a restart (-want +got):\n%s", diff)
	}
	if r := b.apply(tb, pic); r.Changes != 0 {
		tb.Errorf("the second Apply after a restart made %d changes", r.Changes)
	}
}

// testRestartSweeps: what a former agent left goes, unless it is wanted.
func testRestartSweeps(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	small, big := DesiredStates(t)
	b.interfaces(t, small, big)
	b.apply(t, small)
	want := b.inspect(t)
	b.apply(t, big)
	var swept func(testing.TB)
	if h.Garbage != nil {
		swept = h.Garbage(t)
	}
	b.restart(t)
	b.apply(t, small)
	if diff := cmp.Diff(want, b.inspect(t)); diff != "" {
		t.Errorf("state after a restart with garbage (-want +got):\n%s", diff)
	}
	if swept != nil {
		swept(t)
	}
}

// testUnmanaged: what is not ours stays, whatever is applied.
func testUnmanaged(t *testing.T, h Harness) {
	t.Helper()
	if h.Unmanaged == nil {
		t.Skip("the harness has no Foreign")
	}
	b := open(t, h)
	small, big := DesiredStates(t)
	b.interfaces(t, small, big)
	b.apply(t, small)
	intact := h.Unmanaged(t)
	b.apply(t, big)
	intact(t)
	b.restart(t)
	b.apply(t, emptyState(1))
	intact(t)
}

// testBreak: an Apply that fails midway is followed by one that converges.
func testBreak(t *testing.T, h Harness) {
	t.Helper()
	if h.Break == nil {
		t.Skip("the harness has no Break")
	}
	small, big := DesiredStates(t)
	b := open(t, h)
	b.interfaces(t, small, big)
	b.apply(t, big)
	want := b.inspect(t)
	for n := range 8 {
		b.apply(t, small)
		h.Break(t, n)
		if report, err := b.drv.Apply(context.Background(), big); err == nil && Failed(report) == nil && n == 0 {
			t.Errorf("Apply() with a broken data plane reports no failure")
		}
		b.apply(t, big)
		if diff := cmp.Diff(want, b.inspect(t)); diff != "" {
			t.Errorf("broken after %d, then converged (-want +got):\n%s", n, diff)
		}
	}
}

// testCancelled: a cancelled Apply returns an error and does no harm.
func testCancelled(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	_, big := DesiredStates(t)
	b.interfaces(t, big)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.drv.Apply(ctx, big); err == nil {
		t.Error("Apply() with a cancelled context = nil")
	}
	b.apply(t, big)
}

// testPackets: spoofed and honest ARP, ND and IP, and the probes of every
// generated policy, do what the reference data plane says, in proxy and in flood mode.
func testPackets(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	for i, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		b := open(t, h)
		top := StandardTopology()
		top.Global.ArpMode = mode
		w, err := NewWorld(top, Case{})
		if err != nil {
			t.Fatal(err)
		}
		if mode == model.ArpProxy {
			b.interfaces(t, w.Desired["h1"])
		}
		b.apply(t, w.Desired["h1"])
		for _, x := range craftedPackets(top, uint16(10000+1000*i)) {
			b.compare(t, fmt.Sprintf("%s: %s", mode, x.name), x.packet)
		}
		for _, x := range senders(top, uint16(15000+1000*i)) {
			b.compare(t, fmt.Sprintf("%s: %s", mode, x.name), x.packet)
		}
		if mode == model.ArpFlood {
			b.close(t)
			continue
		}
		sport := uint16(30000)
		cases := Cases(top)
		if h.Slow {
			cases = Sample(cases, Seed())
		}
		for n, c := range cases {
			if err := w.Switch(c); err != nil {
				t.Fatal(err)
			}
			b.apply(t, w.Desired["h1"])
			for i, x := range exchanges(top, &sport) {
				if !h.tries(n, i) {
					continue
				}
				if !b.compare(t, c.Name+": "+x.name, x.packet) {
					break
				}
			}
		}
		b.close(t)
	}
}

// testLiveChange: a rule that comes applies to established connections, and
// one that goes lets them go on.
func testLiveChange(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	top := StandardTopology()
	db := model.GroupKey{Tenant: "blue", Name: "db"}
	policy := model.PolicyKey{Tenant: "blue", Name: "p1"}
	c := Case{
		Policies: []model.ContivPolicy{{Key: policy}},
		Attach:   map[model.GroupKey][]model.PolicyName{db: {"p1"}},
	}
	deny := c
	deny.Rules = []model.Rule{{
		Key:       model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"},
		Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.ProtoTCP, Port: 80,
	}}
	w, err := NewWorld(top, c)
	if err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	network := model.NetworkKey{Tenant: "blue", Name: "vx"}
	web := top.Endpoint(model.EndpointKey{Network: network, ID: "web1"})
	dst := top.Endpoint(model.EndpointKey{Network: network, ID: "db1"})
	there := between(top, web, dst, model.ProtoTCP, false, 31000, 80)
	back := answerTo(top, there, web, dst)
	for i, c := range []Case{c, deny, c, deny} {
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		b.apply(t, w.Desired["h1"])
		b.compare(t, fmt.Sprintf("change %d, request", i), there)
		b.compare(t, fmt.Sprintf("change %d, answer", i), back)
		there.TCPFlags, back.TCPFlags = reference.FlagACK, reference.FlagACK
	}
}

// IfNames returns the interface names of a topology's endpoints on a host.
func IfNames(top Topology, host model.HostName) map[string]model.Endpoint {
	out := map[string]model.Endpoint{}
	for _, e := range top.Endpoints {
		if e.Host == host {
			out[compile.IfName(e.Key)] = e
		}
	}
	return out
}
