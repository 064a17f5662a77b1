package ebpf

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
)

// A queue is a token bucket (tbf) with a FIFO. It holds no more than what its rate
// lets pass in a short time, so that packets wait no longer. Where that is but a few
// packets, the oldest is dropped instead of the newest: a sender learns of a loss by
// the packets behind it, while a lost last one costs it a timeout.
const (
	queueWait     = 18 * time.Millisecond
	queueWaitFast = 4500 * time.Microsecond // from fastQueue on
	fastQueue     = 100_000_000             // bits a second
	fewPackets    = 4
	packet        = 1514 // bytes of Ethernet
	queueTick     = 64   // ns, of which the kernel's interface has bursts
)

// Handles of our queue and of what is in it.
var (
	queueHandle = netlink.MakeHandle(0xc017, 0)
	fifoHandle  = map[string]uint32{"bfifo": netlink.MakeHandle(0xc018, 0), "pfifo_head_drop": netlink.MakeHandle(0xc019, 0)}
)

// queueOf is a limit as the kernel has it, and the kind of FIFO. Limits are of IP, and
// the kernel counts whole frames: the rate is what full frames of Ethernet make of it,
// with smaller ones less passes.
func queueOf(index int, l desired.Limit) (*netlink.Tbf, string) {
	bytes := l.Bits / 8 * packet / (packet - 14)
	wait := queueWait
	if l.Bits >= fastQueue {
		wait = queueWaitFast
	}
	fifo, limit := "bfifo", min(l.Bytes(wait), math.MaxInt32)
	if limit < fewPackets*packet {
		fifo, limit = "pfifo_head_drop", max(2, limit/packet)
	}
	ticks := l.Bucket() * (uint64(time.Second) / queueTick) / bytes
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: queueHandle},
		Rate:       bytes, Limit: uint32(limit), Buffer: uint32(min(ticks+1, math.MaxInt32)),
	}, fifo
}

// rootQueues lists the queues of all interfaces that are ours.
func rootQueues() (map[int]*netlink.Tbf, error) {
	all, err := netlink.QdiscList(nil)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what is missing is made again, which changes nothing
		return nil, fmt.Errorf("list queues: %w", err)
	}
	out := map[int]*netlink.Tbf{}
	for _, q := range all {
		if t, ok := q.(*netlink.Tbf); ok && t.Handle == queueHandle && t.Parent == netlink.HANDLE_ROOT {
			out[t.LinkIndex] = t
		}
	}
	return out, nil
}

// setQueue makes sure of an interface's queue. Packets that wait in it stay when its
// rate changes.
func (p *pass) setQueue(index int, l desired.Limit) (changed bool, err error) {
	if p.qdiscs == nil {
		if p.qdiscs, err = rootQueues(); err != nil {
			return false, err
		}
	}
	want, fifo := queueOf(index, l)
	if have := p.qdiscs[index]; have != nil && have.Rate == want.Rate && have.Limit == want.Limit && have.Buffer == want.Buffer {
		return false, nil
	}
	if err := netlink.QdiscReplace(want); err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("this kernel has no token bucket (sch_tbf): %w", err)
		}
		return false, fmt.Errorf("interface %d: queue: %w", index, err)
	}
	// The FIFO first has the kernel's own length, then, by its queue, ours.
	in := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: queueHandle | 1, Handle: fifoHandle[fifo]}, QdiscType: fifo}
	err = netlink.QdiscReplace(in)
	if err == nil {
		err = netlink.QdiscReplace(want)
	}
	if err != nil {
		return false, fmt.Errorf("interface %d: %s: %w", index, fifo, err)
	}
	p.qdiscs[index] = want
	return true, nil
}

// noQueue removes an interface's queue, with what waits in it.
func noQueue(index int) error {
	err := netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: queueHandle}})
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("interface %d: remove its queue: %w", index, err)
}
