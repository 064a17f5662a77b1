//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// workloadDamages are mistakes that a container makes itself.
func workloadDamages() []*mistake {
	whole := []string{"agent@", "plane@", "master", "store"}
	return []*mistake{
		{name: "a container changes its own interface", needs: whole, noticed: []string{"containers", victimName}, well: true, do: changesItself},
		{name: "a container loses its namespace", needs: whole, well: true, do: isLost}, // netplugin releases it
	}
}

// ownChanges are what a container with CAP_NET_ADMIN can do to its interface.
var ownChanges = []struct {
	name string
	do   func(netlink.Link) error
}{
	{"deletes it", netlink.LinkDel},
	{"sets it down", netlink.LinkSetDown},
	{"renames it", func(l netlink.Link) error {
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "mine"), netlink.LinkSetUp(l))
	}},
	{"takes another MAC", func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 9, 9, 9, 9, 9}) }},
	{"takes another address", func(l netlink.Link) error {
		had, err := netlink.AddrList(l, netlink.FAMILY_V4)
		for _, a := range had {
			err = errors.Join(err, netlink.AddrDel(l, &a))
		}
		return errors.Join(err, netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 1, 1, 250), Mask: net.CIDRMask(24, 32)}}))
	}},
	{"deletes its routes", func(l netlink.Link) error {
		routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
		for _, r := range routes {
			if r.Gw != nil {
				err = errors.Join(err, netlink.RouteDel(&r))
			}
		}
		return err
	}},
	{"gives it to another namespace", nil},
}

// changesItself has a new container change its interface in one of these ways.
func changesItself(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	s, err := w.victim(ctx, h)
	if err != nil {
		return nil, err
	}
	back := func(ctx context.Context) error { return w.DelContainer(ctx, s) }
	does := ownChanges[r.IntN(len(ownChanges))]
	w.t.Logf("%s on %s %s", s.Name, h.Name, does.name)
	do := does.do
	if do == nil {
		other := s.Name + "-other"
		ns, err := w.AddNamespace(other)
		if err != nil {
			return back, err
		}
		back = func(ctx context.Context) error { return errors.Join(w.DelContainer(ctx, s), w.DropContainer(other)) }
		file, err := os.Open(ns.Path())
		if err != nil {
			return back, err
		}
		defer file.Close()
		do = func(l netlink.Link) error { return netlink.LinkSetNsFd(l, int(file.Fd())) }
	}
	return back, w.space(s.Name).Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find the interface of %s: %w", s.Name, err)
		}
		return do(l)
	})
}
