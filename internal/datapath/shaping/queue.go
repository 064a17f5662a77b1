package shaping

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// A queue is a token bucket (tbf), and in it what packets wait in. That holds no more
// than what the rate lets pass in a short time, so that packets wait no longer. From 25 to
// 100 Mbit/s it is as long in bytes: eight streams that shared one of 18 ms at 50 Mbit/s
// were far from even after ten seconds, as each loses a packet too seldom.
//
// Where the kernel has fq_codel, that is it: streams take turns. Else it is a FIFO.
// Where that is but a few packets, the oldest is dropped instead of the newest: a sender
// learns of a loss by the packets behind it, while a lost last one costs it a timeout.
//
// At lower rates big packets of segments are cut before they wait: one of them would take
// most of the places at once, or find none, and streams get by luck what they get. Not
// where places are counted in packets, of which one would be several then.
const (
	queueDelay     = 18 * time.Millisecond
	queueDelayFast = 4500 * time.Microsecond // from fast on
	fastRate       = 100_000_000             // bits a second; what waits at it waits below, too, if that is less than wait
	segmentUpTo    = 200_000_000             // bits a second; beyond it costs more than it gives
	minPackets     = 4
	leastBurst     = 3    // full packets, of a burst that is left open; as desired.Limit.Bucket has them of 1,500 bytes
	packet         = 1514 // bytes of Ethernet
	tagged         = 4    // bytes of a VLAN tag beside it
	tick           = 64   // ns, of which the kernel's interface has bursts
	// noPeak is a peak rate that is none, bytes a second: a bucket with one has a size
	// from which on packets are cut. Its lower 32 bits, which the kernel asks for, are
	// not 0.
	noPeak = 1_000_000_000_000
	// inMemory is what the kernel takes for a full packet, bytes, about, and fairPackets
	// how many of them fq_codel may always hold, so that eight streams have a place each.
	inMemory, fairPackets = 2304, 8
)

// unsupportedFor is how long a kernel is believed to have no token bucket: somebody may load
// the module.
const unsupportedFor = 10 * time.Minute

// Kernel is what queues ask of a kernel; *netlink.Handle is one.
type Kernel interface {
	QdiscList(link netlink.Link) ([]netlink.Qdisc, error)
	QdiscReplace(q netlink.Qdisc) error
	QdiscDel(q netlink.Qdisc) error
	LinkByName(name string) (netlink.Link, error)
	LinkAdd(l netlink.Link) error
	LinkDel(l netlink.Link) error
	LinkSetAlias(l netlink.Link, alias string) error
	LinkSetARPOff(l netlink.Link) error
	LinkSetUp(l netlink.Link) error
	LinkSetIP6AddrGenMode(l netlink.Link, mode int) error
}

// Queues are those of one driver: a driver does not see another one's. Its methods may be
// called in parallel.
type Queues struct {
	links Kernel
	major uint16

	mu            sync.Mutex
	unfair        bool      // this kernel has no fq_codel
	missingQdiscs error     // what it said when it had no token bucket
	lacked        time.Time // when that was
}

// New returns the queues with a major number, on interfaces that links sees; nil = the
// caller's namespace. The queues' contents use the next two numbers and the one 16 higher.
func New(links Kernel, major uint16) *Queues {
	if links == nil {
		links = &netlink.Handle{}
	}
	return &Queues{links: links, major: major}
}

func (q *Queues) handle() uint32 { return netlink.MakeHandle(q.major, 0) }

// Unsupported says that this kernel cannot hold a limit, as it did in the last ten minutes;
// nil = it can, or has not been asked.
func (q *Queues) Unsupported() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.lacked) > unsupportedFor {
		return nil
	}
	return q.missingQdiscs
}

// Queue is a queue that an interface has: the bucket, and the kind of what is in it.
type Queue struct {
	Bucket *netlink.Tbf
	In     string // bfifo, pfifo_head_drop, fq_codel; empty = something else
}

// What is in a bucket.
const (
	bytesFIFO = "bfifo"
	headDrop  = "pfifo_head_drop"
	fair      = "fq_codel"
)

// QueueFor is a limit as the kernel has it on an interface whose packets are those of one with
// an MTU, with a FIFO. Limits are of IP, and the kernel counts whole frames: the rate is
// what full frames of Ethernet make of it, with smaller ones less passes. Whatever the
// burst, one full packet always fits: what does not would never pass.
func (q *Queues) QueueFor(index int, l desired.Limit, mtu int) Queue {
	frame := uint64(max(packet, mtu+packet-1500)) //nolint:gosec // not negative
	bytes := l.Bits / 8 * packet / (packet - 14)
	most := desired.Limit{Bits: max(l.Bits, fastRate)}
	in, limit := bytesFIFO, min(l.Bytes(queueDelay), most.Bytes(queueDelayFast), math.MaxInt32)
	if limit < minPackets*packet {
		in, limit = headDrop, max(2, limit/packet)
	} else {
		limit = max(limit, 2*frame)
	}
	bucket := max(l.Bucket(), frame+tagged)
	if l.Burst == 0 {
		bucket = max(bucket, leastBurst*frame)
	}
	ticks := bucket * (uint64(time.Second) / tick) / bytes
	t := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: q.handle()},
		Rate:       bytes, Limit: uint32(limit), Buffer: uint32(min(ticks+1, math.MaxInt32)),
	}
	if in == bytesFIFO && l.Bits <= segmentUpTo && frame == packet {
		t.Peakrate, t.Minburst = noPeak, packet+tagged
	}
	return Queue{t, in}
}

// equal reports whether a queue that the kernel has told of is another one. Of a peak rate
// it tells 32 bits, and no size.
func (x Queue) equal(y Queue) bool {
	a, b := x.Bucket, y.Bucket
	return x.In == y.In && a.Rate == b.Rate && a.Limit == b.Limit && a.Buffer == b.Buffer && (a.Peakrate == 0) == (b.Peakrate == 0)
}

// Have lists the queues by their interface.
func (q *Queues) Have() (map[int]Queue, error) {
	all, err := q.links.QdiscList(nil)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what is missing is made again, which changes nothing
		return nil, fmt.Errorf("list queues: %w", err)
	}
	out, in := map[int]Queue{}, map[int]string{}
	for _, x := range all {
		if t, ok := x.(*netlink.Tbf); ok && t.Handle == q.handle() && t.Parent == netlink.HANDLE_ROOT {
			out[t.LinkIndex] = Queue{Bucket: t}
		} else if x.Attrs().Parent == q.handle()|1 {
			in[x.Attrs().LinkIndex] = x.Type()
		}
	}
	for index, x := range out {
		x.In = in[index]
		out[index] = x
	}
	return out, nil
}

// Set ensures an interface's queue, and enters it into have, which Have has listed. mtu is
// the MTU of the endpoint whose packets it takes. Waiting packets stay when the rate
// changes.
func (q *Queues) Set(have map[int]Queue, index int, l desired.Limit, mtu int) (changed bool, err error) {
	want, is := q.QueueFor(index, l, mtu), have[index]
	turns := is.Bucket != nil && is.In == fair
	if is.Bucket != nil && !turns { // whether there may be more in it than a FIFO is asked first
		if turns, err = q.setFairQueueing(want); err != nil {
			return false, err
		}
	}
	same := want
	if turns {
		same.In = fair
	}
	if is.Bucket != nil && is.equal(same) {
		return false, nil
	}
	if err := q.links.QdiscReplace(want.Bucket); err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("this kernel has no token bucket (sch_tbf), so bandwidth limits have no effect: %w", err)
			q.mu.Lock()
			q.missingQdiscs, q.lacked = err, time.Now()
			q.mu.Unlock()
			return false, err
		}
		return false, fmt.Errorf("interface %d: queue: %w", index, err)
	}
	if turns, err = q.setFairQueueing(want); err != nil {
		return false, err
	}
	if turns {
		want.In = fair
	} else {
		at := q.inside(want)
		at.Handle = netlink.MakeHandle(q.major+1, 0)
		if want.In == headDrop {
			at.Handle = netlink.MakeHandle(q.major+2, 0)
		}
		// It first has the kernel's own length, then, by its bucket, ours.
		if err = q.links.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: at, QdiscType: want.In}); err == nil {
			err = q.links.QdiscReplace(want.Bucket)
		}
		if err != nil {
			return false, fmt.Errorf("interface %d: %s: %w", index, want.In, err)
		}
	}
	have[index] = want
	return true, nil
}

// inside is the place in a bucket.
func (q *Queues) inside(x Queue) netlink.QdiscAttrs {
	return netlink.QdiscAttrs{LinkIndex: x.Bucket.LinkIndex, Parent: q.handle() | 1}
}

// setFairQueueing lets the streams of a bucket take turns, by fq_codel, and tells whether this
// kernel has that. It asks a kernel that has not only once.
func (q *Queues) setFairQueueing(x Queue) (bool, error) {
	q.mu.Lock()
	unfair := q.unfair
	q.mu.Unlock()
	if unfair {
		return false, nil
	}
	bytes := uint64(x.Bucket.Limit)
	if x.In == headDrop {
		bytes *= packet
	}
	at := q.inside(x)
	at.Handle = netlink.MakeHandle(q.major+0x10, 0)
	err := q.links.QdiscReplace(&netlink.FqCodel{
		QdiscAttrs: at, Quantum: packet, DropBatchSize: 1, // and no ECN, which is the endpoints' own
		MemoryLimit: uint32(min(max(bytes*5/4, fairPackets*inMemory), math.MaxInt32)),
	})
	if errors.Is(err, unix.ENOENT) {
		q.mu.Lock()
		q.unfair = true
		q.mu.Unlock()
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("interface %d: %s: %w", x.Bucket.LinkIndex, fair, err)
	}
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
