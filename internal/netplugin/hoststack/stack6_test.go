package hoststack

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

var (
	web6   = netip.MustParseAddr("fd6d:809b:d5b4::ac13:5")
	other6 = netip.MustParseAddr("fd6d:809b:d5b4::ac13:6")
	far6   = netip.MustParseAddr("2001:db8:7::7")
	near6  = netip.MustParseAddr("2001:db8:7::1")
)

// newSite6 is a site where IPv6 has egress too.
func newSite6(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.want.Private.WithIPv6()
	s.want.NameServer6 = 5354
	s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: web6, Ports: []attach.PortBinding{
		{Proto: model.ProtoTCP, HostPort: 8080, ContainerPort: 80},
		{Proto: model.ProtoUDP, HostPort: 8080, ContainerPort: 80},
		{Proto: model.ProtoTCP, HostIP: near6, HostPort: 8081, ContainerPort: 80},
		{Proto: model.ProtoTCP, HostIP: near, HostPort: 8082, ContainerPort: 80},
		{Proto: model.ProtoTCP, HostIP: netip.IPv6Unspecified(), HostPort: 8083, ContainerPort: 80},
	}})
	run(t, "ip", "-n", s.host, "addr", "add", near6.String()+"/64", "dev", "up0", "nodad")
	run(t, "ip", "-n", s.beyond, "addr", "add", far6.String()+"/64", "dev", "o0", "nodad")
	run(t, "ip", "-n", s.beyond, "route", "add", model.PvtSubnet6.String(), "via", near6.String())
	for _, a := range []netip.Addr{web6, other6} {
		run(t, "ip", "-n", s.conts, "addr", "add", a.String()+"/128", "dev", "c0", "nodad")
	}
	run(t, "ip", "-n", s.conts, "-6", "route", "add", "default", "dev", "c0", "src", web6.String())
	return s
}

// TestHostStackServesEgressAndPorts6 is TestHostStackServesEgressAndPorts for IPv6: all egress and in, and that everything goes when
// it is not wanted any more.
func TestHostStackServesEgressAndPorts6(t *testing.T) {
	s := newSite6(t)
	iptables := func(args ...string) string {
		return run(t, append([]string{"ip", "netns", "exec", s.host, "ip6tables-nft"}, args...)...)
	}
	sysctl := func(args ...string) string {
		return run(t, append([]string{"ip", "netns", "exec", s.host, "sysctl", "-q"}, args...)...)
	}
	iptables("-P", "FORWARD", "DROP")
	sysctl("-w", "net.ipv6.conf.up0.accept_ra=1")
	before := s.handles()
	s.restart(false)
	if p := s.apply(); len(p) != 1 && len(p) != 2 || p["IPv6 egress"] == nil || !strings.Contains(p["IPv6 egress"].Error(), "--ip-forward") {
		t.Fatalf("Apply() = %v", p)
	}
	s.restart(true)
	s.good()
	if ra := strings.TrimSpace(sysctl("-n", "net.ipv6.conf.up0.accept_ra")); ra != "2" {
		t.Errorf("with forwarding, advertisements of routers that were accepted have accept_ra %s", ra)
	}

	at := func(a netip.Addr, port string) string { return net.JoinHostPort(a.String(), port) }
	s.serve(s.beyond, "tcp", at(far6, "80"))
	s.serve(s.beyond, "udp", at(far6, "80"))
	s.serve(s.conts, "tcp", at(web6, "80"))
	s.serve(s.conts, "udp", at(web6, "80"))
	host := s.want.Private.Addr6
	s.serve(s.host, "udp", at(host, "5354"))
	s.serve(s.host, "tcp", at(host, "5354"))
	s.serve(s.host, "tcp", at(near6, "22"))
	s.serve(s.host, "udp", at(near6, "4789"))
	s.serve(s.beyond, "udp", at(far6, "4789"))
	s.asks([]question{
		{"outside, TCP", s.conts, "tcp", "", at(far6, "80"), near6.String()},
		{"outside, UDP", s.conts, "udp", "", at(far6, "80"), near6.String()},
		{"the host by its private address", s.conts, "tcp", "", at(host, "5354"), web6.String()},
		{"the host by its other address", s.conts, "tcp", "", at(near6, "22"), web6.String()},
		{"a name server somewhere, UDP", s.conts, "udp", "", at(far6, "53"), web6.String()},
		{"a name server somewhere, TCP", s.conts, "tcp", "", at(far6, "53"), web6.String()},
		{"published, from outside, TCP", s.beyond, "tcp", "", at(near6, "8080"), far6.String()},
		{"published, from outside, UDP", s.beyond, "udp", "", at(near6, "8080"), far6.String()},
		{"published at one address", s.beyond, "tcp", "", at(near6, "8081"), far6.String()},
		{"published at an address of IPv4", s.beyond, "tcp", "", at(near6, "8082"), ""},
		{"published at all of IPv6", s.beyond, "tcp", "", at(near6, "8083"), far6.String()},
		{"published at all of IPv6, by IPv4", s.beyond, "tcp", "", near.String() + ":8083", ""},
		{"published, from the host", s.host, "tcp", "", at(near6, "8080"), near6.String()},
		{"published, from another container", s.conts, "tcp", other6.String(), at(near6, "8080"), host.String()},
		{"from the host", s.host, "tcp", "", at(web6, "80"), host.String()},
		{"not published", s.beyond, "tcp", "", at(web6, "80"), ""},
		{"this host's tunnel", s.conts, "udp", "", at(near6, "4789"), ""},
		{"another host's tunnel", s.conts, "udp", "", at(far6, "4789"), ""},
		{"the tunnel from another host", s.beyond, "udp", "", at(near6, "4789"), far6.String()},
	}...)
	from := netip.AddrPortFrom(web6, 40053)
	var got netip.Addr
	err := in(t, s.conts, func() error {
		c, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(from)}).Dial("udp", at(far6, "53"))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("?"))
		return errors.Join(err, c.Close())
	})
	if err == nil {
		err = in(t, s.host, func() (err error) {
			got, err = Destination(model.ProtoUDP, from, netip.AddrPortFrom(host, 5354))
			return err
		})
	}
	if err != nil || got != far6 {
		t.Errorf("a question was sent to %v, %v, want %v", got, err, far6)
	}
	if got := iptables("-S", "FORWARD"); !strings.Contains(got, "-i contivh0") || !strings.Contains(got, "-o contivh0") {
		t.Errorf("ip6tables does not list our rules:\n%s", got)
	}
	s.restartsAsItWas()
	if err := in(t, s.host, func() error { c, err := nftables.New(); c.FlushRuleset(); return errors.Join(err, c.Flush()) }); err != nil {
		t.Fatal(err)
	}
	s.good()
	if seen := s.ask(s.conts, "tcp", "", at(far6, "80")); seen != near6.String() {
		t.Errorf("after the rules were lost, the outside sees %q", seen)
	}
	iptables("-P", "FORWARD", "DROP")

	// Without it, nothing of IPv6 is there.
	s.want.Private = desired.NewHostNAT(s.want.Private.Subnet)
	s.want.Private.TunnelPort = 4789
	s.want.Endpoints = s.want.Endpoints[:1]
	s.good()
	if off := sysctl("-n", "net.ipv6.conf."+desired.HostInterface+".disable_ipv6"); strings.TrimSpace(off) != "1" || strings.Contains(iptables("-S"), "contiv") {
		t.Errorf("IPv6 stays: disable_ipv6 %s, %s", off, iptables("-S"))
	}
	s.want = Config{}
	s.restart(true)
	s.good()
	left := slices.DeleteFunc(s.handles(), func(h string) bool { return strings.HasPrefix(h, "filter ") })
	if len(left) > 0 || strings.Contains(iptables("-S"), "contiv") {
		t.Errorf("left behind: %v\n%s\nbefore: %v", left, iptables("-S"), before)
	}
}
