package ebpf

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// openSide watches the host's own side, if the driver has made it.
func (r *rig) openSide(t testing.TB) {
	t.Helper()
	index, err := ifindex(desired.HostInterface)
	if err != nil {
		t.Error(err)
	}
	if index == r.sideIndex {
		return
	}
	r.closeSide()
	if r.sideIndex = index; index == 0 {
		return
	}
	fd, err := packetSocket(desired.HostInterface)
	if err != nil {
		t.Error(err)
		return
	}
	r.side = &wire{fd}
}

func (r *rig) closeSide() {
	if r.side != nil {
		unix.Close(r.side.fd)
		r.side = nil
	}
}

// read decodes a translated IPv4 frame; others are ignored.
func read(t testing.TB, g []byte) *reference.Packet {
	t.Helper()
	p, err := conformance.ReadPacket(g)
	if err != nil {
		t.Error(err)
	}
	return p
}

// TestHostReachesNoPort: what the host's own stack sends out of a port's
// interface, by whatever way, does not reach the container; only what the
// programs judged does.
func TestHostReachesNoPort(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"clsact":  func(r *rig) { r.attach = attachClsact },
		"default": func(*rig) {},
		"lasting": func(r *rig) { r.lasting = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			pic, a, b := r.neighbours(t)
			drv := r.open(t)
			defer drv.Close()
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Fatal(err, conformance.Failed(rep))
			}
			judged := web(a, b, 4000, 80)
			judged.Port = a.IfName
			if v := r.inject(t, judged); len(v.Ports) != 1 {
				t.Fatalf("what is allowed does not arrive: %+v", v)
			}
			w := r.wires[b.IfName]
			w.receive()
			r.thread.do(func() {
				near, err := packetSocket(b.IfName)
				if err != nil {
					t.Error(err)
					return
				}
				defer unix.Close(near)
				for _, p := range []reference.Packet{web(a, b, 4001, 80), web(a, b, 4001, 81)} {
					// Whether the sender gets an error depends on the kernel.
					if err := unix.Send(near, conformance.Frame(p), 0); err != nil && !errors.Is(err, unix.ENOBUFS) {
						t.Error(err)
					}
				}
				r.settle(t, r.near.fd)
			})
			if got := w.receive(); len(got) > 0 {
				t.Errorf("the container got what nobody judged: %x", got)
			}
		})
	}
}
