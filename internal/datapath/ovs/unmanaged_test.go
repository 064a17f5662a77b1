package ovs

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// TestUnmanagedFlowsAndPortsAreReported: flows and ports of others in the bridge are reported with a command to
// type, and left alone; the command ends it.
func TestUnmanagedFlowsAndPortsAreReported(t *testing.T) {
	r := newRig(t)
	small, _ := conformance.DesiredStates(t)
	for name, p := range small.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer drv.Close()
	look := func() (texts []string) {
		t.Helper()
		drv.mu.Lock()
		drv.flows.verified = time.Time{} // as long ago as may be
		drv.mu.Unlock()
		rep, err := drv.Apply(t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rep.Problems {
			texts = append(texts, p.Object+": "+p.Err.Error())
		}
		return texts
	}
	look()
	if texts := look(); len(texts) > 0 {
		t.Errorf("nobody has added anything: %q", texts)
	}
	r.Ofctl("contivBr", "add-flow", "cookie=0x77,priority=65000,actions=normal")
	r.Ofctl("contivBr", "add-flow", "cookie=0x77,table=3,priority=65000,udp,actions=normal")
	r.Run("ip", "-n", r.NS, "link", "add", "theirs0", "type", "veth", "peer", "name", "theirs1")
	r.Vsctl("add-port", "contivBr", "theirs0")
	texts := look()
	for deadline := time.Now().Add(time.Minute); len(texts) < 2 && time.Now().Before(deadline); { // the database tells later
		texts = look()
	}
	if len(texts) != 2 || !strings.Contains(texts[0], "flows of bridge contivBr: 2 of them") || !strings.Contains(texts[0], "cookie=0x77/-1") ||
		!strings.Contains(texts[1], "ports of bridge contivBr: theirs0 is not Contiv's") {
		t.Fatalf("told %q", texts)
	}
	if n := drv.DriftRepairs()[driver.DriftFlow]; n != 0 {
		t.Errorf("%d repairs", n)
	}
	if flows := r.Ofctl("contivBr", "dump-flows", "cookie=0x77/-1"); !strings.Contains(flows, "udp") {
		t.Errorf("its flows are gone: %s", flows)
	}
	r.Ofctl("contivBr", "del-flows", "cookie=0x77/-1")
	r.Vsctl("del-port", "contivBr", "theirs0")
	for deadline := time.Now().Add(time.Minute); len(texts) > 0 && time.Now().Before(deadline); {
		texts = look()
	}
	if len(texts) > 0 {
		t.Errorf("afterwards %q", texts)
	}
}
