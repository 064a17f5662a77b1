package ovs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
	"github.com/contiv/netplugin/v2/internal/model"
)

// A switch in user space reads frames before any queue of the interface, and the kernel's
// one takes them behind it; and a switch may remove queues of its ports. So the port of the
// switch is another device where an endpoint has a limit: the far end of a veth pair.
// Filters redirect between its near end and the endpoint's interface. Packets from the
// endpoint pass the near end's queue, packets to it the queue of its own interface. Ports
// without a limit have nothing of this (docs/adr/0026-bandwidth.md).

const (
	nearPrefix, farPrefix = "cs", "ct" // of devices; internal/model keeps networks from such names
	shapeMajor            = 0xc01a     // of queues; another one than driver ebpf's, which may take over
	shapePriority         = 0xc018     // of filters
	shapeHandle           = 0xc2
	// shapeVerify is how long what was made for limits is believed to be there.
	shapeVerify = 10 * time.Second
)

// portQueues is what was made for a port with a limit.
type portQueues struct {
	rate  desired.Rate
	index int // of the endpoint's interface
	near  int // of the pair's device with the queue
	// trouble is what is wrong with that, which the switch does not see; nil = nothing.
	trouble error
}

// shaper are the queues on a host, and what reaches its interfaces.
type shaper struct {
	links  *netlink.Handle
	queues *shaping.Queues
	alias  string // of pairs, before the port's name
	taps   bool   // the switch reads by packet sockets
}

func newShaper(cfg Config) shaper {
	links := cfg.links
	if links == nil {
		links = &netlink.Handle{} // of the caller's namespace
	}
	return shaper{links, shaping.New(links, shapeMajor), "contiv-ovs queue " + cfg.Bridge + " ", cfg.Datapath == "netdev"}
}

// bandwidth is the queues and devices of ports with a limit. Driver.mu guards it.
type bandwidth struct {
	*env
	conns     *connections
	shaper    shaper
	queued    map[string]portQueues // ports with a limit, by name
	replaced  map[string]int        // ports whose pair was made again, which the switch has to open again, with their numbers
	swept     bool                  // nothing of limits is left that is gone
	shapeSeen time.Time             // when what was made for limits was last looked at
}

// newPort describes the switch's port of an endpoint.
func (b *bandwidth) newPort(name string, p *desired.Port) newPort {
	n := newPort{name: name, externalIDs: map[string]string{markKey: markPort, endpointKey: p.Endpoint.String()}}
	if _, ok := b.queued[name]; ok {
		n.name = shaping.DeviceName(farPrefix, name)
		n.externalIDs[peerDeviceKey] = name
	}
	return n
}

// makeQueues makes the queues of the desired limits, before the switch gets the devices. A limit
// that cannot be realised is a problem: the port works without.
func (b *bandwidth) makeQueues(want desired.Host, force bool) (changes int, problems []driver.Problem) {
	verify := force || time.Since(b.shapeSeen) > shapeVerify
	var have map[int]shaping.Queue
	for name, r := range want.Bandwidth.All() {
		if _, ok := want.Ports.Get(name); !ok || r.Send.Bits == 0 && r.Receive.Bits == 0 {
			continue
		}
		if b.shaper.queues.Unsupported() != nil { // devices would be of no use
			delete(b.queued, name)
			continue
		}
		s, known := b.queued[name]
		l, err := b.shaper.links.LinkByName(name)
		switch {
		case errors.As(err, &netlink.LinkNotFoundError{}):
			if known { // the switch has the pair, which is still there
				s.trouble, s.index = model.Errorf(model.ErrNotFound, "interface %s does not exist", name), 0
				b.queued[name] = s
			}
			continue // else the switch tells
		case err == nil:
			s.trouble = nil
			if !isUp(l) {
				s.trouble = driver.DownError(name)
			}
		}
		same := known && s.index == index(l) && s.rate == *r
		if err == nil && (!same || verify || b.deviceOf(name) != "") {
			if have == nil {
				have, err = b.shaper.queues.Have()
			}
			var changed bool
			if err == nil {
				near := s.near
				s.near, changed, err = b.shaper.ensure(name, l, *r, have)
				if known && near != 0 && near != s.near {
					b.replaced[name] = 0
				}
			}
			if changed && err == nil {
				changes++
			}
			if changed && err == nil && same {
				b.drift.Add(b.cfg.Log, driver.DriftDevice, "queue of "+name, 1)
			}
		}
		if err != nil {
			if b.shaper.queues.Unsupported() == nil {
				problems = append(problems, driver.Problem{Object: "bandwidth of port " + name, Err: err})
			}
			delete(b.queued, name) // the switch gets its interface itself
			b.swept = false
			continue
		}
		s.rate, s.index = *r, index(l)
		b.queued[name] = s
	}
	if err := b.shaper.queues.Unsupported(); err != nil && limits(want) { // once for all
		problems = append(problems, driver.Problem{Object: "bandwidth", Err: err})
	}
	for name := range b.queued {
		if r, ok := want.Bandwidth.Get(name); ok && (r.Send.Bits > 0 || r.Receive.Bits > 0) {
			if _, ok := want.Ports.Get(name); ok {
				continue
			}
		}
		delete(b.queued, name)
		b.swept = false
	}
	if verify {
		b.shapeSeen = time.Now()
	}
	return changes, problems
}

// limits reports whether a port of a desired state has a limit.
func limits(want desired.Host) bool {
	for name, r := range want.Bandwidth.All() {
		if _, ok := want.Ports.Get(name); ok && (r.Send.Bits > 0 || r.Receive.Bits > 0) {
			return true
		}
	}
	return false
}

// detachReplaced takes those ports from the switch whose pair somebody took away and that was
// made again: the switch has the former device still, which leads nowhere, and opens the
// new one only if it has let go of the port.
func (b *bandwidth) detachReplaced(ctx context.Context) error {
	var ids []string
	b.conns.db.mu.Lock()
	bridge := b.conns.db.bridge(b.cfg.Bridge)
	for name := range b.replaced {
		if h := b.conns.db.port(name); h.port != nil && h.bridge == b.cfg.Bridge && h.port.ExternalIDs[peerDeviceKey] == name {
			b.replaced[name] = int(h.number())
			ids = append(ids, h.port.UUID)
		}
	}
	b.conns.db.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	ops, err := b.conns.db.mutatePorts(bridge, "delete", ids)
	if err != nil {
		return err
	}
	return b.conns.db.follow(ctx, b.cfg.Bridge, b.patience, ops)
}

// deviceOf says what is wrong with the device that the switch has for a port.
func (b *bandwidth) deviceOf(name string) string {
	b.conns.db.mu.Lock()
	defer b.conns.db.mu.Unlock()
	return b.conns.db.port(name).device()
}

// interfacePoll is how often the kernel is asked for interfaces and queues of ports with a
// limit, and for interfaces that are down. The switch has other devices for the former, and
// may not report that one of the latter was set up.
const interfacePoll = time.Second

// watchInterfaces notifies when an interface of a port with a limit has come, gone, or been
// set up or down, when one of its queues is gone, and when an interface that was down is up.
func (d *Driver) watchInterfaces(ctx context.Context) {
	tick := time.NewTicker(interfacePoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		moved, taken := d.ports.deviceUp(), ""
		have := map[int]shaping.Queue{}
		if len(d.bandwidth.queued) > 0 {
			var err error
			if have, err = d.bandwidth.shaper.queues.Have(); err != nil {
				have = nil // the next look tells
			}
		}
		for name, s := range d.bandwidth.queued {
			if have != nil && s.trouble == nil && (s.rate.Send.Bits > 0 && have[s.near].Bucket == nil || s.rate.Receive.Bits > 0 && have[s.index].Bucket == nil) {
				taken, d.bandwidth.shapeSeen = name, time.Time{}
			}
			l, err := d.bandwidth.shaper.links.LinkByName(name)
			if gone := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &gone) {
				continue
			}
			if index(l) != s.index || l != nil && isUp(l) != (s.trouble == nil) {
				moved = name
			}
		}
		d.mu.Unlock()
		if moved != "" {
			d.notify("interface " + moved + " has come, gone, or been set up or down")
		} else if taken != "" {
			d.notify("a queue of " + taken + " is gone")
		}
	}
}

func isUp(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_UP != 0 }

func index(l netlink.Link) int {
	if l == nil {
		return 0
	}
	return l.Attrs().Index
}

// removeQueues removes what no limit asks for any more, once the switch does not use it.
func (b *bandwidth) removeQueues() (changes int, problems []driver.Problem) {
	if b.swept {
		return 0, nil
	}
	left, err := b.shaper.remaining()
	if err != nil {
		return 0, []driver.Problem{{Object: "bandwidth", Err: err}}
	}
	b.swept = true
	for name, near := range left {
		if _, stays := b.queued[name]; stays {
			continue
		}
		if err := b.shaper.remove(name, near); err != nil {
			problems = append(problems, driver.Problem{Object: "bandwidth of port " + name, Err: err})
			b.swept = false
			continue
		}
		changes++
	}
	return changes, problems
}

// remaining are the near ones of all pairs, by their port.
func (s shaper) remaining() (map[string]netlink.Link, error) {
	links, err := s.links.LinkList()
	for range 5 { // interfaces come and go meanwhile
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		links, err = s.links.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	out := map[string]netlink.Link{}
	for _, l := range links {
		if name, ours := strings.CutPrefix(l.Attrs().Alias, s.alias); ours && l.Attrs().Name == shaping.DeviceName(nearPrefix, name) {
			out[name] = l
		}
	}
	return out, nil
}

// ensure makes the queues and ways of a port, whose interface is l.
func (s shaper) ensure(name string, l netlink.Link, r desired.Rate, have map[int]shaping.Queue) (near int, changed bool, err error) {
	pair := shaping.Pair{Near: shaping.DeviceName(nearPrefix, name), Far: shaping.DeviceName(farPrefix, name), Alias: s.alias + name, MTU: l.Attrs().MTU}
	near, far, made, err := s.queues.Ensure(pair)
	if err != nil {
		return near, made, err
	}
	defer func() {
		if err != nil && made { // it does not lead anywhere yet
			err = errors.Join(err, s.queues.Remove(l.Attrs().Index), s.queues.Delete(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pair.Near, Index: near}}))
		}
	}()
	changed = made
	for _, q := range []struct {
		index int
		limit desired.Limit
	}{{near, r.Send}, {l.Attrs().Index, r.Receive}} {
		var done bool
		if q.limit.Bits > 0 {
			done, err = s.queues.Set(have, q.index, q.limit, l.Attrs().MTU)
		} else if have[q.index].Bucket != nil {
			done, err = true, s.queues.Remove(q.index)
			delete(have, q.index)
		}
		if changed = changed || done; err != nil {
			return near, changed, err
		}
	}
	// The return path first: no packet is to be sent without a way for its answer.
	ways := [][2]int{{near, l.Attrs().Index}, {l.Attrs().Index, near}}
	if s.taps { // which have seen it: the host's own stack must not
		ways = append([][2]int{{far, discardInterface}}, ways...)
	}
	for _, way := range ways {
		done, err := s.redirect(way[0], way[1])
		if changed = changed || done; err != nil {
			return near, changed, err
		}
	}
	return near, changed, nil
}

// remove takes everything of a port away; near is of its pair.
func (s shaper) remove(name string, near netlink.Link) error {
	l, err := s.links.LinkByName(name)
	if err == nil {
		err = errors.Join(s.removeRedirect(l.Attrs().Index), s.queues.Remove(l.Attrs().Index))
	} else if errors.As(err, &netlink.LinkNotFoundError{}) {
		err = nil
	}
	return errors.Join(err, s.queues.Delete(near))
}

// discardInterface is where a filter leads to that drops.
const discardInterface = 0

// redirectName is the name of a filter that leads to an interface.
func redirectName(to int) string { return fmt.Sprintf("contiv-queue-%d", to) }

// redirectFilter finds our filter where an interface takes packets in; nil = there is none.
func (s shaper) redirectFilter(at int) (*netlink.BpfFilter, []netlink.Filter, error) {
	all, err := s.links.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: at}}, netlink.HANDLE_MIN_INGRESS)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("interface %d: list filters: %w", at, err)
	}
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == shapePriority && b.Handle == shapeHandle {
			return b, all, nil
		}
	}
	return nil, all, nil
}

// redirect makes sure that all that comes in at an interface is sent by another one, or
// dropped where that is nowhere.
func (s shaper) redirect(from, to int) (changed bool, err error) {
	have, _, err := s.redirectFilter(from)
	if err != nil || have != nil && have.Name == redirectName(to) {
		return false, err
	}
	_ = rlimit.RemoveMemlock() // loading says what is missing
	todo := asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(to)), //nolint:gosec // an interface's index
		asm.Mov.Imm(asm.R2, 0),         // where it sends
		asm.FnRedirect.Call(),
		asm.Return(),
	}
	if to == discardInterface {
		todo = asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()} // TC_ACT_SHOT of linux/pkt_cls.h
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "contiv_queue", Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: todo})
	if err != nil {
		return false, fmt.Errorf("load a filter: %w", err)
	}
	defer func() { _ = prog.Close() }() // the filter holds it
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: from, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := s.links.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("interface %d: add qdisc clsact: %w", from, err)
	}
	if err := s.links.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from, Parent: netlink.HANDLE_MIN_INGRESS, Handle: shapeHandle, Priority: shapePriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: redirectName(to), DirectAction: true,
	}); err != nil {
		return false, fmt.Errorf("interface %d: add a filter: %w", from, err)
	}
	return true, nil
}

// removeRedirect takes our filter off an interface, and what filters hang on if it was the last.
func (s shaper) removeRedirect(at int) error {
	have, all, err := s.redirectFilter(at)
	if err != nil || have == nil {
		return err
	}
	if err := s.links.FilterDel(have); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("interface %d: remove a filter: %w", at, err)
	}
	out, err := s.links.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: at}}, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(all)+len(out) > 1 {
		return nil //nolint:nilerr // somebody uses it, or it is gone
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := s.links.QdiscDel(qdisc); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("interface %d: remove qdisc clsact: %w", at, err)
	}
	return nil
}
