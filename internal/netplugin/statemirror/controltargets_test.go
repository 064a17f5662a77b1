package statemirror

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// newControl returns a ControlPlane that has heard of each source.
func newControl(t *testing.T, sources map[string][]listener) *ControlPlane {
	t.Helper()
	p := NewControlPlane(newCluster(t, memory.New()), ControlConfig{Listening: func() []string { return nil }})
	for source := range p.waiting {
		p.set(source, sources[source])
	}
	return p
}

func listenerAt(at, host string) listener { return listener{netip.MustParseAddrPort(at), host} }

// listeners are n ports of an address.
func listeners(host, at string, n int) (out []listener) {
	for i := range n {
		out = append(out, listenerAt(fmt.Sprintf("%s:%d", at, 10000+i), host))
	}
	return out
}

// TestNetmastersAndTheStoreComeFirst: where ports cannot deny all of the control plane, they
// deny netmasters and the store, then something of each host, always the same, and the host
// with too many addresses is named.
func TestNetmastersAndTheStoreComeFirst(t *testing.T) {
	sources := map[string][]listener{
		cluster.ServiceMaster: {listenerAt("198.51.100.1:9999", "")},
		sourceStore:           {listenerAt("198.51.100.2:2379", "")},
		cluster.ListenService: slices.Concat([]listener{listenerAt("198.51.100.1:9999", ""), listenerAt("198.51.100.1:9001", "")},
			listeners("h3", "198.51.100.3", 300), listeners("h4", "198.51.100.4", 2)),
	}
	p := newControl(t, sources)
	k, _ := p.Want(true)
	first := slices.Clone(p.denied.denied)
	if len(first) != maxDenied {
		t.Errorf("%d addresses are denied", len(first))
	}
	for _, at := range []string{"198.51.100.1:9999", "198.51.100.1:9001", "198.51.100.2:2379", "198.51.100.3:10000", "198.51.100.4:10000", "198.51.100.4:10001"} {
		if !slices.Contains(first, netip.MustParseAddrPort(at)) {
			t.Errorf("ports do not deny %s", at)
		}
	}
	if len(k.Targets) != 305 {
		t.Errorf("the host denies %d addresses, want all", len(k.Targets))
	}
	for range 5 {
		if p.Want(true); !slices.Equal(first, p.denied.denied) {
			t.Fatal("ports deny others than before")
		}
	}
	all := p.Problems()
	if len(all) != 1 || all[0].Object != ObjectInspection || !strings.Contains(all[0].Text, "not from 49 more of netplugins, 49 of them on host h3") {
		t.Errorf("problems: %v", all)
	}

	sources[cluster.ServiceMaster] = listeners("", "198.51.100.1", 400)
	p = newControl(t, sources)
	p.Want(true)
	if all := p.Problems(); len(all) != 2 || all[0].Object != "control plane" || !strings.Contains(all[0].Text, "of netmasters and the store") {
		t.Errorf("problems: %v", all)
	}
}

// TestNetmastersWithManyAddressesAreDenied: each address of a netmaster's machine counts once,
// however many others the machine has.
func TestNetmastersWithManyAddressesAreDenied(t *testing.T) {
	var list []cluster.Service
	sources := map[string][]listener{}
	for m := range 3 {
		for a := range 6 {
			at := fmt.Sprintf("198.51.10%d.%d", m, a+1)
			list = append(list, cluster.Service{HostAddr: at, Hostname: fmt.Sprint("m", m)})
			for _, port := range []string{"9999", "9001"} {
				sources[cluster.ListenService] = append(sources[cluster.ListenService], listenerAt(at+":"+port, ""))
			}
			sources[sourceStore] = append(sources[sourceStore], listenerAt(at+":2379", ""))
		}
		at := fmt.Sprintf("198.51.10%d.1", m)
		sources[cluster.ServiceMaster] = append(sources[cluster.ServiceMaster], listenerAt(at+":9999", ""))
	}
	p := newControl(t, sources)
	p.setMachines(list)
	if p.Want(true); len(p.denied.denied) != 3*6*3 || p.Problems() != nil {
		t.Errorf("ports deny %d addresses: %v; %v", len(p.denied.denied), p.denied.denied, p.Problems())
	}
}

// TestPreviousAddressesOfAHostAreFew: a host that reports other addresses all the time has others
// keep few of the previous ones.
func TestPreviousAddressesOfAHostAreFew(t *testing.T) {
	p := newControl(t, nil)
	for i := range 20 {
		p.set(cluster.ListenService, listeners("h3", fmt.Sprintf("198.51.100.%d", i+1), 50))
	}
	if k, _ := p.Want(true); len(k.Targets) > 50+maxPrevious {
		t.Errorf("%d addresses are denied", len(k.Targets))
	}
}

// TestLoopbackAddressOfAHostIsNoPortOfOthers: a netmaster's machine that is a host with a
// loopback address makes no port of other hosts one of the control plane.
func TestLoopbackAddressOfAHostIsNoPortOfOthers(t *testing.T) {
	p := newControl(t, map[string][]listener{cluster.ServiceMaster: {listenerAt("198.51.100.1:9999", "")}})
	p.hosts.mu.Lock()
	p.hosts.hosts["h1"] = model.Host{Name: "h1", Control: netip.MustParseAddr("127.0.0.1"), VTEP: netip.MustParseAddr("198.51.100.1")}
	p.hosts.version++
	p.hosts.mu.Unlock()
	if k, _ := p.Want(true); slices.Contains(k.Ports, 9999) {
		t.Errorf("ports of this host: %v", k.Ports)
	}
}
