package ebpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestUplinkOfThePreviousFlagsIsReleased: an interface that was the uplink, and is none by the new
// flags, lets its frames through from the first moment, before any desired state: the
// host may reach its store by it. The first desired state takes the program off.
func TestUplinkOfThePreviousFlagsIsReleased(t *testing.T) {
	ways := []string{attachClsact}
	if haveTCXHere(t) {
		ways = append(ways, attachTCX)
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			r, drv, pic := driftRig(t, way)
			pic.Networks = pic.Networks.Set(2, &desired.Network{ID: 2, Encap: model.EncapVLAN, Tag: 200})
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Fatal(err, conformance.Failed(rep))
			}
			if got := r.programsOn(t, uplinkWire); !slices.Equal(got, []string{uplinkProgram}) {
				t.Fatalf("the uplink has programs %q", got)
			}
			if err := drv.Close(); err != nil {
				t.Fatal(err)
			}
			r.uplinks = nil
			drv = r.open(t)
			if got := r.programsOn(t, uplinkWire); !slices.Equal(got, []string{uplinkProgram}) {
				t.Errorf("before the first desired state the former uplink has programs %q; others than an uplink's drop the host's own frames", got)
			}
			if _, err := drv.Apply(t.Context(), pic); err != nil {
				t.Fatal(err)
			}
			if got := r.programsOn(t, uplinkWire); len(got) != 0 {
				t.Errorf("the former uplink keeps programs %q", got)
			}
		})
	}
}

// programsOn are the names of our programs on what comes in by an interface.
func (r *rig) programsOn(t *testing.T, ifname string) (names []string) {
	t.Helper()
	r.thread.do(func() {
		index, err := ifindex(ifname)
		if err != nil {
			t.Error(err)
			return
		}
		var ids []ebpf.ProgramID
		if f, err := ourFilter.Find(index, true); err == nil && f != nil {
			ids = append(ids, ebpf.ProgramID(f.Id))
		}
		if res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress}); err == nil {
			for _, p := range res.Programs {
				ids = append(ids, p.ID)
			}
		}
		for _, id := range ids {
			prog, err := ebpf.NewProgramFromID(id)
			if err != nil {
				t.Error(err)
				return
			}
			info, err := prog.Info()
			if err != nil {
				t.Error(err)
				return
			}
			names = append(names, info.Name)
			_ = prog.Close()
		}
	})
	return names
}
