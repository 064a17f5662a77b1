package ebpf

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFloodedMonitorCountsEveryPacket: of a flood of drops every packet is accounted for, by few
// events when they are alike, and by a bounded number of them when they are not.
func TestFloodedMonitorCountsEveryPacket(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	_, big := conformance.DesiredStates(t)
	var from *desired.Port
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
		from = p
	}
	if _, err := drv.Apply(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	events, err := drv.Monitor(t.Context(), driver.MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	const flood = 5000
	spoofed := func(i int) reference.Packet { // to the i-th address of 9.9.0.0/16
		return reference.Packet{
			SrcMAC: from.MAC, DstMAC: model.MAC{2, 1}, Src: from.IPv4.Next(), Dst: netip.AddrFrom4([4]byte{9, 9, byte(i >> 8), byte(i)}),
			Proto: model.ProtoUDP, DstPort: 53,
		}
	}
	for _, test := range []struct {
		name string
		kind func(i int) int
		most int
	}{
		{"alike", func(int) int { return 0 }, 20},
		{"all different", func(i int) int { return i + 1 }, flood},
	} {
		r.thread.do(func() {
			ctx := make([]byte, 192) // struct __sk_buff
			binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[from.IfName]))
			for i := range flood {
				if _, err := testRun(r.drv.dp.obj.FromContainer, conformance.Frame(spoofed(test.kind(i))), ctx); err != nil {
					t.Errorf("run: %v", err)
					return
				}
			}
		})
		told, lost, n := uint64(0), uint64(0), 0
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for told+lost < flood {
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
			case <-ctx.Done():
				t.Fatalf("%s: %d packets told and %d lost of %d", test.name, told, lost, flood)
			}
		}
		cancel()
		if told+lost != flood || n > test.most || told == 0 {
			t.Errorf("%s: %d packets told in %d events, %d lost, of %d", test.name, told, n, lost, flood)
		}
		t.Logf("%s: %d packets told in %d events, %d lost", test.name, told, n, lost)
	}
}

// TestPacketsThatAnEventStandsForAreReportedOnce: an event has the packets that its slot held
// back, without the ones that were reported meanwhile. The next event of a slot has the
// remaining ones of the event before.
func TestPacketsThatAnEventStandsForAreReportedOnce(t *testing.T) {
	m := &monitor{queue: driver.NewFlowQueue(), reported: map[slotKey]*reportedEvent{}, name: func(*driver.FlowEvent, event) []verdict { return nil }}
	take := func(e event) {
		t.Helper()
		var raw bytes.Buffer
		e.Plain = 1
		if err := binary.Write(&raw, binary.NativeEndian, e); err != nil {
			t.Fatal(err)
		}
		m.take(raw.Bytes())
	}
	take(event{Hash: 1, Net: 1, Count: 1})
	m.reported[slotKey{}].sent = 2
	take(event{Hash: 1, Net: 1, Count: 4})
	m.reported[slotKey{}].sent = 1
	take(event{Hash: 2, Net: 2, Count: 1, Replaced: 4})
	take(event{Hash: 3, Net: 3, Count: 1})
	m.queue.Close()
	type sent struct {
		Network model.NetworkID
		Count   uint64
	}
	var got []sent
	for e := range m.queue.Events() {
		got = append(got, sent{e.Network, e.Count})
	}
	if want := []sent{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {3, 1}}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}
