package ebpf

import (
	"runtime"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestServiceRefusalsAreBounded: of 20,000 connections to a service without backends, as
// many are refused as a port gets answers in a second. The others are dropped without an
// answer, and none takes room.
func TestServiceRefusalsAreBounded(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	client, pic, vips, _ := r.served(t)
	nobody, _ := pic.Services.Get(model.ServiceKey{Tenant: "t", Name: "far"})
	s := *nobody
	s.Ports, s.Backends = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}}, desired.Map[model.EndpointKey, *desired.Backend]{}
	pic.Services = pic.Services.Set(s.Key, &s)
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	var frames [][]byte
	for port := range uint16(20000) {
		p := reference.Packet{
			SrcMAC: client.MAC, DstMAC: desired.RouterMAC, Src: client.IPv4, Dst: vips[0], Proto: model.ProtoTCP,
			SrcPort: 10000 + port, DstPort: 80, TCPFlags: reference.FlagSYN,
		}
		frames = append(frames, conformance.Frame(p))
	}
	began, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, ret := range r.from(t, client.IfName, frames...) {
		if ret == redirected {
			refused++
		}
	}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	seconds := int(now/1e9-began/1e9) + 1 // that began meanwhile
	if most := 1000 * seconds * runtime.NumCPU(); refused < 1000 || refused > most {
		t.Errorf("%d of %d connections were refused in %d seconds, want 1000 to %d", refused, len(frames), seconds, most)
	}
	t.Logf("%d refused in %v s", refused, float64(now-began)/1e9)
	all, _, err := r.drv.dp.conntrack.translations.read()
	if err != nil {
		t.Fatal(err)
	}
	if held, err := r.drv.dp.conns.openCount(); err != nil || held != 0 || len(all) != 0 {
		t.Errorf("%d open connections, %d translations, %v", held, len(all), err)
	}
}
