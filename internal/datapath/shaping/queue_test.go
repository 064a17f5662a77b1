package shaping

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// The queue is what a rate makes of it.
func TestQueueFollowsItsRate(t *testing.T) {
	for _, tc := range []struct {
		limit       desired.Limit
		mtu         int
		rate        uint64
		fifo        uint32
		microsecond uint64 // of the bucket, about
		in          string
		cut         bool
	}{
		{desired.Limit{Bits: 10_000}, 1450, 1261, 2, 3_601_000, headDrop, false},
		{desired.Limit{Bits: 1_000_000}, 1500, 126_166, 2, 36_000, headDrop, false},
		{desired.Limit{Bits: 10_000_000}, 1450, 1_261_666, 22_500, 3963, bytesFIFO, true},
		{desired.Limit{Bits: 25_000_000}, 1450, 3_154_166, 56_250, 3963, bytesFIFO, true},
		{desired.Limit{Bits: 50_000_000}, 1450, 6_308_333, 56_250, 3963, bytesFIFO, true},
		{desired.Limit{Bits: 100_000_000}, 1450, 12_616_666, 56_250, 3963, bytesFIFO, true},
		{desired.Limit{Bits: 200_000_000}, 1450, 25_233_333, 112_500, 3963, bytesFIFO, true},
		{desired.Limit{Bits: 201_000_000}, 1450, 25_359_500, 113_062, 3963, bytesFIFO, false},
		{desired.Limit{Bits: 1_000_000_000}, 1450, 126_166_666, 562_500, 3963, bytesFIFO, false},
		{desired.Limit{Bits: 10_000_000_000_000}, 1450, 1_261_666_666_666, 1<<31 - 1, 3963, bytesFIFO, false},
		// A full packet fits, whatever the rate and the burst.
		{desired.Limit{Bits: 5_000_000}, 8950, 630_833, 17_928, 42_630, bytesFIFO, false},
		{desired.Limit{Bits: 100_000_000, Burst: 2000}, 8950, 12_616_666, 56_250, 711, bytesFIFO, false},
		{desired.Limit{Bits: 100_000_000, Burst: 2000}, 1450, 12_616_666, 56_250, 158, bytesFIFO, true},
		{desired.Limit{Bits: 100_000_000, Burst: 1000}, 1450, 12_616_666, 56_250, 120, bytesFIFO, true},
	} {
		q := New(nil, 1).QueueFor(1, tc.limit, tc.mtu)
		b := q.Bucket
		us := uint64(b.Buffer) * tick / 1000
		if b.Rate != tc.rate || b.Limit != tc.fifo || q.In != tc.in || us < tc.microsecond*98/100 || us > tc.microsecond*102/100+1 || (b.Peakrate > 0) != tc.cut || tc.cut && b.Minburst < packet {
			t.Errorf("%+v: rate %d, limit %d, bucket %d µs, %s, cut from %d; want %+v", tc.limit, b.Rate, b.Limit, us, q.In, b.Minburst, tc)
		}
	}
}

// A queue is another one by each of what a rate makes of it.
func TestQueuesDifferByEachValue(t *testing.T) {
	of := func(change func(*Queue)) Queue {
		q := New(nil, 1).QueueFor(1, desired.Limit{Bits: 50_000_000}, 1450)
		change(&q)
		return q
	}
	same := of(func(q *Queue) { q.Bucket.Peakrate, q.Bucket.Minburst = 1<<32-1, 0 }) // as a kernel tells of it
	if !same.equal(of(func(*Queue) {})) {
		t.Error("the same is another one")
	}
	for name, change := range map[string]func(*Queue){
		"rate": func(q *Queue) { q.Bucket.Rate++ }, "limit": func(q *Queue) { q.Bucket.Limit++ }, "bucket": func(q *Queue) { q.Bucket.Buffer++ },
		"cut": func(q *Queue) { q.Bucket.Peakrate = 0 }, "kind": func(q *Queue) { q.In = headDrop },
	} {
		if same.equal(of(change)) {
			t.Errorf("with another %s it is the same", name)
		}
	}
}

// Somebody else's bucket is none of ours.
func TestOtherBucketsAreNotOurs(t *testing.T) {
	k := &kernel{asked: map[string]int{}}
	theirs := New(nil, 0x200).QueueFor(7, desired.Limit{Bits: 50_000_000}, 1450)
	if err := k.QdiscReplace(theirs.Bucket); err != nil {
		t.Fatal(err)
	}
	if have, err := New(k, 0x100).Have(); err != nil || len(have) != 0 {
		t.Errorf("%v, %v", have, err)
	}
}

// kernel lacks kinds of queues, and has the queues that were set.
type kernel struct {
	*netlink.Handle
	lacks  map[string]bool
	asked  map[string]int
	queues map[uint32]netlink.Qdisc // by their parent
}

func (k *kernel) QdiscReplace(q netlink.Qdisc) error {
	k.asked[q.Type()]++
	if k.lacks[q.Type()] {
		return unix.ENOENT
	}
	if k.queues == nil {
		k.queues = map[uint32]netlink.Qdisc{}
	}
	if t, ok := q.(*netlink.Tbf); ok && t.Peakrate > 0 { // as a kernel tells of it
		told := *t
		told.Peakrate, told.Minburst = 1<<32-1, 0
		q = &told
	}
	k.queues[q.Attrs().Parent] = q
	return nil
}

func (k *kernel) QdiscList(netlink.Link) (out []netlink.Qdisc, err error) {
	for _, q := range k.queues {
		out = append(out, q)
	}
	return out, nil
}

// Streams take turns where the kernel has fq_codel, also in queues that are there from a
// kernel that had not; one that has not is asked once, and has a FIFO.
func TestStreamsTakeTurns(t *testing.T) {
	k := &kernel{lacks: map[string]bool{fair: true}, asked: map[string]int{}}
	slow, faster := desired.Limit{Bits: 1_000_000}, desired.Limit{Bits: 50_000_000}
	set := func(q *Queues, l desired.Limit, want bool) netlink.Qdisc {
		t.Helper()
		have, err := q.Have()
		if err != nil {
			t.Fatal(err)
		}
		changed, err := q.Set(have, 7, l, 1450)
		if err != nil || changed != want {
			t.Errorf("%+v: changed %v, %v, want %v", l, changed, err, want)
		}
		if again, err := q.Set(have, 7, l, 1450); again || err != nil { // in the same look
			t.Errorf("%+v, once more: changed %v, %v", l, again, err)
		}
		return k.queues[q.handle()|1]
	}
	q := New(k, 0x100)
	if in := set(q, slow, true); in.Type() != headDrop {
		t.Errorf("a %s", in.Type())
	}
	set(q, slow, false)
	if in := set(q, faster, true); in.Type() != bytesFIFO {
		t.Errorf("a %s", in.Type())
	}
	if k.asked[fair] != 1 {
		t.Errorf("asked %d times for %s", k.asked[fair], fair)
	}
	fifos := k.asked[bytesFIFO]
	q = New(k, 0x100) // another netplugin
	if set(q, faster, false); k.asked[bytesFIFO] != fifos {
		t.Error("another netplugin has put another FIFO there")
	}
	k.lacks = nil
	q = New(k, 0x100) // and another kernel's
	for _, tc := range []struct {
		limit   desired.Limit
		changed bool
		memory  uint32
	}{{faster, true, 56_250 * 5 / 4}, {faster, false, 56_250 * 5 / 4}, {slow, true, 8 * 2304}, {slow, false, 8 * 2304}} {
		in, ok := set(q, tc.limit, tc.changed).(*netlink.FqCodel)
		if !ok || in.MemoryLimit != tc.memory || in.ECN != 0 || in.DropBatchSize != 1 || in.Quantum != packet {
			t.Errorf("%+v: %+v", tc, in)
		}
	}
	q = New(k, 0x100) // another netplugin
	set(q, slow, false)
}

// A kernel without a token bucket is asked again after a while only.
func TestUnsupportedQueuesAreTriedAgainAfterAWhile(t *testing.T) {
	k := &kernel{lacks: map[string]bool{"tbf": true}, asked: map[string]int{}}
	q := New(k, 0x100)
	if err := q.Unsupported(); err != nil {
		t.Error("not asked yet:", err)
	}
	_, err := q.Set(map[int]Queue{}, 7, desired.Limit{Bits: 1_000_000}, 1500)
	if !errors.Is(err, unix.ENOENT) || !errors.Is(q.Unsupported(), unix.ENOENT) {
		t.Error(err, q.Unsupported())
	}
	q.lacked = time.Now().Add(-unsupportedFor - time.Second)
	if err := q.Unsupported(); err != nil {
		t.Error("after a while:", err)
	}
}
