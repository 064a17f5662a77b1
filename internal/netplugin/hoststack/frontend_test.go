package hoststack

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkForgetStale is what the end of frontends' connections costs where the host tracks
// a hundred thousand of others.
func BenchmarkForgetStale(b *testing.B) {
	const tracked = 100_000
	s := newSite(b)
	if err := in(b, s.host, func() error {
		for i := range tracked {
			src := net.IP(binary.BigEndian.AppendUint32(nil, 10<<24|uint32(i)))
			dst := net.IP(far.AsSlice())
			flow := &netlink.ConntrackFlow{
				FamilyType: unix.AF_INET, TimeOut: 3600,
				Forward: netlink.IPTuple{SrcIP: src, DstIP: dst, SrcPort: 1000, DstPort: 53, Protocol: unix.IPPROTO_UDP},
				Reverse: netlink.IPTuple{SrcIP: dst, DstIP: src, SrcPort: 53, DstPort: 1000, Protocol: unix.IPPROTO_UDP},
			}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(unix.AF_INET), flow); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for _, x := range []struct {
		name  string
		stale int
	}{{"one", 1}, {"many", maxStaleLookups + 1}} {
		b.Run(x.name, func(b *testing.B) {
			f := NewFrontends(slog.New(slog.DiscardHandler), NoRepairs)
			if err := in(b, s.host, func() error {
				for b.Loop() {
					for i := range x.stale {
						f.stale[FrontendAddr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), model.ProtoUDP, 53}] = true
					}
					f.forgetStale()
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			if len(f.stale) > 0 {
				b.Fatal("connections were not looked at")
			}
		})
	}
}

// TestEachConnectionRestartsTheAffinityTimeout: each connection of a client restarts its affinity timeout.
func TestEachConnectionRestartsTheAffinityTimeout(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		s.named(s.pod(1), "b")
		f := frontendOf(s.pod(0), s.pod(1))
		f.Affinity = time.Hour
		at := FrontendAddr{s.vip, model.ProtoTCP, 80}
		s.frontends.Set(at, f)
		s.lead()
		left := func() time.Duration {
			all := s.clients()[clientsOf(sideOutside, shardOf(at))]
			if len(all) != 1 {
				return 0
			}
			return all[0].Expires
		}
		first := s.ask(s.beyond, "tcp", "", s.at(80))
		began := left()
		for deadline := time.Now().Add(time.Minute); left() > began-200*time.Millisecond; {
			if began == 0 || time.Now().After(deadline) {
				t.Fatalf("a client with %q is remembered for %v", first, began)
			}
		}
		before := left()
		if again := s.ask(s.beyond, "tcp", "", s.at(80)); again != first {
			t.Errorf("the client was with %q and is with %q", first, again)
		}
		if after := left(); after <= before {
			t.Errorf("a client's time was %v, and %v after another connection", before, after)
		}
	})
}
