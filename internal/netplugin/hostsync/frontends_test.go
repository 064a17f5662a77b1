package hostsync

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// TestFrontendsFollowTheDesiredState: the backends that the host's stack leads to are computed from the desired state:
// by policy for the host's own and for others, in the present state of backends, near ones
// first; the first of several services has a place; and the data plane serves services with
// backends on networks that are not routed.
func TestFrontendsFollowTheDesiredState(t *testing.T) {
	addr := netip.MustParseAddr
	key := func(name string) model.ServiceKey { return model.ServiceKey{Tenant: "default", Name: name} }
	backend := func(a string, change func(*desired.Backend)) *desired.Backend {
		b := &desired.Backend{Network: 1, IPv4: addr(a)}
		if change != nil {
			change(b)
		}
		return b
	}
	serve := func(name string, faces []desired.Frontend, backends ...*desired.Backend) *desired.Service {
		s := &desired.Service{Key: key(name), Network: 1, Exposed: true, Frontends: faces, Affinity: time.Hour}
		for _, b := range backends {
			s.Backends = s.Backends.Set(model.EndpointKey{ID: model.EndpointID(b.IPv4.String())}, b)
		}
		return s
	}
	face := func(a string, port uint16, inside, outside desired.TrafficPolicy) desired.Frontend {
		return desired.Frontend{Addr: addr(a), Protocol: model.ProtoTCP, Port: port, Backend: 8080, InternalPolicy: inside, ExternalPolicy: outside}
	}
	var pic desired.Host
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Key: model.ClusterNetworkKey, Routed: true, Subnet: netip.MustParsePrefix("10.1.0.0/16")}).
		Set(2, &desired.Network{ID: 2, Subnet: netip.MustParsePrefix("10.2.0.0/16")})
	pic.NodeAddrs = pic.NodeAddrs.Set(addr("192.168.0.1"), struct{}{})
	f := newFrontends(slog.New(slog.DiscardHandler), hoststack.NoRepairs, 4789, hostservices.Config{}, "")
	var n routedNetworks
	var control *hoststack.Control
	follow := func() bool {
		n.follow(pic.Networks)
		return f.follow(pic, n, control, nil)
	}
	text := func(c hoststack.Choice) string {
		var out []string
		for _, x := range c.Targets {
			s := x.String()
			s += [...]string{hoststack.Local: "+", hoststack.OtherHost: "", hoststack.External: "!"}[x.Location]
			out = append(out, s)
		}
		if c.Drop {
			out = append(out, "silent")
		}
		return strings.Join(out, " ")
	}
	at := func(a string, port uint16) hoststack.FrontendAddr {
		return hoststack.FrontendAddr{Addr: addr(a), Proto: model.ProtoTCP, Port: port}
	}
	holds := func(when, a string, port uint16, own, outside string) {
		t.Helper()
		front := f.out.At(at(a, port))
		if front == nil || text(front.Own) != own || text(front.Outside) != outside {
			t.Errorf("%s: at %s:%d %+v, want %s and %s", when, a, port, front, own, outside)
		}
	}
	if follow() {
		t.Error("without services something is served")
	}
	here := func(b *desired.Backend) { b.Local = true }
	pic.Services = pic.Services.Set(key("a"), serve("a", []desired.Frontend{face("0.0.0.0", 30080, desired.TrafficCluster, desired.TrafficLocalDrop), face("10.96.0.1", 80, desired.TrafficCluster, desired.TrafficCluster)},
		backend("10.1.0.5", here), backend("10.1.0.6", nil), backend("10.1.0.7", func(b *desired.Backend) { b.State = desired.BackendLeaving; b.Port = 99 }),
		backend("192.168.9.9", func(b *desired.Backend) { b.Network = 0 })))
	if !follow() {
		t.Error("nothing is served")
	}
	all := "10.1.0.5:8080+ 10.1.0.6:8080 192.168.9.9:8080!"
	holds("by policy", "0.0.0.0", 30080, all, "10.1.0.5:8080+")
	holds("by policy", "10.96.0.1", 80, all, all)
	if front := f.out.At(at("10.96.0.1", 80)); fmt.Sprint(front.Keep) != "[10.1.0.5:8080 10.1.0.6:8080 10.1.0.7:99 192.168.9.9:8080]" || front.Affinity != time.Hour {
		t.Errorf("keeps %v, affinity %s", front.Keep, front.Affinity)
	}
	pic.Services = pic.Services.Set(key("a"), serve("a", []desired.Frontend{face("0.0.0.0", 30080, desired.TrafficCluster, desired.TrafficLocalDrop), face("10.96.0.1", 80, desired.TrafficNearest, desired.TrafficNearest)},
		backend("10.1.0.6", func(b *desired.Backend) { b.Near = desired.NearZone }), backend("10.1.0.7", func(b *desired.Backend) { b.Near = desired.NearFar })))
	follow()
	holds("none here", "0.0.0.0", 30080, "10.1.0.6:8080 10.1.0.7:8080", "silent")
	holds("near", "10.96.0.1", 80, "10.1.0.6:8080", "10.1.0.6:8080")

	// Its node port at this node's own address, and another node's as a part of its own.
	part := serve("a@h2", []desired.Frontend{face("0.0.0.0", 30080, 0, 0)}, backend("10.1.0.7", nil))
	part.Exposed = false
	before, _ := pic.Services.Get(key("a"))
	pic.Services = pic.Services.Set(part.Key, part).Set(key("a"), serve("a", []desired.Frontend{face("192.168.0.1", 30080, desired.TrafficCluster, desired.TrafficLocalDrop), face("10.96.0.1", 80, desired.TrafficNearest, desired.TrafficNearest)},
		backend("10.1.0.6", func(b *desired.Backend) { b.Near = desired.NearZone }), backend("10.1.0.5", here)))
	follow()
	if front := f.sockets.places[hostservices.Place{Addr: netip.IPv4Unspecified(), Protocol: model.ProtoTCP, Port: 30080}]; front == nil || !front.Reserved {
		t.Errorf("a process may bind a node port at this node's own address: %+v", front)
	}
	holds("at its own address", "0.0.0.0", 30080, "10.1.0.5:8080+ 10.1.0.6:8080", "10.1.0.5:8080+")
	if f.out.At(at("192.168.0.1", 30080)) != nil {
		t.Error("a node's address has a front by itself")
	}
	pic.Services = pic.Services.Delete(part.Key).Set(key("a"), before)
	follow()
	holds("at all nodes' again", "0.0.0.0", 30080, "10.1.0.6:8080 10.1.0.7:8080", "silent")

	// Another one that wants the same place, and has a backend on a network that is not routed.
	pic.Services = pic.Services.Set(key("b"), serve("b", []desired.Frontend{face("10.96.0.1", 80, 0, 0), face("0.0.0.0", 30081, 0, 0)}, backend("10.2.0.5", func(b *desired.Backend) { b.Network = 2 }), backend("10.1.0.9", nil)))
	pic.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	follow()
	holds("two", "10.96.0.1", 80, "10.1.0.6:8080", "10.1.0.6:8080")
	pic.Services = pic.Services.Delete(key("a"))
	if !follow() {
		t.Error("nothing is served for a service that the data plane serves")
	}
	byPlane := func(when string, want ...string) {
		t.Helper()
		got := []string{}
		for p := range f.clients.places {
			got = append(got, netip.AddrPortFrom(p.Addr, p.Port).String())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: the data plane serves clients outside at %q, want %q", when, got, want)
		}
		for _, at := range want {
			p := netip.MustParseAddrPort(at)
			if f.out.At(hoststack.FrontendAddr{Addr: p.Addr(), Proto: model.ProtoTCP, Port: p.Port()}) != nil {
				t.Errorf("%s: the host's stack has a frontend at %s too", when, at)
			}
		}
	}
	byPlane("the second alone", "0.0.0.0:30081", "10.96.0.1:80")
	said := func() (out []string) {
		for _, p := range f.apply(context.Background(), nil, [2]netip.Addr{}, false) {
			out = append(out, p.Text)
		}
		return out
	}
	socket := func(a string, port uint16) string {
		if front := f.sockets.places[hostservices.Place{Addr: addr(a), Protocol: model.ProtoTCP, Port: port}]; front != nil {
			return fmt.Sprint(front.Targets)
		}
		return "where it asked"
	}
	b, _ := pic.Services.Get(key("b"))
	mixed := *b
	mixed.Backends = mixed.Backends.Set(model.EndpointKey{ID: "machine"}, backend("192.168.9.9", func(b *desired.Backend) { b.Network = 0 }))
	mixed.Frontends = slices.Clone(mixed.Frontends)
	mixed.Frontends[1].Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	pic.Services = pic.Services.Set(key("b"), &mixed)
	follow()
	byPlane("with a backend that is no pod", "0.0.0.0:30081", "10.96.0.1:80")
	if node := socket("0.0.0.0", 30081); node != "where it asked" {
		t.Errorf("sockets are connected to %s where clients are limited", node)
	}
	pic.Services = pic.Services.Set(key("b"), b)
	follow()
	if node, cluster := socket("0.0.0.0", 30081), socket("10.96.0.1", 80); node != "[10.96.0.1:80]" || cluster != "where it asked" {
		t.Errorf("sockets are connected to %s at the node port, %s at the cluster address", node, cluster)
	}
	if f.out.At(at("0.0.0.0", 30080)) != nil || f.out.Len() != 0 {
		t.Error("fronts of a service that is gone are there")
	}
	if s := said(); len(s) != 2 || !strings.Contains(s[0], "1 services such as default:b") || !strings.HasPrefix(s[0], model.NoEffectPrefix) { // clients and sockets
		t.Errorf("problems %q", s)
	}
	pic.Networks = pic.Networks.Set(2, &desired.Network{ID: 2, Routed: true, Subnet: netip.MustParsePrefix("10.2.0.0/16")})
	follow()
	byPlane("all are routed")
	holds("all are routed", "10.96.0.1", 80, "10.1.0.9:8080 10.2.0.5:8080", "10.1.0.9:8080 10.2.0.5:8080")
	if s := said(); len(s) != 0 {
		t.Errorf("problems %q", s)
	}
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Key: model.ClusterNetworkKey, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	follow()
	byPlane("the pods' network is not routed any more", "0.0.0.0:30081", "10.96.0.1:80")
	if f.out.Len() != 0 {
		t.Error("the host's stack serves a service of pods on a network that is not routed")
	}
	pic.Services = pic.Services.Set(key("b"), serve("b", []desired.Frontend{face("10.96.0.1", 80, 0, 0)}, backend("192.168.9.9", func(b *desired.Backend) { b.Network = 0 })))
	follow()
	byPlane("all backends are machines")
	holds("all backends are machines", "10.96.0.1", 80, "192.168.9.9:8080!", "192.168.9.9:8080!")
}
