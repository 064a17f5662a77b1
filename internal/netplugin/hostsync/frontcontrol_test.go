package hostsync

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// TestFrontsToControl: a service whose written backends are the control plane's ports
// serves this host's own processes and no external client, by each known address of a
// machine, as soon as it is known to be the control plane's.
func TestFrontsToControl(t *testing.T) {
	addr := netip.MustParseAddr
	key := model.ServiceKey{Tenant: "default", Name: "a/b"}
	var pic desired.Host
	pic.VTEP = addr("192.168.0.1")
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Key: model.ClusterNetworkKey, Routed: true, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	for a, vtep := range map[string]string{"192.168.0.1": "192.168.0.1", "192.168.0.2": "192.168.0.2", "10.9.0.2": "192.168.0.2"} {
		pic.Nodes = pic.Nodes.Set(addr(a), addr(vtep))
	}
	serve := func(proto model.Protocol, to ...string) {
		s := &desired.Service{Key: key, Network: 1, Exposed: true, Frontends: []desired.Frontend{{Addr: addr("0.0.0.0"), Protocol: proto, Port: 30080, Backend: 1, InternalPolicy: desired.TrafficCluster, ExternalPolicy: desired.TrafficLocalDrop}}}
		for _, x := range to {
			at := netip.MustParseAddrPort(x)
			s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(x)}, &desired.Backend{IPv4: at.Addr(), Port: at.Port(), Local: true})
		}
		pic.Services = pic.Services.Set(key, s)
	}
	var control *hoststack.Control
	f := newFrontends(slog.New(slog.DiscardHandler), hoststack.NoRepairs, 4789, hostservices.Config{}, "")
	var n routedNetworks
	is := func(when string, open, shut []string) {
		t.Helper()
		n.follow(pic.Networks)
		if !f.follow(pic, n, control, nil) {
			t.Fatalf("%s: nothing is served", when)
		}
		s, _ := pic.Services.Get(key)
		front := f.out.At(hoststack.FrontendAddr{Addr: addr("0.0.0.0"), Proto: s.Frontends[0].Protocol, Port: 30080})
		text := func(c hoststack.Choice) (out []string) {
			for _, x := range c.Targets {
				out = append(out, x.String())
			}
			return out
		}
		all := slices.Concat(open, shut)
		slices.SortFunc(all, func(a, b string) int { return netip.MustParseAddrPort(a).Compare(netip.MustParseAddrPort(b)) })
		if own, outside := text(front.Own), text(front.Outside); !slices.Equal(own, all) || !slices.Equal(outside, open) {
			t.Errorf("%s: own processes are led to %v, want %v; others to %v, want %v", when, own, all, outside, open)
		}
		if front.Outside.Drop {
			t.Errorf("%s: clients outside are not refused", when)
		}
		told := slices.ContainsFunc(f.apply(context.Background(), nil, [2]netip.Addr{}, false), func(p compile.Problem) bool {
			return strings.Contains(p.Text, "control plane") && strings.Contains(p.Text, "1 services such as default:a/b")
		})
		if told != (len(shut) > 0) {
			t.Errorf("%s: that clients outside are not led there is told: %v", when, told)
		}
	}
	open := []string{"10.9.0.2:80", "192.168.0.2:6443"}
	shut := []string{"10.9.0.2:9001", "192.168.0.2:9001", "127.0.0.1:9090", "172.16.0.9:2379"}
	serve(model.ProtoTCP, slices.Concat(open, shut)...)
	is("before anything is known", []string{"10.9.0.2:80", "10.9.0.2:9001", "127.0.0.1:9090", "172.16.0.9:2379", "192.168.0.2:6443", "192.168.0.2:9001"}, nil)
	control = &hoststack.Control{Ports: []uint16{9090}, Targets: []netip.AddrPort{netip.MustParseAddrPort("172.16.0.9:2379"), netip.MustParseAddrPort("192.168.0.2:9001")}}
	is("the control plane is known", open, shut)
	pic.Nodes = pic.Nodes.Delete(addr("10.9.0.2"))
	is("a machine loses an address", []string{"10.9.0.2:80", "10.9.0.2:9001", "192.168.0.2:6443"}, []string{"127.0.0.1:9090", "172.16.0.9:2379", "192.168.0.2:9001"})
	serve(model.ProtoTCP, "192.168.0.2:9001")
	is("nobody else", nil, []string{"192.168.0.2:9001"})
	serve(model.ProtoUDP, "192.168.0.2:9001")
	is("another protocol", []string{"192.168.0.2:9001"}, nil)
	serve(model.ProtoUDP, "192.168.0.2:4789", "198.51.100.7:4789", "198.51.100.7:53")
	is("tunnels", []string{"198.51.100.7:53"}, []string{"192.168.0.2:4789", "198.51.100.7:4789"})
	serve(model.ProtoTCP, "192.168.0.2:4789")
	is("the tunnels' port by TCP", []string{"192.168.0.2:4789"}, nil)
	serve(model.ProtoTCP, "192.168.0.2:9001")
	is("TCP again", nil, []string{"192.168.0.2:9001"})
	control = nil
	is("open to containers", []string{"192.168.0.2:9001"}, nil)
	serve(model.ProtoUDP, "192.168.0.2:4789")
	is("tunnels, where the control plane is open to containers", nil, []string{"192.168.0.2:4789"})
}

// TestFrontsAtControl: a service at an address of a control plane machine takes no packets
// away from there, as soon as that is known, and is reported. A service whose cluster
// address it is does, since no machine has it.
func TestFrontsAtControl(t *testing.T) {
	addr := netip.MustParseAddr
	key := model.ServiceKey{Tenant: "default", Name: "a/b"}
	var pic desired.Host
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Key: model.ClusterNetworkKey, Routed: true, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	pic.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	pic.NodeAddrs = pic.NodeAddrs.Set(addr("192.168.0.1"), struct{}{})
	s := &desired.Service{Key: key, Network: 1, Exposed: true}
	at := []string{"10.96.0.9", "192.168.0.1", "172.16.0.9", "172.16.0.8"}
	for _, a := range at {
		s.Frontends = append(s.Frontends, desired.Frontend{Addr: addr(a), Protocol: model.ProtoTCP, Port: 2379, Backend: 1})
	}
	pic.Services = pic.Services.Set(key, s)
	f := newFrontends(slog.New(slog.DiscardHandler), hoststack.NoRepairs, 4789, hostservices.Config{}, "")
	var n routedNetworks
	n.follow(pic.Networks)
	is := func(planes, want string) {
		t.Helper()
		var list []netip.Addr
		for a := range strings.FieldsSeq(planes) {
			list = append(list, addr(a))
		}
		f.follow(pic, n, nil, list)
		var led []string
		for _, a := range at {
			place := addr(a)
			if pic.IsNode(place) {
				place = desired.AnyNode(place)
			}
			if f.out.At(hoststack.FrontendAddr{Addr: place, Proto: model.ProtoTCP, Port: 2379}) != nil {
				led = append(led, a)
			}
		}
		if got := strings.Join(led, " "); got != want {
			t.Errorf("with the control plane at %q this host leads from %q, want %q", planes, got, want)
		}
		told := slices.ContainsFunc(f.apply(context.Background(), nil, [2]netip.Addr{}, false), func(p compile.Problem) bool {
			return strings.Contains(p.Object, "at addresses of the control plane") && strings.Contains(p.Text, "1 services such as default:a/b")
		})
		if told != (len(led) < len(at)) {
			t.Errorf("with the control plane at %q: told: %v", planes, told)
		}
	}
	is("", "10.96.0.9 192.168.0.1 172.16.0.9 172.16.0.8")
	is("10.96.0.9 172.16.0.9 192.168.0.1", "10.96.0.9 192.168.0.1 172.16.0.8")
	is("172.16.0.8", "10.96.0.9 192.168.0.1 172.16.0.9")
	pic.ServiceRanges = nil
	is("10.96.0.9", "192.168.0.1 172.16.0.9 172.16.0.8")
}
