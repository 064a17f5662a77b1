package ebpf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestOtherPinDirectory: who is started with another pin directory beside what
// the former one holds tells so, with what to do, and no container is told that
// it has a network; when that has been done, all is well.
func TestOtherPinDirectory(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	r.last(t)
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	old := r.pins
	r.pins = filepath.Join(filepath.Dir(old), "other")
	drv = r.open(t)
	t.Cleanup(func() { _ = r.drv.Close() })
	rep, err := drv.Apply(t.Context(), pic)
	if err != nil {
		t.Fatal(err)
	}
	told := false
	for _, p := range rep.Problems {
		told = told || errors.Is(p.Err, model.ErrConflict) && strings.Contains(p.Err.Error(), old+":") && strings.Contains(p.Err.Error(), "ip link del")
	}
	if !told {
		t.Errorf("nobody tells of %s: %v", old, rep.Problems)
	}
	for name, port := range rep.Ports {
		if !errors.Is(port.Err, model.ErrConflict) {
			t.Errorf("port %s: %v; a container would start without a network", name, port.Err)
		}
	}
	run(t, "ip", "-n", r.host, "link", "del", DefaultDevice)
	run(t, "ip", "-n", r.host, "link", "del", desired.HostInterface)
	r.drv.mu.Lock()
	r.drv.verified = r.drv.verified.Add(-verifyEvery)
	r.drv.mu.Unlock()
	if rep, err = drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	if r.drv.att.way == attachTCX && rep.Ports["cvna"].Err == nil {
		t.Error("a program of the former directory stands before a port's, and nobody says so")
	}
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all to be well", func() bool { // the kernel takes programs off some time after their pins
		r.drv.mu.Lock()
		r.drv.verified = r.drv.verified.Add(-verifyEvery)
		r.drv.mu.Unlock()
		rep, err := drv.Apply(t.Context(), pic)
		return err == nil && drivertest.Failed(rep) == nil
	})
}
