package hoststack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestRoutedSubnetsLeadToTheDataPlane: subnets of native networks are led to the data plane by the host's own
// address; what sockets of the host send there has the mark, and nothing else; containers
// go beyond in the host's name; and nothing of it stays.
func TestRoutedSubnetsLeadToTheDataPlane(t *testing.T) {
	s := newSite6(t)
	tool := func(v6 bool, args ...string) string {
		name := "iptables-nft"
		if v6 {
			name = "ip6tables-nft"
		}
		return run(t, append([]string{"ip", "netns", "exec", s.host, name, "-t", "mangle"}, args...)...)
	}
	marked := func(v6 bool) bool {
		defer tool(v6, "-Z", "POSTROUTING")
		for line := range strings.Lines(tool(v6, "-L", "POSTROUTING", "-v", "-n", "-x")) {
			if f := strings.Fields(line); strings.Contains(line, fmt.Sprintf("0x%x", uint32(desired.OwnMark))) {
				return f[0] != "0"
			}
		}
		t.Fatal("the rule that counts is gone")
		return false
	}
	for _, v6 := range []bool{false, true} {
		tool(v6, "-A", "POSTROUTING", "-o", desired.HostInterface, "-m", "mark", "--mark", fmt.Sprint(uint32(desired.OwnMark)))
	}
	// What kube-proxy and kubelets have beside: who has such a bit is masqueraded, and loses it.
	kube := func(v6 bool, args ...string) string {
		name := "iptables-nft"
		if v6 {
			name = "ip6tables-nft"
		}
		return run(t, append([]string{"ip", "netns", "exec", s.host, name, "-t", "nat"}, args...)...)
	}
	for _, bit := range []string{"0x4000/0x4000", "0x8000/0x8000"} {
		for _, v6 := range []bool{false, true} {
			kube(v6, "-A", "POSTROUTING", "-m", "mark", "--mark", bit, "-j", "MASQUERADE")
		}
	}
	pod, pod6 := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("fd00:244::5")
	for _, a := range []string{pod.String() + "/32", pod6.String() + "/128"} {
		run(t, "ip", "-n", s.conts, "addr", "add", a, "dev", "c0")
	}
	run(t, "ip", "-n", s.beyond, "route", "add", "10.244.0.0/16", "via", near.String())
	run(t, "ip", "-n", s.beyond, "route", "add", "fd00:244::/64", "via", near6.String())
	run(t, "ip", "-n", s.host, "-6", "route", "add", "default", "via", far6.String())
	s.want.Routed = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/64")}
	s.want.Source, s.want.ServiceMTU = near, 1400
	s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: pod, Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: 8090, ContainerPort: 80}}})
	s.good()
	// What kube-proxy does for an external address, and a node port.
	for _, rule := range []string{"-d 203.0.113.9 -p tcp --dport 83", "-d " + near.String() + " -p tcp --dport 8084"} {
		kube(false, append([]string{"-A", "PREROUTING"}, strings.Fields(rule+" -j DNAT --to "+pod.String()+":83")...)...)
	}
	peer := netip.MustParseAddr("10.244.0.6")
	run(t, "ip", "-n", s.conts, "addr", "add", peer.String()+"/32", "dev", "c0")
	s.serve(s.conts, "tcp", pod.String()+":83")
	s.serve(s.conts, "tcp", pod.String()+":80")
	s.serve(s.conts, "udp", pod.String()+":80")
	s.serve(s.conts, "tcp", "["+pod6.String()+"]:80")
	s.serve(s.beyond, "tcp", far.String()+":80")
	s.serve(s.beyond, "tcp", "["+far6.String()+"]:80")
	s.serve(s.host, "tcp", near.String()+":81")
	forged, forged6 := "10.244.0.9", "fd00:244::9"
	for _, a := range []string{forged + "/32", forged6 + "/128"} {
		run(t, "ip", "-n", s.beyond, "addr", "add", a, "dev", "lo")
	}
	s.serve(s.host, "udp", near.String()+":82")
	s.serve(s.host, "udp", "["+near6.String()+"]:82")
	for _, x := range []struct {
		name, ns, network, from, to, seen string
		marked                            bool
	}{
		{"the host", s.host, "tcp", "", pod.String() + ":80", near.String(), true},
		{"the host, UDP", s.host, "udp", "", pod.String() + ":80", near.String(), true},
		{"the host, IPv6", s.host, "tcp", "", "[" + pod6.String() + "]:80", near6.String(), true},
		{"the host's answer", s.conts, "tcp", pod.String(), near.String() + ":81", pod.String(), true},
		{"the host by a published port", s.host, "tcp", "", near.String() + ":8090", near.String(), false},
		{"the host's loopback by a published port", s.host, "tcp", "", "127.0.0.1:8090", near.String(), false},
		{"beyond", s.beyond, "tcp", "", pod.String() + ":80", far.String(), false},
		{"beyond, IPv6", s.beyond, "tcp", "", "[" + pod6.String() + "]:80", far6.String(), false},
		{"beyond by a published port", s.beyond, "tcp", "", near.String() + ":8090", far.String(), false},
		{"a container, beyond", s.conts, "tcp", pod.String(), far.String() + ":80", near.String(), false},
		{"a container, beyond, IPv6", s.conts, "tcp", pod6.String(), "[" + far6.String() + "]:80", near6.String(), false},
		{"beyond in a container's name", s.beyond, "udp", forged, near.String() + ":82", "", false},
		{"beyond in a container's name, IPv6", s.beyond, "udp", forged6, "[" + near6.String() + "]:82", "", false},
		{"the host to a host-local NAT address", s.host, "tcp", "", web.String() + ":8080", "", true},
		{"a container by a published port", s.conts, "tcp", peer.String(), near.String() + ":8090", near.String(), false},
		{"a container by somebody else's translation", s.conts, "tcp", peer.String(), "203.0.113.9:83", "", false},
		{"beyond by somebody else's translation", s.beyond, "tcp", "", near.String() + ":8084", far.String(), false},
	} {
		if seen := s.ask(x.ns, x.network, x.from, x.to); seen != x.seen {
			t.Errorf("%s: %s to %s was seen as %q, want %q", x.name, x.network, x.to, seen, x.seen)
		}
		four, six := marked(false), marked(true)
		if (four || six) != x.marked {
			t.Errorf("%s: with the mark by IPv4 %v, by IPv6 %v, want %v", x.name, four, six, x.marked)
		}
	}
	for _, v6 := range []bool{false, true} {
		for line := range strings.Lines(kube(v6, "-L", "POSTROUTING", "-v", "-n", "-x")) {
			if f := strings.Fields(line); strings.Contains(line, "MASQUERADE") && f[0] != "0" {
				t.Errorf("kube-proxy's or the kubelet's rule takes %s connections of the host's own for its own: %s", f[0], line)
			}
		}
	}
	routes := func() string {
		return run(t, "ip", "-n", s.host, "route") + run(t, "ip", "-n", s.host, "-6", "route")
	}
	for _, want := range []string{"10.244.0.0/16 dev contivh0 proto static scope link src " + near.String() + " mtu 1400", "fd00:244::/64 dev contivh0 proto static src " + near6.String()} {
		if all := routes(); !strings.Contains(all, want) {
			t.Errorf("no route %s in\n%s", want, all)
		}
	}
	s.restartsAsItWas()
	run(t, "ip", "-n", s.host, "route", "del", "10.244.0.0/16")
	s.good()
	if !strings.Contains(routes(), "10.244.0.0/16") {
		t.Error("a route that somebody took away did not come back")
	}
	for subnet, why := range map[string]string{"198.51.0.0/16": "own address " + near.String(), "192.168.0.0/16": "of a machine"} {
		s.want.Routed, s.want.Machines = []netip.Prefix{netip.MustParsePrefix(subnet)}, []netip.Addr{netip.MustParseAddr("192.168.3.3")}
		if problems := s.apply(); len(problems) != 1 || problems["native network "+subnet] == nil || !strings.Contains(problems["native network "+subnet].Error(), why) {
			t.Errorf("%s: problems %v, want %q", subnet, problems, why)
		}
	}
	s.want.Routed, s.want.Machines = nil, nil
	s.want.Endpoints = slices.DeleteFunc(s.want.Endpoints, func(e Endpoint) bool { return e.Addr == pod })
	s.good()
	if all := routes(); strings.Contains(all, "244") {
		t.Errorf("routes without native networks:\n%s", all)
	}
}
