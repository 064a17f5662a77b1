package ebpf

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// A port has filters under clsact from its first moment: a TCX link takes the
// lock of all interfaces for some 10 ms, which a container's start should not
// (docs/adr/0005). A port that lasts gets one besides for what comes in, since
// the kernel asks a link first, and the way to a filter costs each packet some
// 70 ns more (docs/adr/0006).
const (
	// linkAfter is how long a port stands before it gets its link; what lives
	// shorter never pays for one.
	linkAfter = 5 * time.Second
	// linkInterval keeps the lock of all interfaces free for others between two links.
	linkInterval = 100 * time.Millisecond
	// linkRetry is how long a port that cannot have one is left alone.
	linkRetry = time.Minute
)

// linkDue says when a port is due for its link.
type linkDue struct {
	index int
	due   time.Time
}

// linkDuePorts gives lasting ports their links, in the namespace of the thread
// that opened the driver, which is closed with it.
func (d *Driver) linkDuePorts(ctx context.Context, home netns.NsHandle) {
	defer d.wg.Done()
	defer func() { _ = home.Close() }() // open for reading
	runtime.LockOSThread()              // never unlocked: the thread ends with the goroutine
	if err := netns.Set(home); err != nil {
		d.cfg.Log.Warn("permanent ports get no links: the driver's namespace cannot be entered", "error", err)
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	known := map[string]linkDue{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range d.dueForLink(known, time.Now()) {
			if err := d.linkPort(ctx, name, known[name].index); err != nil {
				d.cfg.Log.Debug("a permanent port has no link; its filter stays active", "error", err)
				known[name] = linkDue{known[name].index, time.Now().Add(linkRetry)}
			}
			if waiting.Pause(ctx, linkInterval) != nil {
				return
			}
		}
	}
}

// linkPort puts the program of a port's way in behind a TCX link. The kernel
// asks links before filters, and does not come to those of others once the
// program has spoken: a port that has any keeps to its filter.
func (d *Driver) linkPort(ctx context.Context, name string, index int) error {
	filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return fmt.Errorf("interface %s: list filters: %w", name, err)
	}
	for _, f := range filters {
		if f.Attrs().Priority != ourFilter.Priority {
			return model.Errorf(model.ErrConflict, "interface %s: a %s filter of priority %d is not Contiv's", name, f.Type(), f.Attrs().Priority)
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: d.dp.obj.FromContainer, Attach: attachType(true)})
	if err != nil {
		return fmt.Errorf("interface %s: attach: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil || d.dp.ports.indexes[name] != index { // the port went meanwhile
		return bpfattach.RemoveLink(l)
	}
	return d.dp.att.pin(pinName(name, true), name, l)
}

// dueForLink lists the ports that have stood for long and have no link.
func (d *Driver) dueForLink(known map[string]linkDue, now time.Time) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dp.ports.dueForLink(known, now)
}

// dueForLink lists the ports that have stood for long and have no link. It keeps
// known: when each of those without a link is due.
func (p *ports) dueForLink(known map[string]linkDue, now time.Time) (due []string) {
	for name, index := range p.indexes {
		if p.att.linked(pinName(name, true), index) {
			delete(known, name)
			continue
		}
		k, ok := known[name]
		if !ok || k.index != index {
			k = linkDue{index, now.Add(linkAfter)}
			known[name] = k
		}
		if !k.due.After(now) {
			due = append(due, name)
		}
	}
	for name := range known {
		if _, ok := p.indexes[name]; !ok {
			delete(known, name)
		}
	}
	return due
}
