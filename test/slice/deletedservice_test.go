//go:build integration

package slice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestDeletedServiceRefusesItsClients deletes a service that has an established
// connection: it is reset when it is used, and new ones are refused, at once.
func TestDeletedServiceRefusesItsClients(t *testing.T) {
	shared(t)
	on(t, len(both), both, deletedService)
}

func deletedService(t *testing.T, driver string) {
	c := up(t, driver, "gone", 2)
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 --subnetv6 fd00:1::/64 --gatewayv6 fd00:1::fe net",
		"service create -t blue -s net -l app=web -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.0.100 --ip6 fd00:1::100 web")
	c.add(labelled("web", "h2", map[string]string{"app": "web"}), labelled("c", "h1", nil))
	addrs := []netip.Addr{netip.MustParseAddr("10.1.0.100"), netip.MustParseAddr("fd00:1::100")}
	asks := func(a netip.Addr, proto string, want testcluster.Verdict) {
		t.Helper()
		c.until(fmt.Sprintf("%s/%s to be %s", a, proto, want), func(ctx context.Context) error {
			if got := c.space("c").Probe(ctx, testcluster.Target{Proto: proto, Addr: a, Port: 8000}, time.Second); got.Verdict != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	var conns []net.Conn
	for _, a := range addrs {
		asks(a, "tcp", testcluster.OK)
		conn, err := c.space("c").Dial(t.Context(), "tcp", netip.AddrPortFrom(a, 8000).String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := says(conn, "web"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	c.netctl("service rm -t blue web")
	start := time.Now()
	for i, a := range addrs {
		asks(a, "tcp", testcluster.Refused)
		asks(a, "udp", testcluster.Refused)
		c.until("a reset of the connection to "+a.String(), func(context.Context) error {
			if err := says(conns[i], "web"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				return fmt.Errorf("no reset: %w", cmp.Or(err, errors.New("it is answered")))
			}
			return nil
		})
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("clients were refused after %v", took)
	}
}
