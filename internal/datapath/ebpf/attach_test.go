package ebpf

import (
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"
)

// TestDetachedInterfaceTakesItsProgramAtOnce attaches what was detached while somebody
// else still has the link open, as a child has between fork and exec.
func TestDetachedInterfaceTakesItsProgramAtOnce(t *testing.T) {
	if !haveTCXHere(t) {
		t.Skip("TCX came with Linux 6.6")
	}
	r, _, _ := driftRig(t, attachTCX)
	a, index, port := r.drv.dp.att, int(r.drv.dp.settings.get().VXLAN), r.drv.dp.ports.indexes["cvna"]
	hold := func(name string) {
		l, err := link.LoadPinnedLink(filepath.Join(a.dir, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	linkPort := func() {
		if err := r.drv.linkPort(t.Context(), "cvna", port); err != nil {
			t.Error(err)
		}
	}
	r.thread.do(linkPort)
	hold(pinName(DefaultDevice, true))
	hold(pinName("cvna", true))
	r.thread.do(func() {
		if err := a.detach(DefaultDevice, index); err != nil {
			t.Error(err)
		}
		if _, err := a.attach(DefaultDevice, index, true, r.drv.dp.obj.FromTunnel); err != nil {
			t.Error(err)
		}
		if err := a.detach("cvna", port); err != nil {
			t.Error(err)
		}
		linkPort()
	})
}
