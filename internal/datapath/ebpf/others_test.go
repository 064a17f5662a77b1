package ebpf

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestProgramsOfAnotherPinDirectoryAreReported: a netplugin that is started with another pin directory beside the
// former one's programs reports that, with a remedy, and no container is reported to have a
// network. The served ones go on as they are. After the remedy all is well.
func TestProgramsOfAnotherPinDirectoryAreReported(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	r.last(t)
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	filters := func() string {
		var out strings.Builder
		for _, name := range []string{"cvna", "cvnb"} {
			for _, way := range []string{"ingress", "egress"} {
				out.WriteString(run(t, "tc", "-n", r.host, "filter", "show", "dev", name, way))
			}
		}
		return out.String()
	}
	before := filters()
	old := r.pins
	r.pins = filepath.Join(filepath.Dir(old), "other")
	drv = r.open(t)
	t.Cleanup(func() { _ = r.drv.Close() })
	rep, err := drv.Apply(t.Context(), pic)
	if err != nil {
		t.Fatal(err)
	}
	if after := filters(); after != before {
		t.Errorf("it has taken the ports away from the programs that serve them:\n%s\nbefore:\n%s", after, before)
	}
	told := false
	for _, p := range rep.Problems {
		told = told || errors.Is(p.Err, model.ErrConflict) && strings.Contains(p.Err.Error(), old+":") && strings.Contains(p.Err.Error(), "ip link del")
	}
	if !told {
		t.Errorf("nobody tells of %s: %v", old, rep.Problems)
	}
	for name, port := range rep.Ports.All() {
		if !errors.Is(port.Err, model.ErrConflict) {
			t.Errorf("port %s: %v; a container would start without a network", name, port.Err)
		}
	}
	run(t, "ip", "-n", r.host, "link", "del", DefaultDevice)
	run(t, "ip", "-n", r.host, "link", "del", desired.HostInterface)
	r.drv.mu.Lock()
	r.drv.dp.ports.verified = r.drv.dp.ports.verified.Add(-verifyEvery)
	r.drv.mu.Unlock()
	if rep, err = drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	if r.drv.dp.att.way == attachTCX && rep.Ports.Err("cvna") == nil {
		t.Error("a program of the former directory stands before a port's, and nobody says so")
	}
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all to be well", func() bool { // the kernel takes programs off some time after their pins
		r.drv.mu.Lock()
		r.drv.dp.ports.verified = r.drv.dp.ports.verified.Add(-verifyEvery)
		r.drv.mu.Unlock()
		rep, err := drv.Apply(t.Context(), pic)
		return err == nil && conformance.Failed(rep) == nil
	})
}

// TestPinDirectoryHasOneDriver: a second driver on a pin directory that is in use, and
// who would remove it, are refused by name, and change nothing; afterwards it is
// free, also when somebody has removed the directory under the first.
func TestPinDirectoryHasOneDriver(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	refused := func() {
		t.Helper()
		r.thread.do(func() {
			_, err := open(t.Context(), r.config(t))
			again := Leftovers(r.config(t)).Remove(t.Context())
			for _, err := range []error{err, again, Busy(r.pins)} {
				if !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "another netplugin uses the pin directory "+r.pins) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	refused()
	before := r.drv.DriftRepairs()
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil || !maps.Equal(r.drv.DriftRepairs(), before) {
		t.Errorf("after the attempts: %v, %v, repaired %v", err, conformance.Failed(rep), r.drv.DriftRepairs())
	}
	if err := os.RemoveAll(r.pins); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pins to be put back", func() bool {
		if _, err := drv.Apply(t.Context(), pic); err != nil {
			t.Fatal(err)
		}
		return InUse(r.pins)
	})
	refused()
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Busy(r.pins); err != nil {
		t.Errorf("it is said to be at work after its end: %v", err)
	}
	r.open(t)
}
