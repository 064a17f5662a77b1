package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// The kernel reports every interface and its attachments. The reader of these messages
// waits for no Apply: one may take long, and a burst of new interfaces would fill the
// socket meanwhile.

// netlinkBuffer holds the messages of some thousand interfaces, bytes.
const netlinkBuffer = 4 << 20

// netlinkRetry is the pause before a broken subscription is renewed.
const netlinkRetry = time.Second

// linkChanges is what was told of interfaces since somebody last looked: their newest
// state, by index, so that it does not grow with the number of messages.
type linkChanges struct {
	mu      sync.Mutex
	links   map[int]linkChange
	filters map[int]bool // interfaces that lost a qdisc or a filter
	lost    bool         // messages did not arrive
	wake    chan struct{}
	sock    *nl.NetlinkSocket // that is read from, for tests
	log     *slog.Logger
}

type linkChange struct {
	name     string
	mtu      int
	gone, up bool
}

func newHeard(log *slog.Logger) *linkChanges {
	return &linkChanges{log: log, links: map[int]linkChange{}, filters: map[int]bool{}, wake: make(chan struct{}, 1)}
}

func (h *linkChanges) note(fn func()) {
	h.mu.Lock()
	fn()
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *linkChanges) take() (links map[int]linkChange, filters map[int]bool, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	links, filters, lost = h.links, h.filters, h.lost
	h.links, h.filters, h.lost = map[int]linkChange{}, map[int]bool{}, false
	return links, filters, lost
}

// subscribe asks for the messages of this network namespace.
func subscribe() (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: watch interfaces: %w", err)
	}
	if err := s.SetReceiveBufferSize(netlinkBuffer, true); err != nil { // not root of the machine: what the kernel allows
		_ = s.SetReceiveBufferSize(netlinkBuffer, false)
	}
	return s, nil
}

// startWatching begins to hear of what changes beside Apply.
func (d *Driver) startWatching() error {
	s, err := subscribe()
	if err != nil {
		return err
	}
	home, err := netns.Get()
	if err != nil {
		s.Close()
		return fmt.Errorf("ebpf driver: open this network namespace: %w", err)
	}
	if d.dp.pins.watch, err = newPinWatch(d.cfg.PinDir); err != nil {
		s.Close()
		return errors.Join(err, home.Close())
	}
	d.wg.Add(4)
	go func() {
		defer d.wg.Done()
		d.linkChanges.listen(d.run, s, home)
	}()
	go d.watchLinks(d.run)
	go d.follow(d.run)
	go d.watchPins(d.run)
	return nil
}

// listen reads messages until ctx ends. When some are lost, or the subscription
// breaks and is renewed, everything may have changed.
func (h *linkChanges) listen(ctx context.Context, s *nl.NetlinkSocket, home netns.NsHandle) {
	defer func() { _ = home.Close() }() // open for reading
	runtime.LockOSThread()              // never unlocked: the thread ends with the goroutine
	if err := netns.Set(home); err != nil {
		h.log.Warn("a broken subscription to interfaces' changes could not be renewed: the driver's namespace cannot be entered", "error", err)
	}
	for {
		h.note(func() { h.sock = s })
		stop := context.AfterFunc(ctx, s.Close)
		err := h.readUntilError(s)
		if !stop() {
			return
		}
		s.Close()
		h.log.Warn("the subscription to interfaces' changes is broken and will be renewed", "error", err)
		for s = nil; s == nil; {
			if waiting.Pause(ctx, netlinkRetry) != nil {
				return
			}
			if s, err = subscribe(); err != nil {
				h.log.Warn("changes of interfaces cannot be watched: they are found at the next check only", "error", err)
			}
		}
		h.note(func() { h.lost = true })
	}
}

// readUntilError reads messages until the socket fails.
func (h *linkChanges) readUntilError(s *nl.NetlinkSocket) error {
	for {
		msgs, from, err := s.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			h.log.Warn("some of the kernel's messages about interfaces were lost; looking at all of them")
			h.note(func() { h.lost = true })
			continue
		}
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		h.note(func() {
			for _, m := range msgs {
				h.message(m)
			}
		})
	}
}

// message takes in what a message says. The caller holds h.mu.
func (h *linkChanges) message(m syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		header := unix.NlMsghdr(m.Header)
		l, err := netlink.LinkDeserialize(&header, m.Data)
		if err != nil {
			h.lost = true
			return
		}
		a := l.Attrs()
		h.links[a.Index] = linkChange{a.Name, a.MTU, m.Header.Type == unix.RTM_DELLINK, a.RawFlags&unix.IFF_UP != 0}
	case unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
		if len(m.Data) >= nl.SizeofTcMsg {
			h.filters[int(nl.DeserializeTcMsg(m.Data).Ifindex)] = true
		}
	}
}

// follow tells the owner when something of ours has changed.
func (d *Driver) follow(ctx context.Context) {
	defer d.wg.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.linkChanges.wake:
		}
		links, filters, lost := d.linkChanges.take()
		d.mu.Lock()
		reasons := d.dp.relevantChanges(links, filters, lost)
		d.mu.Unlock()
		for _, reason := range reasons {
			d.notify(reason)
		}
	}
}

// linkCheckInterval is how often links are looked at.
const linkCheckInterval = time.Second

// watchLinks notifies when links of devices were detached by force, which the kernel does
// not report. They are a handful; ports have filters beside theirs.
func (d *Driver) watchLinks(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(linkCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		off := ""
		for name, l := range d.dp.att.links {
			device, _, _ := strings.Cut(name, ":")
			if _, port := d.dp.ports.indexes[device]; !port && bpfattach.LinkedTo(l) == 0 {
				off, d.dp.ports.verified = device, time.Time{} // the next Apply looks at everything
			}
		}
		d.mu.Unlock()
		if off != "" {
			d.notify("a program was detached from interface " + off)
		}
	}
}

// relevantChanges says why the data plane may not be any more what was applied, and
// sees to it that the next Apply looks there.
func (dp *datapath) relevantChanges(links map[int]linkChange, filters map[int]bool, lost bool) (reasons []string) {
	p := dp.ports
	if lost {
		dp.devices.underlay.index, p.verified = 0, time.Time{}
		reasons = append(reasons, "messages about interfaces were lost")
	}
	s := dp.settings.get()
	devices := map[int]string{int(s.VXLAN): dp.devices.cfg.Device, int(s.Host): desired.HostInterface, int(s.Uplink): "the uplink", dp.devices.underlay.index: dp.devices.underlay.name}
	delete(devices, 0)
	for index, l := range links {
		if dp.devices.resized(index, l.mtu, l.gone) {
			reasons = append(reasons, "the MTU of interface "+l.name+" changed")
		}
		was, ours := p.indexes[l.name]
		_, missing := dp.applied.host.Ports.Get(l.name)
		_, device := devices[index]
		down := !l.up && (index == int(s.VXLAN) || index == int(s.Host))
		uplink := dp.devices.vlan && s.Uplink == 0 && slices.Contains(dp.devices.cfg.Uplinks, l.name)
		set := ours && !l.gone && was == index && l.up == p.down[index] // up or down
		if set {
			p.down[index] = !l.up
		}
		if set || ours && (l.gone || was != index) || (missing && !ours || uplink) && !l.gone || device && (l.gone || down) {
			reasons = append(reasons, "interface "+l.name+" changed")
		}
	}
	for name, index := range p.indexes {
		if l, told := links[index]; told && !l.gone && l.name != name {
			reasons = append(reasons, "interface "+name+" was renamed "+l.name)
		}
	}
	if len(filters) == 0 {
		return reasons
	}
	for name, index := range p.indexes {
		if filters[index] {
			devices[index] = name
		}
	}
	for name, q := range dp.bandwidth.queued {
		devices[q.near], devices[q.far] = "of the queue of "+name, "of the queue of "+name
	}
	delete(devices, 0)
	for index, name := range devices {
		if filters[index] && !links[index].gone {
			p.verified = time.Time{}
			reasons = append(reasons, "what is attached to interface "+name+" changed")
		}
	}
	return reasons
}
