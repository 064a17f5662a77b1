package ovs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestBridgesOf1xAreRemovedOnceUnused: a bridge of Contiv 1.x takes the tunnel's packets away. While a
// container of 1.x is on it, a problem reports it with a command to type, and after that it
// is removed. A more specific tunnel port of others is reported and left alone.
func TestBridgesOf1xAreRemovedOnceUnused(t *testing.T) {
	r := newRig(t)
	top := conformance.StandardTopology()
	comp := conformance.NewCompiler(top, "h1")
	pic, _ := comp.Compile(1)
	for name, p := range pic.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	r.Run("ip", "-n", r.NS, "link", "add", "vvport1", "type", "veth", "peer", "name", "vport1")
	tunnel := func(bridge, port, remote string) {
		r.Vsctl("add-port", bridge, port, "--", "set", "interface", port, "type=vxlan", "options:remote_ip="+remote, "options:key=flow")
	}
	for _, b := range []string{"contivVxlanBridge", "contivVlanBridge", "theirs"} {
		r.Vsctl("add-br", b, "--", "set", "bridge", b, "datapath_type="+ovstest.Datapath())
	}
	tunnel("contivVxlanBridge", "vxif192168072", vtep2.String())
	r.Vsctl("add-port", "contivVxlanBridge", "vvport1")
	r.Vsctl("add-port", "contivVlanBridge", uplinkWire)
	tunnel("theirs", "elsewhere", "203.0.113.9")
	drv := r.open(t)
	defer drv.Close()
	apply := func() driver.Report {
		t.Helper()
		rep, err := drv.Apply(t.Context(), pic)
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	about := func(rep driver.Report) (texts []string) {
		for _, p := range rep.Problems {
			if strings.HasPrefix(p.Object, "bridge ") {
				texts = append(texts, p.Object+": "+p.Err.Error())
			}
		}
		return texts
	}
	rep := apply()
	got := about(rep)
	if len(got) != 1 || !strings.Contains(got[0], vtep2.String()) || !strings.Contains(got[0], "vvport1") || !strings.Contains(got[0], "ovs-vsctl del-br contivVxlanBridge") {
		t.Errorf("problems: %q", got)
	}
	if b := r.Vsctl("list-br"); strings.Contains(b, "contivVlanBridge") || !strings.Contains(b, "contivVxlanBridge") || !strings.Contains(b, "theirs") {
		t.Errorf("bridges: %s", b)
	}
	r.Run("ip", "-n", r.NS, "link", "del", "vvport1") // the pod is gone, 1.x's netplugin was before
	for deadline := time.Now().Add(time.Minute); len(about(rep)) > 0 && time.Now().Before(deadline); {
		rep = apply()
	}
	if err := conformance.Failed(rep); err != nil {
		t.Errorf("without 1.x: %v", err)
	}
	if b := r.Vsctl("list-br"); strings.Contains(b, "contivVxlanBridge") || !strings.Contains(b, "theirs") {
		t.Errorf("bridges: %s", b)
	}
	web, _ := pic.Ports.Get(func() string {
		for name, p := range pic.Ports.All() {
			if p.Endpoint.ID == "web1" && p.Endpoint.Network.Tenant == "blue" {
				return name
			}
		}
		return ""
	}())
	r.networks[web.Network] = 100
	back := reference.Packet{VTEP: vtep2, Network: web.Network, DstMAC: web.MAC, Dst: web.IPv4, Proto: model.ProtoUDP, SrcPort: 1000, DstPort: 1000}
	for _, x := range pic.Remotes.All() {
		if x.Network == web.Network {
			back.SrcMAC, back.Src = x.MAC, x.IPv4
		}
	}
	if v := r.inject(t, back); len(v.Ports) != 1 {
		t.Errorf("a packet of another host came out as %s", v)
	}
	tunnel("theirs", "specific", vtep2.String())
	if got := about(apply()); len(got) != 1 || !strings.Contains(got[0], "specific") || !strings.Contains(got[0], "del-port theirs") {
		t.Errorf("problems: %q", got)
	}
}

// TestPortsWaitForTheTunnel: a container that needs the tunnel is not told that it has a
// network while there is none.
func TestPortsWaitForTheTunnel(t *testing.T) {
	r := newRig(t)
	pic, _ := conformance.NewCompiler(conformance.StandardTopology(), "h1").Compile(1)
	for name, p := range pic.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	r.Vsctl("add-port", underlayBridge, tunnelName, "--", "set", "interface", tunnelName, "type=internal")
	drv := r.open(t)
	defer drv.Close()
	rep, err := drv.Apply(t.Context(), pic)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pic.Ports.All() {
		n, _ := pic.Networks.Get(p.Network)
		if vxlan := n.Encap == model.EncapVXLAN; vxlan != errors.Is(rep.Ports.Err(name), model.ErrConflict) {
			t.Errorf("port %s on %s: %v", name, n.Encap, rep.Ports.Err(name))
		}
	}
}
