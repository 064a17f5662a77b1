package conformance

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Stacks are two containers with network stacks of their own, a client and a server, in
// which this process opens sockets.
type Stacks struct {
	IPv4, IPv6 [2]netip.Addr
	Identities [2]model.Identity
	// In runs fn on a thread in the network namespace of a container.
	In func(container int, fn func() error) error
	// Judge gives a container a set of policies; nil = none.
	Judge func(t testing.TB, container int, set *desired.PolicySet)
	// PacketByPacket: SCTP's answers need rules of their own.
	PacketByPacket bool
}

// The containers of Stacks, and the ports at which the server listens.
const (
	sctpClient, sctpServer = 0, 1

	sctpPort, sctpOther, sctpUnusedPort uint16 = 2905, 2906, 2907
)

// RequireSCTP skips a test where the kernel has no SCTP: tools/test-kernel.sh boots
// one that has.
func RequireSCTP(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		t.Skipf("the kernel has no SCTP (module sctp): %v", err)
	}
	_ = unix.Close(fd)
}

// Associations holds policies to what they mean for the kernel's own SCTP: which
// associations come to be, which go on, and what bulk and several addresses do to them.
func Associations(t *testing.T, s Stacks) {
	t.Helper()
	for _, port := range []uint16{sctpPort, sctpOther} {
		s.EchoSCTP(t, sctpServer, netip.AddrPortFrom(netip.Addr{}, port))
	}
	s.echoTCP(t, sctpServer, sctpPort)
	for _, addrs := range [][2]netip.Addr{s.IPv4, s.IPv6} {
		t.Run(ipText(addrs[0].Is6()), func(t *testing.T) {
			s.judged(t, addrs)
			s.judge(t, sctpServer, nil, nil)
			s.Bulk(t, addrs[sctpClient], netip.AddrPortFrom(addrs[sctpServer], sctpPort))
			s.judgedGoingOut(t, addrs)
			s.judgedTwice(t, addrs)
		})
	}
	t.Run("several addresses", func(t *testing.T) {
		// Both ends tell the other one all of their addresses, and try these.
		s.judge(t, sctpServer, s.allows(sctpClient, model.ProtoSCTP), nil)
		defer s.judge(t, sctpServer, nil, nil)
		s.passes(t, "an association of all addresses", netip.Addr{}, netip.AddrPortFrom(s.IPv4[sctpServer], sctpPort))
	})
}

// judged: the server's policy decides who may associate, at once and later.
func (s Stacks) judged(t *testing.T, addrs [2]netip.Addr) {
	t.Helper()
	client, to, other := addrs[sctpClient], netip.AddrPortFrom(addrs[sctpServer], sctpPort), netip.AddrPortFrom(addrs[sctpServer], sctpOther)
	s.judge(t, sctpServer, nil, nil)
	a := s.passes(t, "without policies", client, to)
	s.judge(t, sctpServer, s.allows(sctpClient, model.ProtoSCTP), nil)
	s.fails(t, "a port that no rule allows", client, other)
	a.mustEcho(t, "begun before the policy, and allowed by it")
	s.passes(t, "allowed", client, to)
	eventuallySCTP(t, "TCP, which no rule allows, is dropped", func() bool { return s.tcp(sctpClient, to) != nil })
	s.judge(t, sctpServer, s.allowsPort(sctpClient, model.ProtoSCTP, sctpUnusedPort), nil)
	eventuallySCTP(t, "that nobody listens is told", func() bool {
		_, err := s.Associate(sctpClient, client, netip.AddrPortFrom(addrs[sctpServer], sctpUnusedPort))
		return errors.Is(err, unix.ECONNREFUSED)
	})
	s.judge(t, sctpServer, s.allows(sctpClient, model.ProtoTCP), nil)
	s.fails(t, "allowed to TCP only", client, to)
	eventuallySCTP(t, "an association whose rule is gone stands still", func() bool { return a.echo(5*time.Second) != nil })
	eventuallySCTP(t, "TCP, which the rule allows, passes", func() bool { return s.tcp(sctpClient, to) == nil })
	s.judge(t, sctpServer, s.allows(sctpClient, model.ProtoSCTP), nil)
	s.passes(t, "allowed again", client, to)
	a.mustEcho(t, "begun before, and allowed again")
	s.judge(t, sctpServer, s.allows(sctpServer, model.ProtoSCTP), nil)
	s.fails(t, "allowed to another identity", client, to)
}

// judgedGoingOut: the client's policy decides whom it may associate with.
func (s Stacks) judgedGoingOut(t *testing.T, addrs [2]netip.Addr) {
	t.Helper()
	s.judge(t, sctpServer, nil, nil)
	s.judge(t, sctpClient, nil, s.allows(sctpServer, model.ProtoSCTP))
	defer s.judge(t, sctpClient, nil, nil)
	s.fails(t, "to a port that no rule allows", addrs[sctpClient], netip.AddrPortFrom(addrs[sctpServer], sctpOther))
	s.passes(t, "to an allowed port", addrs[sctpClient], netip.AddrPortFrom(addrs[sctpServer], sctpPort))
}

// judgedTwice: both ends deny all but the request, in both directions.
func (s Stacks) judgedTwice(t *testing.T, addrs [2]netip.Addr) {
	t.Helper()
	deny := []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}
	s.judge(t, sctpServer, s.allows(sctpClient, model.ProtoSCTP), deny)
	s.judge(t, sctpClient, deny, s.allows(sctpServer, model.ProtoSCTP))
	defer s.judge(t, sctpServer, nil, nil)
	defer s.judge(t, sctpClient, nil, nil)
	to := netip.AddrPortFrom(addrs[sctpServer], sctpPort)
	if s.PacketByPacket {
		s.fails(t, "no rule for answers", addrs[sctpClient], to)
		return
	}
	s.passes(t, "answers need no rule", addrs[sctpClient], to)
}

func (s Stacks) allows(peer int, proto model.Protocol) []desired.Tier {
	return s.allowsPort(peer, proto, sctpPort)
}

// allowsPort is a policy that denies all but one container's connections to a port.
func (s Stacks) allowsPort(peer int, proto model.Protocol, port uint16) []desired.Tier {
	return []desired.Tier{{Tier: model.TierContiv, Default: model.Deny, Rules: desired.RulesOf(desired.Rule{
		ID: "r", Priority: 1, Action: model.Allow, Identities: desired.IdentitiesOf(s.Identities[peer]),
		Ports: []model.PortMatch{{Protocol: proto, Lo: port, Hi: port}},
	})}}
}

func (s Stacks) judge(t testing.TB, container int, in, out []desired.Tier) {
	t.Helper()
	if in == nil && out == nil {
		s.Judge(t, container, nil)
		return
	}
	s.Judge(t, container, &desired.PolicySet{ID: desired.PolicySetID(container + 1), Name: "p", In: in, Out: out})
}

// passes wants an association, which it returns, and an echo by it.
func (s Stacks) passes(t testing.TB, what string, from netip.Addr, to netip.AddrPort) *Association {
	t.Helper()
	var a *Association
	eventuallySCTP(t, what+": passes", func() (done bool) {
		var err error
		if a, err = s.Associate(sctpClient, from, to); err != nil {
			return false
		}
		if err = a.echo(10 * time.Second); err != nil {
			_ = a.Close()
		}
		return err == nil
	})
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// fails wants none.
func (s Stacks) fails(t testing.TB, what string, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	eventuallySCTP(t, what+": is dropped", func() bool {
		a, err := s.Associate(sctpClient, from, to)
		if err == nil {
			_ = a.Close()
		}
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT)
	})
}

// eventuallySCTP waits for what a changed policy comes to: some milliseconds after
// Apply, where a switch follows it.
func eventuallySCTP(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
