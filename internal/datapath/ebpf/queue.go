package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
	"github.com/contiv/netplugin/v2/internal/model"
)

// A port with a limit of what it receives has a queue on the host's side of its
// interface, by which programs send to it. One with a limit of what it sends has a pair
// of devices besides: a program before the port's own leads all that comes in to the
// first, whose queue lets it on to the second, and that leads it back to the port. One
// that only marks has that program and no devices. Ports without a rate have nothing of
// all this (docs/adr/0026-bandwidth.md).

// queued is what was made for a port.
type queued struct {
	index     int
	rate      desired.Rate
	near, far int // the devices; 0 = none
}

// bandwidth is the queues, devices and programs of ports with a rate. Driver.mu guards it.
type bandwidth struct {
	Queues table[uint32, queue] `map:"queues,fixed"`

	pinDir  string
	obj     *objects
	att     *attacher
	repairs repairs

	queued      map[string]queued     // by port
	qdiscs      map[int]shaping.Queue // in an Apply, queues of interfaces; nil = not read yet
	unsupported bool                  // in an Apply: it was reported that the kernel has no queues
}

// begin resets the state of the last Apply.
func (b *bandwidth) begin() {
	b.Queues.begin()
	b.qdiscs, b.unsupported = nil, false
}

// forget drops the state of a port that is gone.
func (b *bandwidth) forget(port string) { delete(b.queued, port) }

// queues are those of this driver.
var queues = shaping.New(nil, 0xc017)

// setQueue makes sure of an interface's queue.
func (b *bandwidth) setQueue(index int, l desired.Limit, mtu int) (changed bool, err error) {
	if b.qdiscs == nil {
		if b.qdiscs, err = queues.Have(); err != nil {
			return false, err
		}
	}
	return queues.Set(b.qdiscs, index, l, mtu)
}

// queueAlias marks the devices of a pin directory's driver.
func queueAlias(pinDir string) string { return tunnelAlias(pinDir) + " queue" }

// queueDevices are the names of a port's devices.
func queueDevices(port string) (near, far string) {
	return shaping.DeviceName("cq", port), shaping.DeviceName("cp", port)
}

// putQueues makes the queues for a port's rate and returns the part for the port's entry. A
// rate that cannot be realised is a problem of its own: the port works without. On a kernel
// without queues no useless part is made, and marks stay. had reports whether the port has
// a queue so far.
func (b *bandwidth) putQueues(run *applyRun, name string, index int, had bool) (receives bool, tos uint8, err error) {
	r, ok := run.want.Bandwidth.Get(name)
	if !ok {
		delete(b.queued, name)
		return false, 0, nil
	}
	lacking := queues.Unsupported()
	limited := r.Send.Bits > 0 || r.Receive.Bits > 0
	if limited && lacking != nil {
		if !b.unsupported {
			run.problem("bandwidth", lacking)
		}
		b.unsupported = true
		r = &desired.Rate{DSCP: r.DSCP}
	}
	q, known := b.queued[name]
	if q.index != index {
		q, known = queued{index: index}, false
	}
	if !known || run.verify || q.rate != *r {
		if run.verify && b.qdiscs == nil {
			if b.qdiscs, err = queues.Have(); err != nil {
				return false, 0, err
			}
		}
		again := known && q.rate == *r
		if err = b.makeQueues(run, name, &q, *r, again); err != nil {
			delete(b.queued, name)
			if limited && lacking == nil && queues.Unsupported() != nil {
				return b.putQueues(run, name, index, had)
			}
			return had, 0, err
		}
		q.rate = *r
		b.queued[name] = q
	}
	if r.Send.Bits > 0 || r.DSCP > 0 {
		err = b.Queues.put(uint32(index), queue{To: uint32(q.near), TOS: r.DSCP << 2})
	}
	if err == nil && q.far != 0 {
		err = b.Queues.put(uint32(q.far), queue{To: uint32(index)})
	}
	return r.Receive.Bits > 0, r.DSCP << 2, err
}

// makeQueues makes the queues, devices and programs of a port; again = they were there.
func (b *bandwidth) makeQueues(run *applyRun, name string, q *queued, r desired.Rate, again bool) error {
	var changed bool
	mtu := 0
	if r.Receive.Bits > 0 || r.Send.Bits > 0 {
		l, err := netlink.LinkByIndex(q.index)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		mtu = l.Attrs().MTU
	}
	if r.Receive.Bits > 0 {
		done, err := b.setQueue(q.index, r.Receive, mtu)
		if err != nil {
			return err
		}
		changed = changed || done
	}
	q.near, q.far = 0, 0
	if r.Send.Bits > 0 {
		nearName, farName := queueDevices(name)
		// As big as packets of any interface are.
		near, far, made, err := queues.Ensure(shaping.Pair{Near: nearName, Far: farName, Alias: queueAlias(b.pinDir), MTU: 65535})
		if err != nil {
			return err
		}
		set, err := b.setQueue(near, r.Send, mtu)
		if err != nil && made { // nothing would find them
			err = errors.Join(err, queues.Delete(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nearName, Index: near}}))
		}
		if err != nil {
			return err
		}
		back, err := b.att.filter(farName, far, true, b.obj.FromQueue)
		if err != nil {
			return err
		}
		// The way back has to be there before anything is sent to it.
		if err := b.Queues.put(uint32(far), queue{To: uint32(q.index)}); err != nil {
			return err
		}
		q.near, q.far = near, far
		changed = changed || made || set || back
	}
	if r.Send.Bits > 0 || r.DSCP > 0 {
		if err := b.Queues.put(uint32(q.index), queue{To: uint32(q.near), TOS: r.DSCP << 2}); err != nil {
			return err
		}
		done, err := b.att.attachFirst(name, q.index, b.obj.ToQueue)
		if err == nil {
			err = b.att.unlink(pinName(name, true)) // which would see packets first
		}
		if err != nil {
			return err
		}
		changed = changed || done
	}
	run.count(changed)
	if again && changed {
		b.repairs.note(driver.DriftDevice, "queue of "+name, 1)
	}
	return nil
}

// putRated writes a port's entry, with what its rate asks for. The host's own interface
// (onHost) is reached by the queue in any case, though that has no limit: the fast path
// (bpf_redirect_peer) leads into other namespaces only.
func (p *ports) putRated(run *applyRun, name string, index uint32, entry port, onHost bool) error {
	had := p.Ports.have[index].Queued != 0
	queued, tos, err := p.bandwidth.putQueues(run, name, int(index), had)
	if fatal(err) {
		return err
	} else if err != nil {
		run.problem("bandwidth of port "+name, err)
	}
	if entry.TOS = tos; queued || onHost {
		entry.Queued = 1
	}
	err = p.Ports.put(index, entry)
	if had && p.Ports.have[index].Queued == 0 {
		run.count(true)
		err = errors.Join(err, queues.Remove(int(index)))
	}
	return err
}

// dropQueue takes the queue of a port that goes away.
func (b *bandwidth) dropQueue(run *applyRun, index uint32, o port) {
	if o.Queued == 0 {
		return
	}
	if err := queues.Remove(int(index)); err != nil {
		run.problem("bandwidth", err)
	}
}

// remove removes what no rate asks for: programs first, so that nothing is sent
// to a device that goes.
func (b *bandwidth) remove(*applyRun) error {
	var devices []netlink.Link
	for index := range b.Queues.have {
		if b.Queues.wanted[index] {
			continue
		}
		l, err := netlink.LinkByIndex(int(index))
		switch {
		case errors.As(err, &netlink.LinkNotFoundError{}):
		case err != nil:
			return fmt.Errorf("interface %d: %w", index, err)
		case l.Attrs().Alias == queueAlias(b.pinDir):
			devices = append(devices, l)
		default:
			err = detachFirst(l.Attrs().Index)
		}
		if err == nil || errors.As(err, &netlink.LinkNotFoundError{}) {
			err = b.Queues.del(index)
		}
		if err != nil {
			return err
		}
	}
	for _, l := range devices {
		if err := queues.Delete(l); err != nil {
			return err
		}
	}
	return nil
}

// firstPriority is the priority of the program before a port's own.
var firstPriority = ourFilter.Priority - 1

// firstFilter finds that program on a port, nil where there is none.
func firstFilter(ifindex int) (*netlink.BpfFilter, error) {
	have, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, bpfattach.Parent(true))
	if err != nil {
		return nil, err
	}
	for _, f := range have {
		if f.Attrs().Priority != firstPriority {
			continue
		}
		b, ok := f.(*netlink.BpfFilter)
		if !ok || b.Handle != ourFilter.Handle || b.Name != ourFilter.Name {
			return nil, model.Errorf(model.ErrConflict, "a %s filter that is not Contiv's has priority %d; delete it (tc filter del)", f.Type(), firstPriority)
		}
		return b, nil
	}
	return nil, nil
}

// attachFirst makes sure of a program before a port's own, whose place is there.
func (a *attacher) attachFirst(ifname string, ifindex int, prog *ebpf.Program) (bool, error) {
	id, err := a.id(prog)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	have, err := firstFilter(ifindex)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	if have != nil && have.Id == int(id) {
		return false, nil
	}
	if err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: bpfattach.Parent(true), Handle: ourFilter.Handle, Protocol: unix.ETH_P_ALL, Priority: firstPriority,
		},
		Fd: prog.FD(), Name: ourFilter.Name, DirectAction: true,
	}); err != nil {
		return false, fmt.Errorf("interface %s: filter: %w", ifname, err)
	}
	return true, nil
}

// detachFirst takes that program off an interface, if it is there.
func detachFirst(ifindex int) error {
	f, err := firstFilter(ifindex)
	if err != nil || f == nil { // not ours, or the interface is gone
		return nil //nolint:nilerr // see above
	}
	if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("interface %d: filter: %w", ifindex, err)
	}
	return nil
}
