package hoststack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// refusal is what connecting ends with: nil, or the kernel's error.
func (s *site) refusal(ns, from, to string) (got error) {
	s.t.Helper()
	if err := in(s.t, ns, func() error {
		d := net.Dialer{Timeout: 5 * time.Second}
		if from != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		}
		c, err := d.DialContext(s.t.Context(), "tcp", to)
		if got = err; err == nil {
			return c.Close()
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return got
}

// TestContainersCannotReachTheControlPlane walks the ways that lead from a container to the control plane:
// each is refused at once and counted, and the host and others pass.
func TestContainersCannotReachTheControlPlane(t *testing.T) {
	s := newSite(t)
	const far6, near6, web6 = "2001:db8:1::7", "2001:db8:1::1", "2001:db8:2::5"
	s.want.Control = &Control{
		Ports: []uint16{9090, 9999},
		Targets: []netip.AddrPort{
			netip.AddrPortFrom(far, 2379), netip.MustParseAddrPort("[" + far6 + "]:2379"),
		},
	}
	s.want.Endpoints[0].Ports = append(s.want.Endpoints[0].Ports,
		attach.PortBinding{Proto: model.ProtoTCP, HostPort: 2380, ContainerPort: 9999}) // its own affair: it is no port of ours here
	nat := func(args ...string) {
		run(t, append([]string{"ip", "netns", "exec", s.host, "iptables-nft", "-t", "nat", "-A", "PREROUTING", "-p", "tcp"}, args...)...)
	}
	nat("--dport", "18080", "-j", "DNAT", "--to", far.String()+":2379")
	nat("--dport", "18081", "-j", "REDIRECT", "--to-ports", "9999")
	nat("-d", near.String(), "--dport", "2379", "-j", "DNAT", "--to", far.String()+":80")
	s.serve(s.beyond, "tcp", far.String()+":2379")
	s.serve(s.beyond, "tcp", far.String()+":80")
	for _, port := range []string{":9090", ":9999", ":22"} {
		s.serve(s.host, "tcp", port)
	}
	s.serve(s.conts, "tcp", web.String()+":9999")

	open := s.want.Control
	s.want.Control = nil
	s.good()
	wire6(s, near6, far6, web6)
	s.serve(s.beyond, "tcp", "["+far6+"]:2379")
	s.serve(s.beyond, "tcp", "["+far6+"]:80")
	ways := []string{
		far.String() + ":2379", near.String() + ":18080", // by somebody's translation
		near.String() + ":9090", near.String() + ":9999", near.String() + ":18081",
		s.want.Private.Addr.String() + ":9999", desired.RouterAddr.String() + ":9999",
		"[" + far6 + "]:2379", "[" + near6 + "]:9999",
	}
	source := func(to string) string {
		if to[0] == '[' {
			return web6
		}
		return ""
	}
	for _, to := range ways {
		if err := s.refusal(s.conts, source(to), to); err != nil {
			t.Fatalf("%s is no way even where nothing is kept: %v", to, err)
		}
	}
	standing := s.dial(s.conts, far.String()+":2379")

	s.want.Control = open
	s.want.Control.Targets = append(s.want.Control.Targets, netip.AddrPortFrom(near, 2379)) // what stands behind it is another address
	s.good()
	lead6(s, web6)
	before := s.refused()
	for _, to := range append(ways, near.String()+":2379") {
		if err := s.refusal(s.conts, source(to), to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a container to %s: %v, want a reset", to, err)
		}
	}
	if n := s.refused() - before; n < uint64(len(ways)+1) { // more where a packet is repeated, or the standing connection speaks
		t.Errorf("%d packets count as refused, want %d", n, len(ways)+1)
	}
	_, _ = standing.Write([]byte("?")) // answered by a reset
	if err := standing.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	for err := error(nil); err == nil; {
		if _, err = standing.Read(b); errors.Is(err, context.DeadlineExceeded) {
			t.Error("a connection that stood goes on")
		}
	}

	for _, x := range []struct{ ns, from, to string }{
		{s.conts, "", near.String() + ":22"},
		{s.conts, "", far.String() + ":80"},
		{s.conts, web6, "[" + far6 + "]:80"},
		{s.conts, other.String(), near.String() + ":2380"}, // published by a container
		{s.host, "", far.String() + ":2379"},
		{s.host, "", near.String() + ":9999"},
		{s.host, "", "127.0.0.1:9090"},
		{s.beyond, "", near.String() + ":9999"},
		{s.beyond, "", "[" + near6 + "]:9090"},
	} {
		if err := s.refusal(x.ns, x.from, x.to); err != nil {
			t.Errorf("%s from %s: %v", x.to, x.ns, err)
		}
	}

	// Another desired state, and a restart, lose no count and write nothing twice.
	s.want.Control = &Control{Ports: []uint16{9999}}
	count := s.refused()
	s.good()
	if err := s.refusal(s.conts, "", near.String()+":9090"); err != nil {
		t.Errorf("a port that is kept no more: %v", err)
	}
	if n := s.refused(); n < count {
		t.Errorf("%d packets were refused, then %d", count, n)
	}
	made := s.handles()
	s.restart(true)
	s.good()
	if again := s.handles(); !slices.Equal(again, made) {
		t.Errorf("what was there was written again:\n%v\nbefore:\n%v", again, made)
	}
	s.want.Control = nil
	s.good()
	if err := s.refusal(s.conts, "", near.String()+":9999"); err != nil {
		t.Errorf("opened: %v", err)
	}
}

// wire6 gives the site IPv6.
func wire6(s *site, near6, far6, web6 string) {
	s.t.Helper()
	run(s.t, "ip", "netns", "exec", s.host, "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1")
	run(s.t, "ip", "-n", s.host, "addr", "add", near6+"/64", "dev", "up0", "nodad")
	run(s.t, "ip", "-n", s.beyond, "addr", "add", far6+"/64", "dev", "o0", "nodad")
	run(s.t, "ip", "-n", s.beyond, "-6", "route", "add", "default", "via", near6)
	run(s.t, "ip", "-n", s.conts, "addr", "add", web6+"/128", "dev", "c0", "nodad")
	run(s.t, "ip", "-n", s.conts, "-6", "route", "add", "default", "dev", "c0")
	lead6(s, web6)
}

// lead6 leads IPv6 by the host's interface, where Apply switches it off: this site
// wants no egress for IPv6.
func lead6(s *site, web6 string) {
	s.t.Helper()
	run(s.t, "ip", "netns", "exec", s.host, "sysctl", "-q", "-w", "net.ipv6.conf."+desired.HostInterface+".disable_ipv6=0")
	run(s.t, "ip", "-n", s.host, "route", "add", web6, "dev", desired.HostInterface)
}

func (s *site) refused() (n uint64) {
	s.t.Helper()
	if err := in(s.t, s.host, func() (err error) { n, err = s.stack.Refused(); return err }); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) dial(ns, to string) (c net.Conn) {
	s.t.Helper()
	if err := in(s.t, ns, func() (err error) { c, err = new(net.Dialer).DialContext(s.t.Context(), "tcp", to); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}
