package shape

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
)

// The queue is what a rate makes of it.
func TestOf(t *testing.T) {
	for _, tc := range []struct {
		bits        uint64
		rate        uint64
		limit       uint32
		microsecond uint64 // of the bucket, about
		fifo        string
	}{
		{10_000, 1261, 2, 2_401_000, "pfifo_head_drop"},
		{1_000_000, 126_166, 2, 24_000, "pfifo_head_drop"},
		{10_000_000, 1_261_666, 22_500, 3963, "bfifo"},
		{100_000_000, 12_616_666, 56_250, 3963, "bfifo"},
		{1_000_000_000, 126_166_666, 562_500, 3963, "bfifo"},
		{10_000_000_000_000, 1_261_666_666_666, 1<<31 - 1, 3963, "bfifo"},
	} {
		q, fifo := New(nil, 1).Of(1, desired.Limit{Bits: tc.bits})
		if us := uint64(q.Buffer) * tick / 1000; q.Rate != tc.rate || q.Limit != tc.limit || fifo != tc.fifo || us < tc.microsecond-1000 || us > tc.microsecond+1000 {
			t.Errorf("%d: rate %d, limit %d, bucket %d µs, %s; want %+v", tc.bits, q.Rate, q.Limit, us, fifo, tc)
		}
	}
}
