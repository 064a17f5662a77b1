package control

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestReservationsOfSetClocks: a reservation lasts as long as it should, by a monotonic
// clock, wherever the time of day goes meanwhile, and when a list of the store comes.
func TestReservationsOfSetClocks(t *testing.T) {
	var uptime atomic.Int64
	c := newCluster(t, func(o *Options) { o.uptime = func() time.Duration { return time.Duration(uptime.Load()) } })
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"))
	k, term := netKey("n"), c.leader()
	held := func(when string, want int) {
		t.Helper()
		c.ok(c.Repair.SweepOnce(ctx, term))
		if got := len(c.fresh().Addresses.Addresses(k)); got != want {
			t.Errorf("%s: %d addresses are held, want %d", when, got, want)
		}
	}
	preferred := func() error {
		_, _, err := c.Addresses.AllocAddress(ctx, Admin(), AddressRequest{Network: k, Preferred: addr("10.1.0.50")})
		return err
	}
	for _, jump := range []time.Duration{25 * time.Hour, -50 * time.Hour} {
		c.ok(preferred())
		c.fresh()
		c.clock.advance(jump)
		uptime.Add(int64(23 * time.Hour))
		held("an hour before its end", 1)
		c.refused(model.ErrConflict, "reserved", preferred)
		uptime.Add(int64(time.Hour))
		held("after its end", 0)
	}
}

// TestListedReservationsKeepTheirTime: a listed reservation that is known lasts as long as it did. Another
// one, or one written by a clock that is ahead, begins again and lasts its time.
func TestListedReservationsKeepTheirTime(t *testing.T) {
	var now time.Duration
	wall := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	k := newReservationTimes(24*time.Hour, func() time.Duration { return now })
	row := func(host byte, expires time.Time) tables.Address {
		return tables.Address{AddressKey: tables.AddressKey{Network: netKey("n"), Addr: addr("10.1.0." + string('0'+host))}, Reservation: &tables.Reservation{Expires: expires}}
	}
	same, other, gone := row(1, wall.Add(10*time.Hour)), row(2, wall.Add(10*time.Hour)), row(3, wall.Add(10*time.Hour))
	for _, a := range []tables.Address{same, other, gone} {
		k.note(a.AddressKey, &a, wall)
	}
	wall = wall.Add(-1000 * time.Hour) // somebody sets it
	k.beginList()
	other = row(2, wall.Add(72*time.Hour)) // of one whose clock is ahead
	k.note(same.AddressKey, &same, wall)
	k.note(other.AddressKey, &other, wall)
	k.endList()
	if _, known := k.isExpired(gone); known || len(k.until) != 2 || k.before != nil {
		t.Errorf("what the list does not have is known: %+v", k)
	}
	for _, x := range []struct {
		at          time.Duration
		same, other bool
	}{{10*time.Hour - 1, false, false}, {10 * time.Hour, true, false}, {24*time.Hour - 1, true, false}, {24 * time.Hour, true, true}} {
		now = x.at
		a, _ := k.isExpired(same)
		b, _ := k.isExpired(other)
		if a != x.same || b != x.other {
			t.Errorf("after %v: %v, %v", x.at, a, b)
		}
	}
	k.note(same.AddressKey, nil, wall)
	if taken := (tables.Address{AddressKey: other.AddressKey, Endpoint: "e"}); len(k.until) == 1 {
		k.note(taken.AddressKey, &taken, wall)
	}
	if len(k.until) != 0 {
		t.Errorf("%d are known of addresses that nobody reserves", len(k.until))
	}
}
