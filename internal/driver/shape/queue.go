package shape

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
	wait       = 18 * time.Millisecond
	waitFast   = 4500 * time.Microsecond // from fast on
	fast       = 100_000_000             // bits a second
	fewPackets = 4
	packet     = 1514 // bytes of Ethernet
	tick       = 64   // ns, of which the kernel's interface has bursts
)

// Queues are those of one driver: a driver does not see another one's.
type Queues struct {
	links *netlink.Handle
	major uint16
}

// New returns the queues with a major number, on interfaces that links sees; nil = those
// of the namespace of whoever calls. The two numbers behind it are the queues' FIFOs'.
func New(links *netlink.Handle, major uint16) *Queues {
	if links == nil {
		links = &netlink.Handle{}
	}
	return &Queues{links, major}
}

func (q *Queues) handle() uint32 { return netlink.MakeHandle(q.major, 0) }

// Of is a limit as the kernel has it, and the kind of FIFO. Limits are of IP, and the
// kernel counts whole frames: the rate is what full frames of Ethernet make of it, with
// smaller ones less passes.
func (q *Queues) Of(index int, l desired.Limit) (*netlink.Tbf, string) {
	bytes := l.Bits / 8 * packet / (packet - 14)
	longest := wait
	if l.Bits >= fast {
		longest = waitFast
	}
	fifo, limit := "bfifo", min(l.Bytes(longest), math.MaxInt32)
	if limit < fewPackets*packet {
		fifo, limit = "pfifo_head_drop", max(2, limit/packet)
	}
	ticks := l.Bucket() * (uint64(time.Second) / tick) / bytes
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: q.handle()},
		Rate:       bytes, Limit: uint32(limit), Buffer: uint32(min(ticks+1, math.MaxInt32)),
	}, fifo
}

// Have lists the queues by their interface.
func (q *Queues) Have() (map[int]*netlink.Tbf, error) {
	all, err := q.links.QdiscList(nil)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what is missing is made again, which changes nothing
		return nil, fmt.Errorf("list queues: %w", err)
	}
	out := map[int]*netlink.Tbf{}
	for _, x := range all {
		if t, ok := x.(*netlink.Tbf); ok && t.Handle == q.handle() && t.Parent == netlink.HANDLE_ROOT {
			out[t.LinkIndex] = t
		}
	}
	return out, nil
}

// Set makes sure of an interface's queue, and enters it into have, which Have has listed.
// Packets that wait in it stay when its rate changes.
func (q *Queues) Set(have map[int]*netlink.Tbf, index int, l desired.Limit) (changed bool, err error) {
	want, fifo := q.Of(index, l)
	if is := have[index]; is != nil && is.Rate == want.Rate && is.Limit == want.Limit && is.Buffer == want.Buffer {
		return false, nil
	}
	if err := q.links.QdiscReplace(want); err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("this kernel has no token bucket (sch_tbf): %w", err)
		}
		return false, fmt.Errorf("interface %d: queue: %w", index, err)
	}
	// The FIFO first has the kernel's own length, then, by its queue, ours.
	number := q.major + 1
	if fifo != "bfifo" {
		number++
	}
	in := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: q.handle() | 1, Handle: netlink.MakeHandle(number, 0)}, QdiscType: fifo}
	err = q.links.QdiscReplace(in)
	if err == nil {
		err = q.links.QdiscReplace(want)
	}
	if err != nil {
		return false, fmt.Errorf("interface %d: %s: %w", index, fifo, err)
	}
	have[index] = want
	return true, nil
}

// Remove removes an interface's queue, if there is one, with what waits in it.
func (q *Queues) Remove(index int) error {
	err := q.links.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: q.handle()}})
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("interface %d: remove its queue: %w", index, err)
}
