package peerhealth

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestMain runs the tests in a network namespace of their own; the hosts are addresses of
// it, or addresses without a host.
func TestMain(m *testing.M) { os.Exit(testenv.Run(m, nil)) }

func ip(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestEchoOrConnectionIsAnAnswer: an echo is an answer, and where there is none so is a connection that is
// taken or refused; silence is none; and what this host cannot send says nothing.
func TestEchoOrConnectionIsAnAnswer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	from, to, nobody := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.1.9")
	from6, to6, nobody6 := netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2"), netip.MustParseAddr("fd09:1::9")
	for _, a := range []string{"10.9.0.1/32", "10.9.0.2/32", "fd09::1/128", "fd09::2/128"} {
		ip(t, "ip", "addr", "replace", a, "dev", "lo")
	}
	ip(t, "ip", "link", "add", "void", "arp", "off", "type", "veth", "peer", "name", "void2") // packets to it are lost
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "link", "del", "void").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	ip(t, "ip", "link", "set", "void2", "up")
	ip(t, "ip", "link", "set", "void", "up")
	ip(t, "ip", "route", "add", "10.9.1.0/24", "dev", "void")
	ip(t, "ip", "route", "add", "fd09:1::/64", "dev", "void")
	ip(t, "ip", "route", "replace", "unreachable", "10.9.2.0/24")
	ip(t, "ip", "route", "replace", "prohibit", "10.9.3.0/24")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "10.9.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().(*net.TCPAddr).AddrPort().Port()
	const refused = 9
	mute := func(yes string) {
		ip(t, "sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_all="+yes)
		ip(t, "sysctl", "-q", "-w", "net.ipv6.icmp.echo_ignore_all="+yes)
	}
	wants := func(when string, from, to netip.Addr, port uint16, yes, own bool) {
		t.Helper()
		got, err := Ask(from, port)(t.Context(), to)
		if got != yes || (err != nil) != own {
			t.Errorf("%s: %v, %v; want %v, and an error %v", when, got, err, yes, own)
		}
	}
	wants("an echo", from, to, refused, true, false)
	wants("an echo, IPv6", from6, to6, refused, true, false)
	mute("1")
	wants("no echo, a port that takes connections", from, to, taken, true, false)
	wants("no echo, a port that refuses them", from, to, refused, true, false)
	wants("no echo, a port that refuses them, IPv6", from6, to6, refused, true, false)
	mute("0")
	wants("nobody", from, nobody, refused, false, false)
	wants("nobody, IPv6", from6, nobody6, refused, false, false)
	wants("this host says that it is not to be had", from, netip.MustParseAddr("10.9.2.1"), refused, false, false)
	wants("this host forbids it", from, netip.MustParseAddr("10.9.3.1"), refused, false, true)
	wants("no route", from, netip.MustParseAddr("10.9.9.9"), refused, false, true)
	wants("an address that it has not", netip.MustParseAddr("10.9.0.7"), to, refused, false, true)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begun := time.Now()
	if yes, err := Ask(from, refused)(ctx, nobody); yes || time.Since(begun) > 20*time.Second {
		t.Errorf("at the end: %v, %v, after %s", yes, err, time.Since(begun))
	}
	if there, own := replyOf(errors.New("x")); there || own == nil {
		t.Error("any error says that a host is silent")
	}
}
