//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Drift is repaired within a second.
var (
	drift    = cost{sameHost: time.Second, acrossHosts: time.Second, why: "drift is repaired within a second"}
	driftFar = cost{acrossHosts: time.Second, why: "drift is repaired within a second"}
	// A switch that has lost a port or all flows has lost its connections too.
	tunnelGone = driftFar
)

func deviceMistakes() []*mistake {
	plane := []string{"agent@", "plane@"}
	whole := append(slices.Clone(plane), "master", "store")
	return []*mistake{
		{name: "a victim's interface deleted", needs: whole, noticed: []string{"containers", victimName}, do: victimVeth(netlink.LinkDel)},
		{name: "a victim's interface set down", needs: whole, statusWords: []string{"ports"}, do: victimVeth(netlink.LinkSetDown)},
		{name: "a victim's interface renamed", only: testcluster.DriverEBPF, needs: whole, statusWords: []string{"ports"}, do: victimVeth(rename)},
		{name: "a victim's interface renamed under a switch", only: testcluster.DriverOVS, needs: whole, do: victimVeth(rename)}, // which goes on with it
		{name: "the tunnel's device deleted", only: testcluster.DriverEBPF, needs: plane, costs: tunnelGone, do: deleteLink("contivVxlan0")},
		{name: "the tunnel's device set down", only: testcluster.DriverEBPF, needs: plane, costs: tunnelGone, do: linkDown("contivVxlan0")},
		{name: "the host's interface to containers deleted", only: testcluster.DriverEBPF, needs: plane, do: deleteLink("contivh0")},
		{name: "the host's interface to containers set down", needs: plane, do: linkDown("contivh0")},
		{name: "filters taken off the interfaces", only: testcluster.DriverEBPF, needs: plane, costs: drift, do: detachAll},
		{name: "filters deleted with tc", only: testcluster.DriverEBPF, needs: plane, costs: drift, do: deleteClsact},
		{name: "all nftables tables deleted", needs: plane, do: deleteTables},
		{name: "addresses of the host's interface to containers deleted", needs: plane, do: flushAddresses},
		{name: "the underlay's MTU changed", needs: plane, do: otherMTU},
		{name: "the underlay's cable pulled", needs: append(slices.Clone(plane), "cable"), costs: cost{acrossHosts: 2 * time.Second, lasts: true, why: "there is no other way"}, statusWords: []string{"tunnel"}, do: cable("eth0", "")},
		{name: "the control network's cable pulled", needs: append(slices.Clone(plane), "cable"), statusWords: []string{"is away"}, do: cable("ctl0", "c")},
		{name: "flows deleted", only: testcluster.DriverOVS, needs: plane, costs: drift, do: deleteFlows},
		{name: "the tunnel's port deleted", only: testcluster.DriverOVS, needs: plane, costs: tunnelGone, do: vsctl("del-port", "contivBr", "contivVxlan")},
		{name: "a container's port deleted", only: testcluster.DriverOVS, needs: plane, costs: drift, do: deletePort},
		{name: "the bridge deleted", only: testcluster.DriverOVS, needs: plane, costs: cost{sameHost: 2 * time.Second, acrossHosts: 2 * time.Second, why: "all flows and ports are made again"}, do: vsctl("del-br", "contivBr")},
	}
}

// inHost runs fn in a host's namespace with a link of it.
func inHost(h *testcluster.Host, name string, fn func(netlink.Link) error) error {
	return h.NS.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		return fn(l)
	})
}

func rename(l netlink.Link) error { return netlink.LinkSetName(l, "renamed") }

// victimVeth spoils the interface of a container on the host's side; by DEL and ADD
// it comes back.
func victimVeth(spoil func(netlink.Link) error) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		before, err := h.NS.Links()
		if err != nil {
			return nil, err
		}
		s, err := w.victim(ctx, h)
		if err != nil {
			return nil, err
		}
		back := func(ctx context.Context) error { return w.DelContainer(ctx, s) }
		after, err := h.NS.Links()
		if err != nil {
			return back, err
		}
		for _, l := range after {
			if strings.HasPrefix(l, "cv") && !slices.Contains(before, l) { // a host's first container brings devices with it
				return back, inHost(h, l, spoil)
			}
		}
		return back, errors.New("a victim has no interface on its host")
	}
}

// spoilLink damages a device, if the host has it. On a host without containers the device
// may be missing: it comes back with the next container.
func spoilLink(name string, spoil func(netlink.Link) error) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		links, err := h.NS.Links()
		if err != nil || !slices.Contains(links, name) {
			return nil, err
		}
		err = inHost(h, name, spoil)
		if slices.ContainsFunc(w.Containers(), func(a *testcluster.Attachment) bool { return a.Host == h.Name }) {
			err = errors.Join(err, w.hasLink(ctx, h, name))
		}
		return nil, err
	}
}

func deleteLink(name string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return spoilLink(name, netlink.LinkDel)
}

func linkDown(name string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return spoilLink(name, netlink.LinkSetDown)
}

// hasLink waits until netplugin has put a device back.
func (w *world) hasLink(ctx context.Context, h *testcluster.Host, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return testcluster.Until(ctx, name+" on "+h.Name+" to be there and up", func(context.Context) error {
		return inHost(h, name, func(l netlink.Link) error {
			if l.Attrs().RawFlags&1 == 0 { // IFF_UP, netdevice(7)
				return errors.New("it is down")
			}
			return nil
		})
	})
}

// detachAll takes our programs off the interfaces of a host: what follows
// drops until they are back.
func detachAll(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	pins, err := filepath.Glob(filepath.Join(h.PinDir(), "links", "*"))
	if err != nil {
		return nil, err
	}
	for _, p := range pins {
		l, err := link.LoadPinnedLink(p, nil)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", p, err)
		}
		d, ok := l.(interface{ Detach() error })
		if !ok {
			return nil, fmt.Errorf("%s cannot be detached", p)
		}
		if err := errors.Join(d.Detach(), l.Close()); err != nil {
			return nil, err
		}
	}
	return nil, w.recovers(ctx)
}

// deleteClsact takes the clsact qdiscs with their filters off all interfaces.
func deleteClsact(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	err := h.NS.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			qdiscs, e := netlink.QdiscList(l)
			for _, q := range qdiscs {
				if q.Type() == "clsact" {
					e = errors.Join(e, netlink.QdiscDel(q))
				}
			}
			err = errors.Join(err, e)
		}
		return err
	})
	return nil, errors.Join(err, w.recovers(ctx))
}

// deleteTables deletes all nftables tables and waits until netplugin's are back, which
// other changes of the host's stack bring at once, and the next look otherwise.
func deleteTables(ctx context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	tables := func() (names []string, c *nftables.Conn, all []*nftables.Table, err error) {
		if c, err = nftables.New(); err == nil {
			all, err = c.ListTables()
		}
		for _, t := range all {
			if strings.HasPrefix(t.Name, "contiv") {
				names = append(names, fmt.Sprint(t.Family, " ", t.Name))
			}
		}
		slices.Sort(names)
		return names, c, all, err
	}
	var had []string
	err := h.NS.Do(func() error {
		names, c, all, err := tables()
		if err != nil {
			return err
		}
		had = names
		for _, t := range all {
			c.DelTable(t)
		}
		return c.Flush()
	})
	if err != nil {
		return nil, err
	}
	return nil, h.NS.Do(func() error {
		return testcluster.Until(ctx, "nftables to be back", func(context.Context) error {
			have, _, _, err := tables()
			if err == nil && !slices.Equal(have, had) {
				err = fmt.Errorf("%v and not %v are there", have, had)
			}
			return err
		})
	})
}

// flushAddresses deletes the addresses of the host's interface to containers,
// if it has one, and waits until they are back.
func flushAddresses(ctx context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	var had []string
	addresses := func(l netlink.Link) ([]netlink.Addr, []string, error) {
		all, err := netlink.AddrList(l, netlink.FAMILY_V4)
		var names []string
		for _, a := range all {
			names = append(names, a.IPNet.String())
		}
		return all, names, err
	}
	links, err := h.NS.Links()
	if err != nil || !slices.Contains(links, "contivh0") {
		return nil, err
	}
	err = inHost(h, "contivh0", func(l netlink.Link) error {
		all, names, err := addresses(l)
		had = names
		for _, a := range all {
			err = errors.Join(err, netlink.AddrDel(l, &a))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return nil, testcluster.Until(ctx, "the addresses of contivh0 on "+h.Name+" to be back", func(context.Context) error {
		return inHost(h, "contivh0", func(l netlink.Link) error {
			_, have, err := addresses(l)
			if err == nil && !slices.Equal(have, had) {
				err = fmt.Errorf("it has %v and not %v", have, had)
			}
			return err
		})
	})
}

// otherMTU lowers the underlay's MTU, in steps that leave room for a ping.
func otherMTU(_ context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	set := func(mtu int) error {
		return inHost(h, "eth0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, mtu) })
	}
	return func(context.Context) error { return set(w.Config().MTU) }, set(1300 + r.IntN(200))
}

// cable pulls the cable of a link out of the switch, whose port has the host's name and a
// suffix: the host's link stays up, and keeps its routes.
func cable(name, suffix string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		cutOff := h.Name + "-netplugin" // from netmaster and the store
		if w.cut = name == "eth0"; !w.cut {
			w.down[cutOff] = true
		}
		back := func(ctx context.Context) error {
			w.cut = false
			delete(w.down, cutOff)
			if err := w.Fabric.SetLink(h.Name+suffix, true); err != nil {
				return err
			}
			return errors.Join(w.recovers(ctx), w.ready(ctx))
		}
		return back, w.Fabric.SetLink(h.Name+suffix, false)
	}
}

func deleteFlows(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	_, err := h.Run(ctx, "ovs-ofctl", "del-flows", filepath.Join(h.RunDir(), "contivBr.mgmt"))
	return nil, errors.Join(err, w.recovers(ctx))
}

func vsctl(words ...string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		_, err := h.Switch.Vsctl(ctx, words...)
		return nil, errors.Join(err, w.recovers(ctx))
	}
}

func deletePort(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	ports, err := h.Ports(ctx)
	if err != nil || len(ports) == 0 {
		return nil, err
	}
	return vsctl("del-port", "contivBr", ports[r.IntN(len(ports))])(ctx, w, h, r)
}
