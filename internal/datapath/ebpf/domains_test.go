package ebpf

import (
	"encoding/binary"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestModeSwitchLosesNothing: networks are joined and parted under an open
// connection, of which at every write both ends' packets pass, though neither end
// lets the other begin one; what was kept under the former domain is gone.
func TestModeSwitchLosesNothing(t *testing.T) {
	c := newCrowded(t, nil)
	segment := func(flags uint8, answers bool) []byte { // IPv6 has no fast path
		p := web(c.a, c.b, 10000, 80)
		p.Src, p.Dst, p.TCPFlags = c.a.IPv6, c.b.IPv6, flags
		if answers {
			p.SrcMAC, p.DstMAC, p.Src, p.Dst, p.SrcPort, p.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
		}
		return conformance.Frame(p)
	}
	data, answer := segment(reference.FlagACK, false), segment(reference.FlagACK, true)
	c.all("request", c.a, [][]byte{segment(reference.FlagSYN, false)})
	c.all("answer", c.b, [][]byte{segment(reference.FlagSYN|reference.FlagACK, true)})
	c.all("acknowledgement", c.a, [][]byte{data})
	ctx := make([]byte, 192) // struct __sk_buff
	pass := func(from *desired.Port, frame []byte) bool {
		binary.NativeEndian.PutUint32(ctx[40:], uint32(c.drv.dp.ports.indexes[from.IfName]))
		ret, err := testRun(c.drv.dp.obj.FromContainer, frame, ctx)
		return err == nil && ret == redirected
	}
	remote := &desired.Remote{Network: 1, MAC: model.MAC{2, 5, 0, 0, 0, 77}, IPv4: containerIP4[1].Next().Next(), Identity: 300, VTEP: vtep2}
	c.pic.Remotes = c.pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: remote.MAC}, remote)
	for _, router := range []model.RouterID{0, 7, 9, 0} {
		n, _ := c.pic.Networks.Get(1)
		joined := *n
		joined.Joined = router
		c.pic.Networks = c.pic.Networks.Set(1, &joined)
		writes, lost := 0, 0
		c.drv.setFault(func() error {
			writes++
			for end, f := range map[*desired.Port][]byte{c.a: data, c.b: answer} {
				if !pass(end, f) {
					lost++
				}
			}
			return nil
		})
		if rep, err := (inHost{c.drv, c.rig}).Apply(t.Context(), c.pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		if lost > 0 || writes == 0 {
			t.Errorf("to router %d: %d packets lost in %d writes", router, lost, writes)
		}
		c.all("the asked end speaks first", c.b, [][]byte{answer})
		c.all("data", c.a, [][]byte{data})
		for k := range c.drv.dp.endpoints.Hosts.have {
			if want := uint32(joined.Domain()); k.Domain != want && !k.IP.linkLocal() {
				t.Errorf("to router %d: %s is still in domain %d", router, k.IP.netip(), k.Domain)
			}
		}
		for k := range c.conns() {
			if k.Domain != uint32(joined.Domain()) {
				t.Errorf("to router %d: a connection is still in domain %d", router, k.Domain)
			}
		}
	}
}
