package ovs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestManualChangesArePutBack: flows and ports that somebody takes away or changes are put back
// without an Apply, told and counted; what the driver changes itself is not.
func TestManualChangesArePutBack(t *testing.T) {
	r := newRig(t)
	small, big := conformance.DesiredStates(t)
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
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	if rep, err := drv.Apply(t.Context(), big); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
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
		{"a table emptied", driver.DriftFlow, func() { r.Ofctl("contivBr", "del-flows", fmt.Sprintf("table=%d", pipeline.Destination)) }},
		{"all flows deleted", driver.DriftFlow, func() { r.Ofctl("contivBr", "del-flows") }},
		{"actions changed", driver.DriftFlow, func() {
			r.Ofctl("contivBr", "mod-flows", fmt.Sprintf("table=%d,actions=drop", pipeline.ConntrackCommit))
		}},
		{"the tunnel deleted", driver.DriftPort, func() { r.Vsctl("del-port", tunnelName) }},
		{"the tunnel at another port", driver.DriftPort, func() { r.Vsctl("set", "interface", tunnelName, "options:dst_port=4790") }},
		{"the tunnel without options", driver.DriftPort, func() { r.Vsctl("clear", "interface", tunnelName, "options") }},
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

// TestVerifyRestoresChangedFlows: Verify finds what others changed in the switch, and nothing else.
func TestVerifyRestoresChangedFlows(t *testing.T) {
	r := newRig(t)
	pic, _ := conformance.DesiredStates(t)
	for name, p := range pic.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer drv.Close()
	if _, err := drv.Verify(t.Context()); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("before the first Apply: %v", err)
	}
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	verify := func() int {
		t.Helper()
		n, err := drv.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	entries := verify()
	if n := drv.DriftRepairs()[driver.DriftFlow]; n != 0 || entries == 0 {
		t.Errorf("%d repairs of %d untouched entries", n, entries)
	}
	r.Ofctl("contivBr", "del-flows", fmt.Sprintf("table=%d", pipeline.Destination))
	if n := verify(); n != entries || drv.DriftRepairs()[driver.DriftFlow] == 0 {
		t.Errorf("%d entries with %v, want %d and repairs", n, drv.DriftRepairs(), entries)
	}
	if rep, err := drv.Apply(t.Context(), pic); err != nil || rep.Changes != 0 {
		t.Errorf("Verify left %d changes to Apply: %v", rep.Changes, err)
	}
}

// TestUnpluggedUnderlayIsReported: an event reports that no cable in the bridge with the tunnel's address
// has a link, and another one that one has a link again.
func TestUnpluggedUnderlayIsReported(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's tunnels leave by its own interfaces")
	}
	r := newRig(t)
	small, _ := conformance.DesiredStates(t)
	for name, p := range small.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer drv.Close()
	rep, err := drv.Apply(t.Context(), small)
	if err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	drv.mu.Lock()
	drv.underlay.under = underlayBridge // which is in another namespace here
	drv.mu.Unlock()
	for _, x := range []struct{ set, want string }{{"down", "no interface in bridge " + underlayBridge}, {"up", ""}} {
		r.Run("ip", "-n", r.NS, "link", "set", underlayWire, x.set)
		timeout := time.After(5 * time.Second)
		for got := "nothing"; (got == "") != (x.want == "") || !strings.Contains(got, x.want); {
			select {
			case <-drv.Events(): // as an agent does
			case <-timeout:
				t.Fatalf("the cable is %s, and Apply says %q", x.set, got)
			}
			if rep, err = drv.Apply(t.Context(), small); err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, p := range rep.Problems {
				got = p.Err.Error()
			}
		}
	}
}

// TestTunnelAddressBesideTheSwitchIsReported: in user space a problem reports that the tunnel's address is on an
// interface that is not the switch's.
func TestTunnelAddressBesideTheSwitchIsReported(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's tunnels leave by its own interfaces")
	}
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	drv.mu.Lock()
	defer drv.mu.Unlock()
	if p := drv.underlay.underlayProblems(); len(p) != 0 {
		t.Errorf("an address that no interface has: %v", p)
	}
	drv.cfg.VTEP = netip.MustParseAddr("127.0.0.1")
	if p := drv.underlay.underlayProblems(); len(p) != 1 || p[0].Object != "tunnel underlay" || !strings.Contains(p[0].Err.Error(), "lies on interface lo, which is not of Open vSwitch") {
		t.Errorf("the address of lo: %v", p)
	}
	drv.underlay.under = underlayBridge
	if p := drv.underlay.underlayProblems(); len(p) != 0 {
		t.Errorf("a bridge has it: %v", p)
	}
}

// TestBridgeDeletedMeanwhileIsMadeAgain: a bridge that is deleted while ports are added to it is made
// again, with them, and no call waits for ports that will not come.
func TestBridgeDeletedMeanwhileIsMadeAgain(t *testing.T) {
	r := newRig(t)
	small, _ := conformance.DesiredStates(t)
	name := ""
	for n, p := range small.Ports.All() {
		r.addWire(t, n, p.MAC)
		name = n
	}
	drv := r.open(t)
	defer drv.Close()
	if rep, err := drv.Apply(t.Context(), small); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	var once sync.Once
	drv.setFault(func() error { // before the write
		once.Do(func() { r.Vsctl("--no-wait", "del-br", "contivBr") })
		return nil
	})
	r.Vsctl("--no-wait", "del-port", "contivBr", name)
	for deadline := time.Now().Add(10 * time.Second); ; {
		if out := r.Vsctl("--bare", "--columns=name", "find", "port", "external_ids:contiv=port"); len(strings.Fields(out)) == small.Ports.Len() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("10 s later not all ports are back")
		}
	}
}

// TestDeletedBridgeIsMadeAgain: a bridge that somebody deletes is made again with its ports,
// also where the connection to it has broken before the database told.
func TestDeletedBridgeIsMadeAgain(t *testing.T) {
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	l.drv.mu.Lock() // nothing restores it before the connection has gone
	sw := l.drv.conns.sw
	l.Vsctl("--no-wait", "del-br", "contivBr")
	<-sw.Done()
	l.drv.conns.sw = nil // as keepSwitch is about to do
	l.drv.mu.Unlock()
	for deadline := time.Now().Add(15 * time.Second); l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("15 s later there is no way between containers; bridges: %q", l.Vsctl("list-br"))
		}
	}
}

// TestBridgeChangesArePutBack: what others change of the bridge itself is put back without an Apply,
// also what keeps the driver from connecting again, and while it waits for the switch.
func TestBridgeChangesArePutBack(t *testing.T) {
	r := newRig(t)
	pic, _ := conformance.DesiredStates(t)
	for name, p := range pic.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	drv := r.open(t)
	defer func() { _ = drv.Close() }()
	apply := func() error {
		rep, err := drv.Apply(t.Context(), pic)
		return errors.Join(err, conformance.Failed(rep))
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		do     []string
		get    []string
		wanted string
	}{
		{"forwards by itself", []string{"set-fail-mode", "contivBr", "standalone"}, []string{"get", "bridge", "contivBr", "fail_mode"}, "secure"},
		{"settings gone", []string{"clear", "bridge", "contivBr", "other_config"}, []string{"--if-exists", "get", "bridge", "contivBr", "other_config:disable-in-band"}, `"true"`},
		{"mark gone", []string{"clear", "bridge", "contivBr", "external_ids"}, []string{"get", "bridge", "contivBr", "external_ids"}, "{contiv=bridge}"},
		{"a controller", []string{"set-controller", "contivBr", "tcp:127.0.0.1:9"}, []string{"get-controller", "contivBr"}, ""},
		{"other versions", []string{"set", "bridge", "contivBr", "protocols=OpenFlow10,OpenFlow13"}, []string{"get", "bridge", "contivBr", "protocols"}, "[OpenFlow10, OpenFlow13, OpenFlow14, OpenFlow15]"},
	} {
		func() {
			drv.mu.Lock() // as one does who waits for a switch that does not answer
			defer drv.mu.Unlock()
			r.Vsctl(x.do...)
			have := "not read yet"
			for deadline := time.Now().Add(20 * time.Second); have != x.wanted; have = strings.TrimSpace(r.Vsctl(x.get...)) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: it is %s, not %s", x.name, have, x.wanted)
				}
			}
		}()
	}
	// A switch that knew other versions for a while took the connection with it.
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := apply()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	// Nor does a list of versions keep the next driver from what it needs.
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	r.Vsctl("set", "bridge", "contivBr", "protocols=OpenFlow13")
	drv = r.open(t)
	if err := apply(); err != nil {
		t.Fatal(err)
	}
}
