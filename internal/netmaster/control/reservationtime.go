package control

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// reservationTimes are the times until which addresses are reserved. A row has the time of its
// writer's clock, which may be set: it counts once, when this process first sees the row.
// From then on a monotonic clock counts, for the longest time of reservations at most. The
// view's lock guards it.
type reservationTimes struct {
	most   time.Duration        // how long reservations last
	uptime func() time.Duration // never goes back
	until  map[tables.AddressKey]reservationTime
	before map[tables.AddressKey]reservationTime // while a list is entered: what was known
}

type reservationTime struct {
	expires time.Time     // as the row says
	until   time.Duration // of uptime
}

func newReservationTimes(most time.Duration, uptime func() time.Duration) reservationTimes {
	return reservationTimes{most: most, uptime: uptime, until: map[tables.AddressKey]reservationTime{}}
}

// beginList starts again with the contents of a list; known rows keep their times.
func (k *reservationTimes) beginList() {
	k.before, k.until = k.until, map[tables.AddressKey]reservationTime{}
}

// endList ends the list.
func (k *reservationTimes) endList() { k.before = nil }

// note enters a row; nil = it is gone.
func (k *reservationTimes) note(key tables.AddressKey, a *tables.Address, now time.Time) {
	if a == nil || a.Reservation == nil {
		delete(k.until, key)
		return
	}
	expires := a.Reservation.Expires
	for _, known := range []map[tables.AddressKey]reservationTime{k.until, k.before} {
		if was, ok := known[key]; ok && was.expires.Equal(expires) {
			k.until[key] = was
			return
		}
	}
	k.until[key] = reservationTime{expires, k.uptime() + min(expires.Sub(now), k.most)}
}

// isExpired reports whether a reservation has run out; known is false where its row was not seen
// yet.
func (k *reservationTimes) isExpired(a tables.Address) (over, known bool) {
	x, ok := k.until[a.AddressKey]
	if !ok || !x.expires.Equal(a.Reservation.Expires) {
		return false, false
	}
	return k.uptime() >= x.until, true
}
