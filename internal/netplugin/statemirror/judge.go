package statemirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// StoreGrace is how long a host waits for others to put their attachments back
// after its own are there.
const StoreGrace = time.Minute

// relistTimeout bounds how long the guard waits for mirrors that have still to list a store
// that went back, as another one has seen: one that was no further than the store is now
// lists nothing.
const relistTimeout = 10 * time.Second

// storeSurvey is what all mirrors have listed of one store.
type storeSurvey struct {
	of      store.Incarnation
	listed  store.Revision // the lowest
	missing bool           // the store went back, as its journal says
}

// survey returns what the mirrors have listed. It is complete when the required mirrors
// are ready, and all that are ready listed the same store.
func (g *StoreGuard) survey(set *mirrorSet) (s storeSurvey, complete bool) {
	if !set.requiredReady() {
		return s, false
	}
	global := set.global()
	s.of, s.listed = global.of, global.listed
	for _, m := range set.byScope {
		if m.ready && !m.of.Same(s.of) {
			return s, false // some still have to list
		}
		if m.ready {
			s.listed, s.missing = min(s.listed, m.listed), s.missing || m.older
		}
	}
	if s.missing && time.Since(g.since) < relistTimeout && slices.ContainsFunc(slices.Collect(maps.Values(set.byScope)), func(m *mirror) bool { return m.behind }) {
		return s, false
	}
	return s, true
}

// listed notes which store a list of a mirror came from. It stops following when that is
// not the store that is followed, or is an older state of it: other mirrors may have gone
// on since the list was read, but not since before it began.
func (g *StoreGuard) listed(set *mirrorSet, m *mirror, b store.Batch) {
	m.of, m.listed, m.older, m.again, m.behind = b.Store, b.Revision, b.Older, false, false
	if !g.follows() {
		return
	}
	if (g.position.ID == "" || m.of.Same(g.position.Incarnation)) && m.listed >= m.floor && !m.older {
		if g.position.ID == "" {
			g.position.Incarnation = m.of // it has got its identity meanwhile
		}
		return
	}
	if g.suspect() != nil {
		return
	}
	for _, x := range set.byScope {
		x.seen = maps.Clone(x.values)
		x.behind = m.older && x.ready && x != m
	}
}

// identity follows a change of the identity of a store that is being watched:
// all that was read from the store belongs to its new identity.
func (g *StoreGuard) identity(set *mirrorSet, from *mirror, now store.Incarnation) {
	was := from.of
	for _, m := range set.byScope {
		if m.of.Same(was) {
			m.of = now
		}
	}
	if g.follows() {
		g.position.Incarnation = now
		g.Agent.OnOwnHost()
	}
}

// judge reports whether the store is to be followed now. Until it is, the desired state is
// frozen, and judge says why. own counts this host's attachments, missing are the endpoints that the
// store lacks, and awaited returns the other hosts that would lose something.
func (g *StoreGuard) judge(s storeSurvey, own int, missing []model.EndpointKey, awaited func(older bool) []string) bool {
	what, restores := g.compare(s, own, len(missing))
	if what == "" {
		return true
	}
	verdict := rejected
	if restores {
		verdict = restored
	}
	if len(missing) > 0 {
		g.ownSince = time.Time{}
		if g.move(verdict) != nil {
			return false
		}
		if restores {
			g.freeze(fmt.Sprintf("%s; %d of %d attachments of this host are being restored to it; until then the last desired state stays", what, len(missing), own))
		} else {
			g.freeze(fmt.Sprintf("%s. The last desired state stays: restore the right store, or have hosts adopt this one with 'netctl store adopt'; it lacks %d of %d attachments of this host, such as %s",
				what, len(missing), own, missing[0]))
		}
		return false
	}
	if g.ownSince.IsZero() {
		g.ownSince = time.Now()
		g.Agent.OnOwnHost() // tells the others
	}
	// After a restart the older state cannot be told from the right one any more,
	// once it has as many revisions: what runs here decides.
	older := g.position.Older
	back := older && !g.entered() && !g.isOlder(s)
	if own == 0 || back || time.Since(g.ownSince) >= g.Grace {
		return true
	}
	waiting := awaited(older)
	if len(waiting) == 0 {
		return true
	}
	if g.move(verdict) == nil {
		g.freeze(fmt.Sprintf("%s; all attachments of this host are in it, and it waits, until %s at the latest, for missing ones of hosts %s: until then the last desired state stays",
			what, g.ownSince.Add(g.Grace).UTC().Format(time.RFC3339), strings.Join(waiting, ", ")))
	}
	return false
}

func (g *StoreGuard) isOlder(s storeSurvey) bool { return s.listed < g.position.Revision || s.missing }

// compare says what is wrong with a store, "" = nothing, and whether it succeeds the one
// that was followed.
func (g *StoreGuard) compare(s storeSurvey, own, missing int) (what string, restores bool) {
	last, wentBack := &g.position, g.isOlder(s)
	last.Older = s.of.ID != "" && s.of.ID == last.ID && (last.Older && s.of.Same(last.Incarnation) ||
		s.of.Generation < last.Generation || s.of.Generation == last.Generation && wentBack)
	switch {
	case last.ID == "" && last.Revision == 0 && (own == 0 || missing < own):
		return "", false // the first store that this host meets: it is believed
	case last.ID == "" && last.Revision == 0:
		return fmt.Sprintf("the store (%s) has none of the %d attachments of this host", s.of, own), false
	case (last.ID == "" || s.of.Same(last.Incarnation)) && !last.Older && !wentBack:
		return "", false // as it was
	case s.of.Succeeds(last.Incarnation):
		return fmt.Sprintf("the store was restored: it is %s, since %s", s.of, s.of.Since), true
	case s.of.ID == "" && last.ID == "":
		return fmt.Sprintf("the store is at an older state: at revision %d, and was at %d", s.listed, last.Revision), false
	case s.of.ID == "":
		return fmt.Sprintf("the store is empty, or another one: it has no identity, and this host has followed %s", last.Incarnation), false
	case last.Older && s.missing:
		return fmt.Sprintf("the store is an older state of the one that this host has followed, and goes on from there: it is at epoch %d, revision %d, and lacks what it had at epoch %d, revision %d",
			s.of.Generation, s.listed, last.Generation, last.Revision), false
	case last.Older:
		return fmt.Sprintf("the store is an older state of the one that this host has followed: it is at epoch %d, revision %d, and was at epoch %d, revision %d",
			s.of.Generation, s.listed, last.Generation, last.Revision), false
	}
	return fmt.Sprintf("the store is another one: it is %s, and this host has followed %s", s.of, last.Incarnation), false
}

// missing returns the endpoints of lost attachments, except refused ones.
func (g *StoreGuard) missing(lost []Attachment) []model.EndpointKey {
	var missing []model.EndpointKey
	for _, o := range lost {
		if !g.refused[o.Endpoint] {
			missing = append(missing, o.Endpoint)
		}
	}
	return missing
}

// hostsThatWouldLose returns the other hosts that would lose something if the store were followed now,
// and have not said that it has all of their endpoints. previous are the hosts of the last
// desired state of a former run.
func (g *StoreGuard) hostsThatWouldLose(set *mirrorSet, of store.Incarnation, older bool, previous []model.HostName) []string {
	global := set.global()
	losing := map[model.HostName]bool{}
	for _, m := range set.byScope {
		for k, v := range m.values {
			switch v := v.(type) {
			case model.Endpoint:
				now, there := m.seen[k].(model.Endpoint)
				if v.Host != g.Host && (!there || now.MAC != v.MAC || now.IPv4 != v.IPv4 || now.IPv6 != v.IPv6 || now.Host != v.Host) {
					losing[v.Host] = true
				}
			case model.Host:
				if _, there := m.seen[k]; !there && v.Name != g.Host {
					losing[v.Name] = true
				}
			}
		}
	}
	if !g.entered() { // what others have is not known any more
		for _, h := range previous {
			losing[h] = true
		}
		for _, v := range global.seen {
			if h, ok := v.(model.Host); ok && h.Name != g.Host {
				losing[h.Name] = true
			}
		}
	}
	var waiting []string
	for h := range losing {
		if row, ok := global.seen[h].(model.Host); ok && row.Store == of.Mark() && !older {
			continue
		}
		waiting = append(waiting, string(h))
	}
	slices.Sort(waiting)
	return waiting
}
