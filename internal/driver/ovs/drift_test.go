package ovs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

// TestDrift: flows and ports that somebody takes away or changes are put back
// without an Apply, told and counted; what the driver changes itself is not.
func TestDrift(t *testing.T) {
	r := newRig(t)
	small, big := drivertest.Pictures(t)
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer drv.Close()
	for i := range 6 {
		pic := big
		if i%2 == 1 {
			pic = small
		}
		if rep, err := drv.Apply(t.Context(), pic); err != nil || drivertest.Failed(rep) != nil {
			t.Fatal(err, drivertest.Failed(rep))
		}
	}
	if rep, err := drv.Apply(t.Context(), big); err != nil || drivertest.Failed(rep) != nil {
		t.Fatal(err, drivertest.Failed(rep))
	}
	flows := func() (out []string) {
		for l := range strings.Lines(r.Ofctl("contivBr", "dump-flows", "--no-stats")) {
			if strings.Contains(l, "cookie=0xc0f2") {
				out = append(out, l)
			}
		}
		slices.Sort(out)
		return out
	}
	want := flows()
	if n := drv.DriftRepairs()[driver.DriftFlow]; n != 0 {
		t.Errorf("the driver's own changes count as %d repairs", n)
	}
	for _, x := range []struct {
		name, what string
		do         func()
	}{
		{"a table emptied", driver.DriftFlow, func() { r.Ofctl("contivBr", "del-flows", "table=8") }},
		{"all flows deleted", driver.DriftFlow, func() { r.Ofctl("contivBr", "del-flows") }},
		{"actions changed", driver.DriftFlow, func() { r.Ofctl("contivBr", "mod-flows", "table=22,actions=drop") }},
		{"the tunnel deleted", driver.DriftPort, func() { r.Vsctl("del-port", tunnelName) }},
	} {
		before := drv.DriftRepairs()[x.what]
		x.do()
		for deadline := time.Now().Add(5 * time.Second); ; { // an agent's drift timer takes longer
			if drv.DriftRepairs()[x.what] > before && (x.what == driver.DriftPort || len(flows()) == len(want)) {
				break
			}
			select {
			case <-drv.Events(): // as an agent does
				if _, err := drv.Apply(t.Context(), big); err != nil {
					t.Fatal(err)
				}
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d repairs, %d flows of %d", x.name, drv.DriftRepairs()[x.what]-before, len(flows()), len(want))
			}
		}
		if diff := cmp.Diff(want, flows()); x.what == driver.DriftFlow && diff != "" {
			t.Errorf("%s: flows (-before +after):\n%s", x.name, diff)
		}
	}
}
