package ebpf

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testRun runs a program on a frame with BPF_PROG_TEST_RUN.
func testRun(p *ebpf.Program, frame, ctx []byte) (uint32, error) {
	return p.Run(&ebpf.RunOptions{Data: frame, Context: ctx})
}

const redirected = 7 // TC_REDIRECT

// from runs the program on a port on frames as the container would send them,
// and returns what it says of each.
func (r *rig) from(t testing.TB, ifname string, frames ...[]byte) []int32 {
	t.Helper()
	var out []int32
	ctx := make([]byte, 192) // struct __sk_buff
	r.thread.do(func() {
		binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[ifname]))
		for _, f := range frames {
			ret, err := testRun(r.drv.dp.obj.FromContainer, f, ctx)
			if err != nil {
				t.Errorf("run on %x: %v", f, err)
				return
			}
			out = append(out, int32(ret))
		}
	})
	return out
}

// neighbours are two ports of one VXLAN network: b takes from a TCP to ports 80
// and 8000-8079, and ICMP; a takes nothing, both may send anything.
func (r *rig) neighbours(t testing.TB) (pic desired.Host, a, b *desired.Port) {
	t.Helper()
	pic = desired.Host{Name: "h1", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100})
	rules := []desired.Rule{
		{ID: "ping", Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoICMP}}},
		{ID: "web", Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}}},
	}
	for p := uint16(8000); p < 8080; p++ {
		rules = append(rules, desired.Rule{
			ID: "more" + model.Protocol(p).String(), Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: p, Hi: p}},
		})
	}
	for i := range rules {
		rules[i].Priority = 50
	}
	deny := []desired.Tier{{Default: model.Deny}}
	pic.PolicySets = pic.PolicySets.Set(1, &desired.PolicySet{ID: 1, In: deny})
	pic.PolicySets = pic.PolicySets.Set(2, &desired.PolicySet{ID: 2, In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(rules...)}}})
	ports := []*desired.Port{
		{IfName: "cvna", MAC: model.MAC{2, 5, 0, 0, 0, 1}, IPv4: containerIP4[0], IPv6: containerIP6[0], Policies: 1},
		{IfName: "cvnb", MAC: model.MAC{2, 5, 0, 0, 0, 2}, IPv4: containerIP4[1], IPv6: containerIP6[1], Policies: 2},
	}
	for _, p := range ports {
		p.Network, p.Identity = 1, 300
		pic.Ports = pic.Ports.Set(p.IfName, p)
		r.addWire(t, p.IfName, p.MAC)
	}
	return pic, ports[0], ports[1]
}

// web is a request to a port of b's.
func web(a, b *desired.Port, from, to uint16) reference.Packet {
	return reference.Packet{
		SrcMAC: a.MAC, DstMAC: b.MAC, Src: a.IPv4, Dst: b.IPv4, Proto: model.ProtoTCP, SrcPort: from, DstPort: to, TCPFlags: reference.FlagSYN,
	}
}
