//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// Drift is repaired within a second (docs/user/netplugin.md).
var (
	drift    = cost{near: time.Second, far: time.Second, why: "drift is repaired within a second"}
	driftFar = cost{far: time.Second, why: "drift is repaired within a second"}
	// A switch that has lost a port or all flows has lost its connections too.
	tunnelGone = driftFar
)

func deviceMistakes() []*mistake {
	plane := []string{"agent@", "plane@"}
	return []*mistake{
		{name: "a victim's interface deleted", needs: []string{"agent@", "plane@", "master", "store"}, do: victimVeth},
		{name: "the tunnel's device deleted", only: lab.DriverEBPF, needs: plane, costs: tunnelGone, do: deleteLink("contivVxlan0")},
		{name: "the tunnel's device set down", only: lab.DriverEBPF, needs: plane, costs: tunnelGone, do: linkDown("contivVxlan0")},
		{name: "the host's interface to containers deleted", only: lab.DriverEBPF, needs: plane, do: deleteLink("contivh0")},
		{name: "the host's interface to containers set down", needs: plane, do: linkDown("contivh0")},
		{name: "filters taken off the interfaces", only: lab.DriverEBPF, needs: plane, costs: drift, do: detachAll},
		{name: "the nftables table deleted", needs: plane, do: deleteTable},
		{name: "the underlay's cable pulled", needs: append(slices.Clone(plane), "cable"), costs: cost{far: 2 * time.Second, lasts: true, why: "there is no other way"}, do: cable("eth0")},
		{name: "the control network's cable pulled", needs: append(slices.Clone(plane), "cable"), do: cable("ctl0")},
		{name: "flows deleted", only: lab.DriverOVS, needs: plane, costs: drift, do: deleteFlows},
		{name: "the tunnel's port deleted", only: lab.DriverOVS, needs: plane, costs: tunnelGone, do: vsctl("del-port", "contivBr", "contivVxlan")},
		{name: "a container's port deleted", only: lab.DriverOVS, needs: plane, costs: drift, do: deletePort},
		{name: "the bridge deleted", only: lab.DriverOVS, needs: plane, costs: cost{near: 2 * time.Second, far: 2 * time.Second, why: "all flows and ports are made anew"}, do: vsctl("del-br", "contivBr")},
	}
}

// inHost runs fn in a host's namespace with a link of it.
func inHost(h *lab.Host, name string, fn func(netlink.Link) error) error {
	return h.NS.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		return fn(l)
	})
}

// victimVeth deletes the interface of a container on the host's side; DEL and
// ADD are how it comes back.
func victimVeth(ctx context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
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
	had := map[string]bool{}
	for _, l := range before {
		had[l] = true
	}
	for _, l := range after {
		if !had[l] {
			return back, inHost(h, l, netlink.LinkDel)
		}
	}
	return back, errors.New("a victim has no interface on its host")
}

// spoilLink does something to a device, if the host has it: a host without
// containers may have none.
func spoilLink(name string, spoil func(netlink.Link) error) func(context.Context, *world, *lab.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
		links, err := h.NS.Links()
		if err != nil || !slices.Contains(links, name) {
			return nil, err
		}
		return nil, errors.Join(inHost(h, name, spoil), w.hasLink(ctx, h, name))
	}
}

func deleteLink(name string) func(context.Context, *world, *lab.Host, *rand.Rand) (undo, error) {
	return spoilLink(name, netlink.LinkDel)
}

func linkDown(name string) func(context.Context, *world, *lab.Host, *rand.Rand) (undo, error) {
	return spoilLink(name, netlink.LinkSetDown)
}

// hasLink waits until netplugin has put a device back.
func (w *world) hasLink(ctx context.Context, h *lab.Host, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return lab.Until(ctx, name+" on "+h.Name+" to be there and up", func(context.Context) error {
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
func detachAll(ctx context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
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

func deleteTable(_ context.Context, _ *world, h *lab.Host, _ *rand.Rand) (undo, error) {
	return nil, h.NS.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if t.Name == "contiv" {
				c.DelTable(t)
			}
		}
		return c.Flush()
	})
}

func cable(name string) func(context.Context, *world, *lab.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
		w.cut = name == "eth0"
		back := func(ctx context.Context) error {
			w.cut = false
			if err := h.NS.SetLink(name, true); err != nil {
				return err
			}
			return errors.Join(w.recovers(ctx), w.ready(ctx))
		}
		return back, h.NS.SetLink(name, false)
	}
}

func deleteFlows(ctx context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
	_, err := h.Run(ctx, "ovs-ofctl", "del-flows", filepath.Join(h.RunDir(), "contivBr.mgmt"))
	return nil, errors.Join(err, w.recovers(ctx))
}

func vsctl(words ...string) func(context.Context, *world, *lab.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *lab.Host, _ *rand.Rand) (undo, error) {
		_, err := h.Vsctl(ctx, words...)
		return nil, errors.Join(err, w.recovers(ctx))
	}
}

func deletePort(ctx context.Context, w *world, h *lab.Host, r *rand.Rand) (undo, error) {
	ports, err := h.Ports(ctx)
	if err != nil || len(ports) == 0 {
		return nil, err
	}
	return vsctl("del-port", "contivBr", ports[r.IntN(len(ports))])(ctx, w, h, r)
}
