package hoststack

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// crowd is many services, each of three backends with an address and a node port.
type crowd struct {
	*site
	frontends *Frontends
	affinity  time.Duration
}

func newCrowd(b *testing.B, n int, affinity time.Duration) *crowd {
	b.Helper()
	c := &crowd{newSite(b), NewFrontends(slog.New(slog.DiscardHandler), NoRepairs), affinity}
	for i := range n {
		c.set(i, 2)
	}
	return c
}

func (c *crowd) set(i, third int) {
	f := &Frontend{Affinity: c.affinity}
	for _, j := range []int{0, 1, third} {
		f.Own.Targets = append(f.Own.Targets, Target{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244 + byte(j), byte(i >> 8), byte(i)}), 80)})
		f.Keep = append(f.Keep, f.Own.Targets[len(f.Own.Targets)-1].AddrPort)
	}
	f.Outside = f.Own
	c.frontends.Set(FrontendAddr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), model.ProtoTCP, 80}, f)
	c.frontends.Set(FrontendAddr{netip.IPv4Unspecified(), model.ProtoTCP, uint16(30000 + i)}, f)
}

func (c *crowd) apply(b *testing.B) {
	b.Helper()
	if err := c.frontends.Apply(context.Background(), InterfaceConfig{Device: desired.HostInterface}, false); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFrontends is what one endpoint's change costs among many services.
func BenchmarkFrontends(b *testing.B) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		for _, n := range []int{10, 1000, 5000} {
			b.Run(fmt.Sprintf("affinity=%v/services=%d", affinity > 0, n), func(b *testing.B) {
				c := newCrowd(b, n, affinity)
				if err := in(b, c.host, func() error {
					began := time.Now()
					c.apply(b)
					first := time.Since(began)
					for i := 0; b.Loop(); i++ {
						c.set(i%n, 3+i/n%2)
						c.apply(b)
					}
					b.ReportMetric(float64(first.Milliseconds()), "ms-at-first")
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// threadTime is the processor's time of this thread: what the kernel does for a packet
// that it sends is in it, and what others keep the machine busy with is not.
func threadTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano()
}

// BenchmarkFrontendsReached is what a host's process waits for a service's first answer by
// UDP, and for a connection by TCP, among many services; and without a service.
func BenchmarkFrontendsReached(b *testing.B) {
	for _, n := range []int{0, 10, 5000} {
		c := newCrowd(b, n, 0)
		pod := netip.AddrPortFrom(netip.MustParseAddr("10.240.0.5"), 80)
		run(b, "ip", "-n", c.conts, "addr", "add", pod.Addr().String()+"/32", "dev", "c0")
		c.want.Routed, c.want.Ranges, c.want.Source = []netip.Prefix{netip.MustParsePrefix("10.240.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, near
		c.good()
		at := pod
		if n > 0 {
			at = netip.MustParseAddrPort("10.96.255.1:80")
			f := frontendOf(Target{AddrPort: pod}, Target{AddrPort: netip.AddrPortFrom(pod.Addr(), 81)}, Target{AddrPort: netip.AddrPortFrom(pod.Addr(), 82)})
			for _, p := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				c.frontends.Set(FrontendAddr{at.Addr(), p, 80}, f)
			}
			if err := in(b, c.host, func() error { c.apply(b); return nil }); err != nil {
				b.Fatal(err)
			}
		}
		for _, network := range []string{"tcp", "udp"} {
			for port := range uint16(3) {
				c.serve(c.conts, network, netip.AddrPortFrom(pod.Addr(), 80+port).String())
			}
			b.Run(fmt.Sprintf("%s/services=%d", network, n), func(b *testing.B) {
				if err := in(b, c.host, func() error {
					buf := make([]byte, 64)
					used := threadTime()
					for b.Loop() {
						conn, err := new(net.Dialer).DialContext(b.Context(), network, at.String())
						if err != nil {
							return err
						}
						if network == "udp" {
							if _, err := conn.Write([]byte("?")); err != nil {
								return err
							}
						}
						if _, err := conn.Read(buf); err != nil {
							return err
						}
						if t, ok := conn.(*net.TCPConn); ok { // no port waits
							_ = t.SetLinger(0)
						}
						conn.Close()
					}
					b.ReportMetric(float64(threadTime()-used)/float64(b.N), "cpu-ns/op")
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
