package hoststack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestReservedPortIsTaken: a port that a process has cannot be held, no process gets a held port,
// and a port given up is free; for one address and for all.
func TestReservedPortIsTaken(t *testing.T) {
	s := newSite(t)
	loop, any4, any6 := netip.MustParseAddr("127.0.0.1"), netip.IPv4Unspecified(), netip.IPv6Unspecified()
	for _, x := range []struct {
		network, process string // where a process serves
		ours             HostPort
		free             bool // both may be
	}{
		{"tcp", "0.0.0.0:7001", HostPort{model.ProtoTCP, any4, 7001}, false},
		{"tcp", "[::]:7002", HostPort{model.ProtoTCP, any4, 7002}, false},
		{"tcp", "127.0.0.1:7003", HostPort{model.ProtoTCP, any4, 7003}, false},
		{"tcp", "0.0.0.0:7004", HostPort{model.ProtoTCP, near, 7004}, false},
		{"tcp4", "127.0.0.1:7005", HostPort{model.ProtoTCP, near, 7005}, true},
		{"udp", "0.0.0.0:7006", HostPort{model.ProtoUDP, any4, 7006}, false},
		{"udp", "[::]:7007", HostPort{model.ProtoUDP, loop, 7007}, false},
		{"udp4", "127.0.0.1:7008", HostPort{model.ProtoUDP, near, 7008}, true},
		{"udp", "0.0.0.0:7009", HostPort{model.ProtoTCP, any4, 7009}, true},
		{"tcp6", "[::1]:7010", HostPort{model.ProtoTCP, any6, 7010}, false},
		{"tcp", "[::]:7011", HostPort{model.ProtoTCP, any6, 7011}, false},
		{"tcp4", "0.0.0.0:7012", HostPort{model.ProtoTCP, any6, 7012}, true},
		{"udp6", "[::1]:7013", HostPort{model.ProtoUDP, netip.IPv6Loopback(), 7013}, false},
	} {
		var h Holder
		serve := func() (close func() error, err error) {
			var lc net.ListenConfig
			err = in(t, s.host, func() error {
				if x.network[:3] == "udp" {
					c, err := lc.ListenPacket(context.Background(), x.network, x.process)
					if err == nil {
						close = c.Close
					}
					return err
				}
				l, err := lc.Listen(context.Background(), x.network, x.process)
				if err == nil {
					close = l.Close
				}
				return err
			})
			return close, err
		}
		hold := func() error { return in(t, s.host, func() error { return h.Reserve(x.ours, netip.AddrPort{}) }) }

		stop, err := serve()
		if err != nil {
			t.Fatal(err)
		}
		if err := hold(); x.free && err != nil || !x.free && !errors.Is(err, model.ErrExists) {
			t.Errorf("%s with a process at %s/%s: %v", x.ours, x.process, x.network, err)
		}
		h.Keep(nil)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // holding twice is fine
			if err := hold(); err != nil {
				t.Fatalf("%s, which is free: %v", x.ours, err)
			}
		}
		stop, err = serve()
		if x.free && err != nil || !x.free && !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a process at %s/%s with %s held: %v", x.process, x.network, x.ours, err)
		}
		if err == nil {
			_ = stop()
		}
		h.Keep(map[HostPort]bool{x.ours: true})
		if _, err := serve(); !x.free && err == nil {
			t.Errorf("%s is not kept", x.ours)
		}
		h.Keep(nil)
		if stop, err = serve(); err != nil && !x.free {
			t.Errorf("%s given up: %v", x.ours, err)
		} else if err == nil {
			_ = stop()
		}
	}
	var h Holder
	if err := in(t, s.host, func() error { return h.Reserve(HostPort{model.ProtoTCP, far, 7010}, netip.AddrPort{}) }); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("an address of another host: %v", err)
	}
	if err := in(t, s.host, func() error { return h.Reserve(HostPort{model.ProtoSCTP, any4, 7011}, netip.AddrPort{}) }); err != nil {
		t.Errorf("SCTP: %v", err)
	}
	h.Keep(nil)
}
