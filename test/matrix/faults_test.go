//go:build integration

package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// cable is the link of a host that a row's network between hosts goes by.
func (b *bed) cable() string {
	if b.row[dimNetwork] == VLAN {
		return "eth1"
	}
	return "eth0"
}

// cutCable cuts h2 off from h1, in the rows of one environment: probes fail, and netctl status
// and an alert tell of it. Hosts test tunnels and uplinks alone, not routes to other hosts.
func (b *bed) cutCable(ctx context.Context) error {
	if b.row[dimEnvironment] != plainEnvironment || b.row[dimNetwork] != VXLAN && b.row[dimNetwork] != VLAN {
		return nil
	}
	h2, err := b.Host("h2")
	if err != nil {
		return err
	}
	if err := h2.NS.SetLink(b.cable(), false); err != nil {
		return err
	}
	told := func() error {
		var cut []probe
		for _, p := range b.between() {
			if p.from == b.work["c1"].ns && p.by == "s2" {
				p.want, p.by, p.src = testcluster.Denied, "", netip.Addr{} // netmaster answers by policy
				cut = append(cut, p)
			}
		}
		if err := b.ask(ctx, cut); err != nil {
			return err
		}
		if err := b.alarmed(ctx, "a cable is cut"); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return testcluster.Until(short, "netctl status to tell of a cut cable", func(ctx context.Context) error {
			if _, err := b.Masters.Netctl(ctx, "status", "--quiet"); err == nil {
				return errors.New("it says that all is well")
			}
			return nil
		})
	}()
	return errors.Join(told, h2.NS.SetLink(b.cable(), true))
}

// mtuChange lowers the MTU between hosts under connections, where the environment is one that
// changes, and raises it again.
func (b *bed) mtuChange(ctx context.Context) error {
	if b.row[dimEnvironment] != string(testcluster.Changing) {
		return nil
	}
	for _, mtu := range []int{1400, 1500} {
		if err := b.Network.SetUnderlayMTU(mtu); err != nil {
			return err
		}
		for _, h := range b.Hosts() {
			if out, err := h.Run(ctx, "ip", "link", "set", "eth1", "mtu", strconv.Itoa(mtu)); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		for _, a := range b.work["c2"].addrs {
			if err := carries(ctx, b.work["c1"].ns, b.work["c2"].ns, a); err != nil {
				return fmt.Errorf("MTU %d: c1 to %s: %w", mtu, a, err)
			}
		}
	}
	return nil
}

// carries sends much by a TCP connection, in packets of full size.
func carries(ctx context.Context, from, to *testcluster.Namespace, addr netip.Addr) error {
	const much = 256 << 10
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var ln net.Listener
	if err := to.Do(func() (err error) {
		ln, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(addr, 9000).String())
		return err
	}); err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			_, err = io.CopyN(io.Discard, conn, much)
			err = errors.Join(err, conn.Close())
		}
		got <- err
	}()
	conn, err := from.Dial(ctx, "tcp", ln.Addr().String())
	if err == nil {
		deadline, _ := ctx.Deadline()
		err = conn.SetDeadline(deadline)
		if err == nil {
			_, err = io.CopyN(conn, strings.NewReader(strings.Repeat("x", much)), much)
		}
	}
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	select {
	case err = <-got:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, conn.Close(), ln.Close())
}
