package ovs

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

// TestInterfaceIsUpWhenTheKernelSaysSo: an event tells that an interface is set up again
// although the switch does not say so, as when it has missed the kernel's word.
func TestInterfaceIsUpWhenTheKernelSaysSo(t *testing.T) {
	r := newRig(t)
	small, _ := conformance.Pictures(t)
	name := ""
	for n, p := range small.Ports.All() {
		r.addWire(t, n, p.MAC)
		name = n
	}
	drv := r.open(t)
	defer drv.Close()
	trouble := func() string {
		t.Helper()
		rep, err := drv.Apply(t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		if err := rep.Ports.Err(name); err != nil {
			return err.Error()
		}
		return ""
	}
	if got := trouble(); got != "" {
		t.Fatal(got)
	}
	r.Run("ip", "-n", r.NS, "link", "set", name, "down")
	eventually(t, "it to be down", func() bool { return strings.Contains(trouble(), "is down") })
	r.PauseSwitch()
	defer r.ResumeSwitch()
	r.Run("ip", "-n", r.NS, "link", "set", name, "up")
	for timeout := time.After(10 * time.Second); ; {
		select {
		case e := <-drv.Events():
			drv.mu.Lock()
			moved := drv.devicesMoved()
			drv.mu.Unlock()
			if moved && strings.Contains(e.Reason, "set up or down") {
				return
			}
		case <-timeout:
			t.Fatal("no event tells that the interface is up")
		}
	}
}
