package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testCapabilities: a driver does what its Capabilities say and leaves the rest
// undone, and says the same from open to open.
func testCapabilities(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	can := b.drv.Capabilities()
	top := StandardTopology()
	w, err := NewWorld(top, monitored())
	if err != nil {
		t.Fatal(err)
	}
	pic := w.Desired["h1"]
	pic.HostNAT = desired.NewHostNAT(top.Global.PvtSubnet)
	b.interfaces(t, pic)
	if can.Preparer != nil {
		for range 2 {
			if err := can.Preparer.Prepare(context.Background(), pic); err != nil {
				t.Fatalf("Prepare() = %v", err)
			}
		}
	}
	b.apply(t, pic)
	b.hasInterface(t, desired.HostInterface, can.Egress)
	if can.Egress && h.Egress && can.Egress6 != h.Egress6 {
		t.Errorf("it says of the IPv6 egress %v, the harness %v", can.Egress6, h.Egress6)
	}
	b.tablesAnswer(t, can)
	pic = withParts(pic, can)
	if r := b.apply(t, pic); r.Changes != 0 {
		t.Errorf("%d changes for parts of the desired state that it cannot make true", r.Changes)
	}
	if can.Verifier != nil {
		if n, err := can.Verifier.Verify(t.Context()); err != nil || n == 0 {
			t.Errorf("Verify() = %d, %v", n, err)
		}
	}
	if can.Drifting != nil {
		for what, n := range can.Drifting.DriftRepairs() {
			if n != 0 {
				t.Errorf("%d repairs of a %s that nobody touched", n, what)
			}
		}
	}
	if h.Send != nil {
		b.wantNoOtherEvents(t, top, withAuditRules(pic, true), can)
	}
	pic.Router = desired.RouterInterface
	b.apply(t, pic)
	b.hasInterface(t, desired.RouterInterface, can.TakesUplinks)
	pic.HostNAT, pic.Router = nil, ""
	b.apply(t, pic)
	b.hasInterface(t, desired.HostInterface, false)
	b.hasInterface(t, desired.RouterInterface, false)
	b.restart(t)
	if again := b.drv.Capabilities(); optionalVerbs(again) != optionalVerbs(can) {
		t.Errorf("after a restart %+v, before it %+v", again, can)
	}
}

// withParts returns a desired state with something in each part that a driver has no
// capability for: a driver that looks at it all the same lets other packets pass
// than the reference data plane.
func withParts(pic desired.Host, can driver.Capabilities) desired.Host {
	for name, p := range pic.Ports.All() {
		n, ok := pic.Networks.Get(p.Network)
		if !ok {
			continue
		}
		if !can.Services {
			s := &desired.Service{Key: model.ServiceKey{Tenant: n.Key.Tenant, Name: name}, Network: n.ID, IPv4: p.IPv4, IPv6: p.IPv6}
			s.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}}
			for _, o := range pic.Ports.All() {
				s.Backends = s.Backends.Set(o.Endpoint, &desired.Backend{Network: o.Network, IPv4: o.IPv4, IPv6: o.IPv6, Identity: o.Identity, Local: true})
			}
			pic.Services = pic.Services.Set(s.Key, s)
		}
		if !can.Bandwidth {
			pic.Bandwidth = pic.Bandwidth.Set(name, &desired.Rate{Send: desired.Limit{Bits: 1, Burst: 1}, DSCP: 1})
		}
	}
	return pic
}

// optionalVerbs replaces a driver's optional verbs by whether they are there.
func optionalVerbs(c driver.Capabilities) (out struct {
	driver.Capabilities
	preparer, tabled, drifting, memberships, forgetter, connections bool
},
) {
	out.preparer, out.tabled, out.drifting = c.Preparer != nil, c.Tabled != nil, c.Drifting != nil
	out.memberships, out.forgetter, out.connections = c.Memberships != nil, c.Forgetter != nil, c.Connections != nil
	c.Preparer, c.Tabled, c.Drifting, c.Verifier, c.Memberships, c.TunnelProber, c.Watched = nil, nil, nil, nil, nil, nil, nil
	c.Forgetter, c.Connections = nil, nil
	out.Capabilities = c
	return out
}

func (b *bench) hasInterface(t *testing.T, name string, want bool) {
	t.Helper()
	has := func() bool { return b.HasInterface != nil && b.HasInterface(t, name) }
	for deadline := time.Now().Add(10 * time.Second); has() != want; { // a switch does later what it was told to
		if time.Now().After(deadline) {
			t.Fatalf("10 s later the host has interface %s: %v, want %v", name, !want, want)
		}
	}
}

func (b *bench) tablesAnswer(t *testing.T, can driver.Capabilities) {
	t.Helper()
	if can.Tabled == nil {
		return
	}
	start := time.Now()
	tables := can.Tabled.Tables()
	if took := time.Since(start); took > 2*time.Second || len(tables) == 0 {
		t.Errorf("%d tables after %v", len(tables), took)
	}
	for name, s := range tables {
		if s.Capacity > 0 && s.Entries > s.Capacity {
			t.Errorf("table %s: %d entries in %d", name, s.Entries, s.Capacity)
		}
	}
}

// wantNoOtherEvents: events of a kind that the driver's Capabilities leave out do not come.
func (b *bench) wantNoOtherEvents(t *testing.T, top Topology, pic desired.Host, can driver.Capabilities) {
	t.Helper()
	b.apply(t, pic)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := b.drv.Monitor(ctx, driver.MonitorOptions{})
	if err != nil {
		t.Fatalf("Monitor() = %v", err)
	}
	for _, p := range monitoredPackets(top) {
		b.compare(t, p.name, p.packet)
	}
	cancel()
	for e := range events {
		if e.Kind == driver.FlowLogged && !can.Log || (e.Kind == driver.FlowWouldDeny || e.Kind == driver.FlowWouldAllow) && !can.Audit {
			t.Errorf("told of what it cannot: %+v", e)
		}
	}
}
