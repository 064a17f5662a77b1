package ebpf

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTranslatedSCTPHasTheRightChecksum: a service whose port is another one than its backend's has
// SCTP packets' CRC32c put right, of any length, both ways. One that is left to a device,
// which makes it where there is nothing, stays so.
func TestTranslatedSCTPHasTheRightChecksum(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	_, big := conformance.DesiredStates(t)
	var client, backend *desired.Port
	for _, p := range big.Ports.All() {
		for _, q := range big.Ports.All() {
			if p != q && p.Network == q.Network && p.Policies == 0 && q.Policies == 0 {
				client, backend = p, q
			}
		}
	}
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	n, _ := big.Networks.Get(client.Network)
	vip := n.Subnet.Addr().As4()
	vip[3] = 222
	s := desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "sctp"}, Network: n.ID, IPv4: netip.AddrFrom4(vip),
		Ports: []desired.ServicePort{{Protocol: model.ProtoSCTP, Port: 100, Backend: 2905}},
	}
	s.Backends = s.Backends.Set(model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: "b"},
		&desired.Backend{Network: n.ID, IPv4: backend.IPv4, Identity: backend.Identity, Local: true})
	big.Services = big.Services.Set(s.Key, &s)
	if _, err := drv.Apply(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	sum := func(b []byte) uint32 {
		b = append([]byte{}, b...)
		copy(b[8:12], []byte{0, 0, 0, 0})
		return crc32.Checksum(b, castagnoli)
	}
	send := func(from, to *desired.Port, p reference.Packet, more int, left bool) []byte {
		t.Helper()
		f := append(conformance.Frame(p), make([]byte, more)...)
		for i := range f[46:] {
			f[46+i] = byte(i * 7)
		}
		binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
		f[24], f[25] = 0, 0
		var c uint32
		for i := 14; i < 34; i += 2 {
			c += uint32(binary.BigEndian.Uint16(f[i:]))
		}
		c = c&0xffff + c>>16
		binary.BigEndian.PutUint16(f[24:], ^uint16(c&0xffff+c>>16))
		clear(f[42:46])
		if !left {
			binary.LittleEndian.PutUint32(f[42:], sum(f[34:]))
		}
		r.thread.do(func() {
			for _, w := range r.wires {
				w.receive()
			}
			if err := r.wires[from.IfName].send(f); err != nil {
				t.Error(err)
			}
			if r.near == nil {
				fd, err := packetSocket(sentinel)
				if err != nil {
					t.Error(err)
					return
				}
				r.near = &wire{fd}
			}
			r.settle(t, r.near.fd)
		})
		for _, g := range r.wires[to.IfName].receive() {
			if len(g) == len(f) && g[23] == uint8(model.ProtoSCTP) {
				return g
			}
		}
		t.Fatalf("%d bytes did not come through", len(f))
		return nil
	}
	for i, more := range []int{20, 21, 22, 23, 64, 513, 1400, 64} {
		left := i == 7
		port := uint16(4000 + 10*more + i)
		there := reference.Packet{SrcMAC: client.MAC, DstMAC: desired.RouterMAC, Src: client.IPv4, Dst: s.IPv4, Proto: model.ProtoSCTP, SrcPort: port, DstPort: 100}
		back := reference.Packet{SrcMAC: backend.MAC, DstMAC: client.MAC, Src: backend.IPv4, Dst: client.IPv4, Proto: model.ProtoSCTP, SrcPort: 2905, DstPort: port}
		for _, x := range []struct {
			what     string
			got      []byte
			src, dst uint16
		}{
			{"there", send(client, backend, there, more, left), port, 2905},
			{"back", send(backend, client, back, more, left), 100, port},
		} {
			g := x.got[34:]
			if src, dst := binary.BigEndian.Uint16(g), binary.BigEndian.Uint16(g[2:]); src != x.src || dst != x.dst {
				t.Errorf("%s, %d bytes: ports %d > %d, want %d > %d", x.what, len(g), src, dst, x.src, x.dst)
			}
			want := sum(g)
			if left {
				want = 0
			}
			if got := binary.LittleEndian.Uint32(g[8:]); got != want {
				t.Errorf("%s, %d bytes: checksum %#x, want %#x", x.what, len(g), got, want)
			}
		}
	}
}
