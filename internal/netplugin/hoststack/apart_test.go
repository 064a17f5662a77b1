package hoststack

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestPrivateContainersReachNativeOnesByPortsAndServicesOnly: containers that have private addresses reach containers of native
// networks by published ports and services, in the host's name, and not at their own
// addresses.
func TestPrivateContainersReachNativeOnesByPortsAndServicesOnly(t *testing.T) {
	s := newSite6(t)
	pod, service := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.9")
	pod6, service6 := netip.MustParseAddr("fd00:244::5"), netip.MustParseAddr("fd00:244::9")
	// The pod is behind the far end, to which only what the host sends leads.
	pods := namespace(t, "p")
	ip := func(ns string, args ...string) { t.Helper(); run(t, append([]string{"ip", "-n", ns}, args...)...) }
	ip(s.conts, "link", "add", "p0", "type", "veth", "peer", "name", "eth0", "netns", pods)
	ip(s.conts, "link", "set", "p0", "up")
	ip(pods, "link", "set", "eth0", "up")
	ip(s.conts, "addr", "add", "fe80::1/64", "dev", "p0", "nodad")
	for _, a := range []netip.Addr{pod, service} {
		ip(pods, "addr", "add", a.String()+"/32", "dev", "eth0")
		ip(s.conts, "route", "add", a.String()+"/32", "dev", "p0")
	}
	for _, a := range []netip.Addr{pod6, service6} {
		ip(pods, "addr", "add", a.String()+"/128", "dev", "eth0", "nodad")
		ip(s.conts, "-6", "route", "add", a.String()+"/128", "dev", "p0")
	}
	ip(pods, "route", "add", "default", "dev", "eth0")
	ip(pods, "-6", "route", "add", "default", "via", "fe80::1", "dev", "eth0")
	for _, family := range [][2]string{{"-4", web.String()}, {"-6", web6.String()}} {
		ip(s.conts, family[0], "rule", "add", "from", family[1], "lookup", "100")
		ip(s.conts, family[0], "route", "add", "default", "dev", "c0", "table", "100")
	}
	for _, set := range []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.p0.proxy_arp=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.c0.rp_filter=0", "net.ipv4.conf.p0.rp_filter=0"} {
		run(t, "ip", "netns", "exec", s.conts, "sysctl", "-q", "-w", set)
	}
	ip(s.host, "-6", "route", "add", "default", "via", far6.String())
	s.want.Routed = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/64")}
	s.want.Source = near
	s.want.Services = []Service{{Name: "default:s", Addr: service}, {Name: "default:s", Addr: service6}}
	for _, a := range []netip.Addr{pod, pod6} {
		s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: a, Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: 8090, ContainerPort: 80}}})
		s.serve(pods, "tcp", netip.AddrPortFrom(a, 80).String())
	}
	for _, a := range []netip.Addr{service, service6} { // in place of a data plane that translates
		s.serve(pods, "tcp", netip.AddrPortFrom(a, 80).String())
	}
	s.good()
	s.asks([]question{
		{"the host", s.host, "tcp", "", "10.244.0.5:80", near.String()},
		{"the host", s.host, "tcp", "", "[fd00:244::5]:80", near6.String()},
		{"a container", s.conts, "tcp", web.String(), "10.244.0.5:80", ""},
		{"a container", s.conts, "tcp", web6.String(), "[fd00:244::5]:80", ""},
		{"a container by a published port", s.conts, "tcp", web.String(), near.String() + ":8090", near.String()},
		{"a container by a published port", s.conts, "tcp", web6.String(), "[" + near6.String() + "]:8090", near6.String()},
		{"a container by a service", s.conts, "tcp", web.String(), "10.244.0.9:80", near.String()},
		{"a container by a service", s.conts, "tcp", web6.String(), "[fd00:244::9]:80", near6.String()},
	}...)
	s.restartsAsItWas()
	s.want.Services = nil
	s.good()
	s.asks(question{"a service that is gone", s.conts, "tcp", web.String(), "10.244.0.9:80", ""},
		question{"a service that is gone", s.conts, "tcp", web6.String(), "[fd00:244::9]:80", ""})
}
