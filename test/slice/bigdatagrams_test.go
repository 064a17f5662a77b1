//go:build integration

package slice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestBigDatagramsArriveOrAreRefused: each datagram between hosts of both data planes, on
// VLAN and VXLAN networks and routed between any two of these, arrives, or its sender gets
// the error that it is too big.
func TestBigDatagramsArriveOrAreRefused(t *testing.T) {
	shared(t)
	on(t, 1, []string{testcluster.DriverMixed, testcluster.DriverEBPF, testcluster.DriverOVS}, bigDatagrams)
}

func bigDatagrams(t *testing.T, driver string) {
	c := up(t, driver, "big", 2)
	c.netctl("tenant create blue", "global set --fwd-mode routing")
	networks := []string{"a", "b", "v", "w"}
	var specs []testcluster.ContainerSpec
	for i, n := range networks {
		encap := map[bool]string{false: "vxlan", true: "vlan"}[i > 1]
		c.netctl(fmt.Sprintf("network create -t blue -e %s -s 10.1.%d.0/24 -g 10.1.%[2]d.254 --subnetv6 fd00:%[2]d::/64 --gatewayv6 fd00:%[2]d::fe %s", encap, i+1, n))
		for _, host := range []string{"1", "2"} {
			specs = append(specs, spec(n+host, "h"+host, "blue/"+n))
		}
	}
	c.add(specs...)
	for _, s := range specs {
		stop, err := c.space(s.Name).Reflect(t.Context(), ":7000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var asked errgroup.Group
	asked.SetLimit(8)
	for _, from := range networks {
		for _, to := range networks {
			for _, ends := range [][2]string{{from + "1", to + "2"}, {from + "2", to + "1"}} {
				asked.Go(func() error {
					for _, family := range []string{"4", "6"} {
						at := netip.AddrPortFrom(c.addr(ends[1], family), 7000)
						for _, discover := range []int{unix.IP_PMTUDISC_DONT, unix.IP_PMTUDISC_DO} {
							// What a VLAN network's MTU takes, of one packet and of several.
							for _, size := range []int{1400, 1452, 1472, 3000} {
								if err := arrivesOrIsRefused(ctx, c.space(ends[0]), at, size, discover); err != nil {
									t.Errorf("%s to %s by IPv%s, %d bytes, IP_MTU_DISCOVER %d: %v", ends[0], ends[1], family, size, discover, err)
								}
							}
						}
					}
					return nil
				})
			}
		}
	}
	_ = asked.Wait() // of functions that report themselves
}

// arrivesOrIsRefused sends a datagram until it comes back, or is refused as too big.
func arrivesOrIsRefused(ctx context.Context, ns *testcluster.Namespace, to netip.AddrPort, size, discover int) error {
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if to.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, discover) })
		return errors.Join(e, err)
	}}
	var conn net.Conn
	if err := ns.Do(func() (err error) {
		conn, err = d.DialContext(ctx, "udp", to.String())
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	sent, got := bytes.Repeat([]byte{byte(size)}, size), make([]byte, size+1)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tries := 0
	for ctx.Err() == nil {
		tries++
		if _, err := conn.Write(sent); errors.Is(err, unix.EMSGSIZE) {
			return nil
		}
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		n, err := conn.Read(got)
		if errors.Is(err, unix.EMSGSIZE) || err == nil && bytes.Equal(got[:n], sent) {
			return nil
		}
	}
	return fmt.Errorf("none of %d came back, and nobody says why", tries)
}
