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
	small, _ := conformance.DesiredStates(t)
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
			moved := drv.ports.devicesMoved(drv.want)
			drv.mu.Unlock()
			if moved && strings.Contains(e.Reason, "set up or down") {
				return
			}
		case <-timeout:
			t.Fatal("no event tells that the interface is up")
		}
	}
}

// An interface that a report calls down, and that is up by then, is an event although the
// switch's database does not change any more.
func TestInterfaceSetUpDuringAReportIsAnEvent(t *testing.T) {
	r := newRig(t)
	small, _ := conformance.DesiredStates(t)
	name := ""
	for n, p := range small.Ports.All() {
		r.addWire(t, n, p.MAC)
		name = n
	}
	drv := r.open(t)
	defer drv.Close()
	if _, err := drv.Apply(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	r.PauseSwitch() // its database stays as it is
	defer r.ResumeSwitch()
	drv.mu.Lock()
	drv.ports.devices[name] = deviceDown // as if the report had come before the interface was set up
	drv.mu.Unlock()
	for timeout := time.After(10 * time.Second); ; {
		select {
		case e := <-drv.Events():
			if strings.Contains(e.Reason, "interface "+name+" ") {
				return
			}
		case <-timeout:
			t.Fatal("no event reports that the interface is up")
		}
	}
}
