package ovs

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// monitored is a driver with a desired state that it has made true, and one of its ports.
func monitored(t *testing.T) (r *rig, drv *Driver, big desired.Host, from *desired.Port) {
	t.Helper()
	r = newRig(t)
	drv = r.open(t)
	_, big = conformance.DesiredStates(t)
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
		from = p
	}
	if _, err := drv.Apply(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	return r, drv, big, from
}

// TestFloodedMonitorCountsEveryPacket: of a flood of drops every packet is accounted for, by few
// events when they are alike, and by a bounded number of them when they are not.
func TestFloodedMonitorCountsEveryPacket(t *testing.T) {
	r, drv, _, from := monitored(t)
	events, err := drv.Monitor(t.Context(), driver.MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	var gate sync.Mutex // what holds it keeps the reader from reading
	w := drv.flows.watching
	err = w.conn.ReceivePackets(t.Context(), samplesPerSecond, func(p openflow.PacketIn) {
		gate.Lock()
		defer gate.Unlock()
		w.receive(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	const flood = 3000
	before := uint64(0)
	for _, test := range []struct {
		name string
		of   int // kinds of packets
		most int
		slow bool // more comes than the switch keeps for a reader
	}{{"alike", 1, 20, false}, {"all different", flood, flood, false}, {"slow reader", flood, flood, true}} {
		if test.slow {
			gate.Lock()
		}
		for i := range flood {
			f := conformance.Frame(reference.Packet{ // to an address of 9.9.0.0/16
				SrcMAC: from.MAC, DstMAC: model.MAC{2, 1}, Src: from.IPv4.Next(), Proto: model.ProtoUDP, DstPort: 53,
				Dst: netip.AddrFrom4([4]byte{9, byte(test.of >> 8), byte(i % test.of >> 8), byte(i % test.of)}),
			})
			if err := r.wires[from.IfName].send(f); err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 { // its queue is short
				r.bounce(t, r.wires[underlayWire], func([]byte) {})
			}
		}
		if test.slow {
			gate.Unlock()
		}
		// The wire may lose some before the switch, which counts the ones that it dropped.
		told, lost, n, counted := uint64(0), uint64(0), 0, uint64(0)
		tick := time.NewTicker(50 * time.Millisecond)
		late := time.After(time.Minute) // an emulated machine is slow
		for counted < flood/2 || told+lost != counted {
			select {
			case e := <-events:
				switch {
				case e.Kind == driver.FlowLost:
					lost += e.Count
				case e.Reason == driver.DropSpoof && e.Port == from.IfName && e.Network == from.Network && e.DstPort == 53:
					told += e.Count
					n++
				default:
					t.Errorf("%s: unexpected event %+v", test.name, e)
				}
			case <-tick.C:
				s, err := drv.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				counted = s.Drops[driver.DropSpoof] - before
			case <-late:
				t.Fatalf("%s: %d packets told in %d events and %d lost of %d", test.name, told, n, lost, counted)
			}
		}
		tick.Stop()
		before += counted
		if n > test.most {
			t.Errorf("%s: %d packets told in %d events, %d lost, of %d", test.name, told, n, lost, counted)
		}
		t.Logf("%s: %d packets told in %d events, %d lost", test.name, told, n, lost)
	}
}

// TestMonitorSurvivesASwitchCrash: when the switch comes back, so do its drops.
func TestMonitorSurvivesASwitchCrash(t *testing.T) {
	r, drv, _, from := monitored(t)
	events, err := drv.Monitor(t.Context(), driver.MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	r.KillSwitch()
	r.StartSwitch()
	f := conformance.Frame(reference.Packet{SrcMAC: model.MAC{2, 9}, DstMAC: model.MAC{2, 1}, Src: from.IPv4, Dst: from.IPv4, Proto: model.ProtoUDP, DstPort: 53})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for {
		select {
		case e := <-events:
			if e.Reason == driver.DropSpoof && e.Port == from.IfName {
				return
			}
		case <-tick.C:
			if err := r.wires[from.IfName].send(f); err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatal("no drop was told after the switch came back")
		}
	}
}

// TestMonitorLeavesNoTrace: the flows after a monitor are those before it, and
// what a dead agent's monitor left is taken away.
func TestMonitorLeavesNoTrace(t *testing.T) {
	r, drv, big, _ := monitored(t)
	dump := func() map[string]string {
		out := map[string]string{}
		err := r.drv.conns.sw.DumpFlows(t.Context(), openflow.AllFlows, func(s openflow.FlowStats) { out[s.Flow.Key()] = s.Flow.String() })
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before, meters := dump(), r.meters()
	ctx, cancel := context.WithCancel(t.Context())
	events, err := drv.Monitor(ctx, driver.MonitorOptions{Connections: true})
	if err != nil {
		t.Fatal(err)
	}
	during := dump()
	if cmp.Equal(before, during) {
		t.Error("monitoring changes no flow")
	}
	cancel()
	for range events { // until it has ended
		continue
	}
	if diff := cmp.Diff(before, dump()); diff != "" {
		t.Errorf("flows after the monitor (-want +got):\n%s", diff)
	}
	if after := r.meters(); after != meters {
		t.Errorf("meters after the monitor: %s, before it: %s", after, meters)
	}
	r.drv.mu.Lock() // as if the process had died under monitoring
	err = r.drv.flows.rewriteMonitored(t.Context(), (&switchMonitor{opts: driver.MonitorOptions{Connections: true}}).monitorActions)
	r.drv.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	drv = r.open(t)
	defer drv.Close()
	if _, err := drv.Apply(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump()); diff != "" {
		t.Errorf("flows after a death under monitoring (-want +got):\n%s", diff)
	}
}

// meters are those of the switch, sorted.
func (r *rig) meters() string {
	return strings.Join(slices.Sorted(strings.SplitSeq(r.Ofctl("contivBr", "dump-meters"), "\n")), "\n")
}

// FuzzReadFrame: a report about a frame contains only what is in it, whatever a container
// sends.
func FuzzReadFrame(f *testing.F) {
	a, b := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	six, seven := netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::3")
	packets := []reference.Packet{
		{Src: a, Dst: b, Proto: model.ProtoTCP, SrcPort: 1000, DstPort: 80},
		{Src: a, Dst: b, Proto: model.ProtoICMP, ICMPType: 8},
		{Src: six, Dst: seven, Proto: model.ProtoUDP, SrcPort: 1000, DstPort: 53},
		{Src: six, Dst: seven, Proto: model.ProtoUDP, SrcPort: 1000, DstPort: 53, Frag: &reference.Fragment{ID: 1, More: true}},
		{Src: six, Dst: seven, Proto: model.ProtoICMPv6, ICMPType: 128},
	}
	for _, p := range packets {
		p.SrcMAC, p.DstMAC = model.MAC{2, 1}, model.MAC{2, 2}
		var e driver.FlowEvent
		readFrame(conformance.Tagged(conformance.Frame(p), 7), &e)
		if e.SrcMAC != p.SrcMAC || e.DstMAC != p.DstMAC || e.Src != p.Src || e.Dst != p.Dst || e.Proto != p.Proto ||
			e.SrcPort != p.SrcPort || e.DstPort != p.DstPort || e.ICMPType != p.ICMPType {
			f.Errorf("%+v was read as %+v", p, e)
		}
		f.Add(conformance.Frame(p))
	}
	igmp := binary.BigEndian.AppendUint16(make([]byte, 12), 0x0800)
	f.Add(append(igmp, 0x46, 0, 0, 32, 0, 0, 0, 0, 1, 2, 0, 0, 10, 1, 1, 2, 224, 0, 0, 22, 0x94, 4, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0))
	f.Add(append([]byte{8, 0, 0, 0, 0, 0, 7, 0}, conformance.Frame(packets[0])...)) // VXLAN
	f.Fuzz(func(t *testing.T, b []byte) {
		var e driver.FlowEvent
		readFrame(b, &e)
		has := func(what ...[]byte) bool { return bytes.Contains(b, slices.Concat(what...)) }
		port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
		switch {
		case len(b) >= ethernetLen && !has(e.DstMAC[:], e.SrcMAC[:]), e.Src.IsValid() != e.Dst.IsValid(), e.Src.Is4() != e.Dst.Is4(),
			!e.ARP && !has(e.Src.AsSlice(), e.Dst.AsSlice()), e.ARP && (!e.Src.Is4() || !has(e.Src.AsSlice()) || !has(e.Dst.AsSlice())),
			e.Proto != model.AnyProtocol && (e.ARP || !e.Src.IsValid()), !e.Proto.HasPorts() && e.SrcPort+e.DstPort > 0,
			e.Proto.HasPorts() && e.SrcPort|e.DstPort != 0 && !has(port(e.SrcPort), port(e.DstPort)),
			e.ICMPType != 0 && e.Proto != model.ProtoICMP && e.Proto != model.ProtoICMPv6:
			t.Errorf("%x is read as %+v", b, e)
		}
		if ofMember(b) && (e.Proto != 2 || !e.Src.Is4()) {
			t.Errorf("%x is a member's, and %+v", b, e)
		}
		if vni, frame, err := decapsulate(b); err == nil && (len(frame) < ethernetLen || vni>>24 != 0 || !bytes.HasSuffix(b, frame)) {
			t.Errorf("%x carries %x of %d", b, frame, vni)
		}
	})
}
