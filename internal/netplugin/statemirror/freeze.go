package statemirror

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// An empty store, another store, or an older state of the same store is not taken for
// intent. Its records are staged (mirror.seen), the desired state is frozen, and errors and
// conditions say why. The host follows again in one of three cases. The store is as it was.
// Or it has all that runs here, and nothing of other hosts would be lost. Or it succeeds the
// store that was followed, by a restore or by an operator's command: then the agent first
// restores its own missing endpoints, and waits for other hosts to do the same.

// StoreGrace is how long a host waits for others to put their attachments back
// after its own are there.
const StoreGrace = time.Minute

// StorePosition is which store a host follows, and how far it has seen it; it outlives
// the process in the state directory.
type StorePosition struct {
	Version int `json:"version"` // 1
	store.Incarnation
	Revision store.Revision `json:"revision"`        // the highest seen
	Place    string         `json:"place,omitempty"` // likewise, in a store with a journal
	// Older: the store was met in an older state, which by its own writes may
	// reach any revision since.
	Older bool `json:"older,omitempty"`
}

// freeze is why the desired state is frozen.
type freeze struct {
	text string
	// restored: the store succeeds the one that was followed, and what it lacks of
	// this host's attachments is put back.
	restored bool
	ownSince time.Time // since when the store has all of this host's attachments; zero = it has not
	since    time.Time
}

// Owned is what is known of an attachment that stands.
type Owned struct {
	Key      attach.Key
	Endpoint model.EndpointKey
	MAC      model.MAC  // of the container's interface; zero = not known, nor its address
	IPv4     netip.Addr // likewise; invalid = it has none
}

// is tells whether an endpoint is the attachment's: an endpoint of the same name
// may be from before, with another address.
func (o Owned) is(ep model.Endpoint) bool {
	return o.MAC == (model.MAC{}) || ep.MAC == o.MAC && ep.IPv4 == o.IPv4
}

// FrozenMark begins the mark in the record of a host whose desired state is frozen.
const FrozenMark = "held:"

// markLocked is what the host's record says of the store.
func (c *State) markLocked() string {
	switch {
	case c.frozen != nil && c.frozen.ownSince.IsZero():
		if c.position.Mark() == "" {
			return ""
		}
		return FrozenMark + c.position.Mark()
	case c.frozen != nil:
		return c.mirrors[Scope{}].of.Mark()
	}
	return c.position.Mark()
}

// Mark names the store that the host follows; empty = none yet.
func (c *State) Mark() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.markLocked()
}

// Position returns the StorePosition to write down.
func (c *State) Position() StorePosition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

// MayWrite tells whether endpoints may be created and released in the store.
func (c *State) MayWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.frozen == nil || c.frozen.restored:
		return nil
	case c.frozen.text == "":
		return model.Errorf(model.ErrUnavailable, "the cluster's store has not been read completely yet")
	}
	return model.Errorf(model.ErrUnavailable, "%s", c.frozen.text)
}

// listedLocked notes which store a list of a mirror came from. It freezes the desired state
// when that is not the store that is followed, or is an older state of it: other mirrors
// may have gone on since the list was read, but not since before it began.
func (c *State) listedLocked(m *mirror, b store.Batch) {
	m.of, m.listed, m.older, m.again, m.behind = b.Store, b.Revision, b.Older, false, false
	if c.frozen != nil {
		return
	}
	if (c.position.ID == "" || m.of.Same(c.position.Incarnation)) && m.listed >= m.floor && !m.older {
		if c.position.ID == "" {
			c.position.Incarnation = m.of // it has got its identity meanwhile
		}
		return
	}
	c.frozen = &freeze{since: time.Now()}
	for _, x := range c.mirrors {
		x.seen = maps.Clone(x.values)
		x.behind = m.older && x.ready && x != m
	}
}

// relistFor bounds how long mirrors are waited for that have still to list a store that went
// back, as another one has seen: one that was no further than the store is now lists nothing.
const relistFor = 10 * time.Second

// sinceOf is what the next list of a mirror is judged by: what the mirror itself has seen,
// since others may follow an older state by then; while the picture stands still, and before
// the first list, what is remembered.
func (c *State) sinceOf(m *mirror) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil && m.place != "" {
		return m.place
	}
	return c.position.Place
}

// listAgainLocked lists again the parts that were listed from another store than the
// global part was: some before their store got its identity, and some whose mirrors
// have listed, but had nothing to tell, since a tenant without rows looks the same in
// every store that has no identity.
func (c *State) listAgainLocked() {
	global := c.mirrors[Scope{}]
	if c.frozen == nil || global == nil || !global.ready {
		return
	}
	for _, m := range c.mirrors {
		if m.ready && !m.of.Same(global.of) && !m.again {
			m.again = true
			m.end()
			c.followLocked(m)
		}
	}
}

// identityLocked follows a change of the identity of a store that is being watched:
// all that was read from the store belongs to its new identity.
func (c *State) identityLocked(from *mirror, now store.Incarnation) {
	was := from.of
	for _, m := range c.mirrors {
		if m.of.Same(was) {
			m.of = now
		}
	}
	if c.frozen == nil {
		c.position.Incarnation = now
		c.OnOwnHost()
	}
}

// stage enters a change into the staged records of a mirror.
func stage(staged map[any]any, ch tables.Change) {
	switch {
	case ch.Key == nil:
	case ch.Value == nil:
		delete(staged, ch.Key)
	default:
		staged[ch.Key] = ch.Value
	}
}

// judgeLocked decides whether to follow what the mirrors deliver.
func (c *State) judgeLocked() {
	if c.frozen == nil {
		return
	}
	if !c.entered {
		c.subscribeLocked()
	}
	for p := range c.required {
		if m := c.mirrors[p]; m == nil || !m.ready {
			return
		}
	}
	of, listed, lacks := c.mirrors[Scope{}].of, c.mirrors[Scope{}].listed, false
	for _, m := range c.mirrors {
		if m.ready && !m.of.Same(of) {
			return // some still have to list
		}
		if m.ready {
			listed, lacks = min(listed, m.listed), lacks || m.older
		}
	}
	if lacks && time.Since(c.frozen.since) < relistFor && slices.ContainsFunc(slices.Collect(maps.Values(c.mirrors)), func(m *mirror) bool { return m.behind }) {
		return
	}
	wentBack := listed < c.position.Revision || lacks
	own := c.Own()
	missing := c.missingLocked(own)
	c.position.Older = of.ID != "" && of.ID == c.position.ID && (c.position.Older && of.Same(c.position.Incarnation) ||
		of.Epoch < c.position.Epoch || of.Epoch == c.position.Epoch && wentBack)
	older := c.position.Older
	what, restored := "", false
	switch {
	case c.position.ID == "" && c.position.Revision == 0 && (len(own) == 0 || len(missing) < len(own)):
		// The first store that this host meets: it is believed.
	case c.position.ID == "" && c.position.Revision == 0:
		what = fmt.Sprintf("the store (%s) has none of the %d attachments of this host", of, len(own))
	case (c.position.ID == "" || of.Same(c.position.Incarnation)) && !older && !wentBack:
		// As it was.
	case of.Succeeds(c.position.Incarnation):
		what, restored = fmt.Sprintf("the store was restored: it is %s, since %s", of, of.Since), true
	case of.ID == "" && c.position.ID == "":
		what = fmt.Sprintf("the store has gone back: it is at revision %d, and was at %d", listed, c.position.Revision)
	case of.ID == "":
		what = fmt.Sprintf("the store is empty, or another one: it has no identity, and this host has followed %s", c.position.Incarnation)
	case older && lacks:
		what = fmt.Sprintf("the store is an older state of the one that this host has followed, and goes on from there: it is at epoch %d, revision %d, and lacks what it had at epoch %d, revision %d",
			of.Epoch, listed, c.position.Epoch, c.position.Revision)
	case older:
		what = fmt.Sprintf("the store is an older state of the one that this host has followed: it is at epoch %d, revision %d, and was at epoch %d, revision %d",
			of.Epoch, listed, c.position.Epoch, c.position.Revision)
	default:
		what = fmt.Sprintf("the store is another one: it is %s, and this host has followed %s", of, c.position.Incarnation)
	}
	if what == "" {
		c.takeLocked(of)
		return
	}
	c.frozen.restored = restored
	if len(missing) > 0 {
		c.frozen.ownSince = time.Time{}
		if restored {
			c.tellLocked(fmt.Sprintf("%s; %d of %d attachments of this host are being put back into it, until then the last picture stays", what, len(missing), len(own)))
		} else {
			c.tellLocked(fmt.Sprintf("%s. The last picture stays: put the right store back, or, if this one is to be followed, say 'netctl store adopt'; it lacks %d of %d attachments of this host, such as %s",
				what, len(missing), len(own), missing[0]))
		}
		return
	}
	if c.frozen.ownSince.IsZero() {
		c.frozen.ownSince = time.Now()
		c.OnOwnHost() // tells the others
	}
	// After a restart the older state cannot be told from the right one any more,
	// once it has as many revisions: what runs here decides.
	back := older && !c.entered && !wentBack
	if len(own) > 0 && !back && time.Since(c.frozen.ownSince) < c.Grace {
		if waiting := c.awaitedLocked(of, older); len(waiting) > 0 {
			c.tellLocked(fmt.Sprintf("%s; all of this host is in it, and it waits, until %s at the latest, for what it lacks of hosts %s: until then the last picture stays",
				what, c.frozen.ownSince.Add(c.Grace).UTC().Format(time.RFC3339), strings.Join(waiting, ", ")))
			return
		}
	}
	c.takeLocked(of)
}

// tellLocked says why the picture stands still.
func (c *State) tellLocked(text string) {
	if c.frozen.text != text {
		c.frozen.text = text
		c.OnFreeze(text)
		c.OnOwnHost() // this store may lack the host's record, which says what the host follows
		c.changes.Tell()
	}
}

// missingLocked returns the endpoints of attachments that the store lacks, but for
// those that netmaster has refused to put back.
func (c *State) missingLocked(own []Owned) []model.EndpointKey {
	var missing []model.EndpointKey
	for _, o := range own {
		if !c.hasLocked(o) && !c.refused[o.Endpoint] {
			missing = append(missing, o.Endpoint)
		}
	}
	return missing
}

// hasLocked tells whether the store, as it is now, has an attachment's endpoint. A
// network that is not mirrored is not known to lack it.
func (c *State) hasLocked(o Owned) bool {
	m := c.endpointsLocked(o.Endpoint.Network)
	if m == nil || !m.ready {
		return true
	}
	ep, there := m.endpointLocked(o.Endpoint)
	return there && ep.Host == c.Host && o.is(ep)
}

// endpointLocked returns an endpoint as the store has it now.
func (m *mirror) endpointLocked(k model.EndpointKey) (model.Endpoint, bool) {
	values := m.values
	if m.seen != nil {
		values = m.seen
	}
	ep, ok := values[k].(model.Endpoint)
	return ep, ok
}

// HasStaleEndpoint tells whether the store has an endpoint of this host under an
// attachment's name that is not its own.
func (c *State) HasStaleEndpoint(o Owned) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.endpointsLocked(o.Endpoint.Network)
	if m == nil || !m.ready {
		return false
	}
	ep, there := m.endpointLocked(o.Endpoint)
	return there && ep.Host == c.Host && !o.is(ep)
}

// awaitedLocked returns the other hosts that would lose something if the store were
// followed now, and have not said that it has all of their endpoints.
func (c *State) awaitedLocked(of store.Incarnation, older bool) []string {
	global := c.mirrors[Scope{}]
	losing := map[model.HostName]bool{}
	for _, m := range c.mirrors {
		for k, v := range m.values {
			switch v := v.(type) {
			case model.Endpoint:
				now, there := m.seen[k].(model.Endpoint)
				if v.Host != c.Host && (!there || now.MAC != v.MAC || now.IPv4 != v.IPv4 || now.Host != v.Host) {
					losing[v.Host] = true
				}
			case model.Host:
				if _, there := m.seen[k]; !there && v.Name != c.Host {
					losing[v.Name] = true
				}
			}
		}
	}
	if !c.entered { // what others have is not known any more
		for _, h := range c.previousHosts {
			losing[h] = true
		}
		for _, v := range global.seen {
			if h, ok := v.(model.Host); ok && h.Name != c.Host {
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

// takeLocked enters the staged records and follows from now on.
func (c *State) takeLocked(of store.Incarnation) {
	told := c.frozen.text != ""
	c.frozen, c.entered, c.recalled = nil, true, false
	rev, place := store.Revision(0), ""
	for _, m := range c.mirrors {
		seen := m.seen
		m.older, m.behind = false, false
		if m.seen = nil; m.staged {
			m.values = seen
			if m.rev > rev {
				rev, place = m.rev, m.place
			}
			continue
		}
		for k := range m.values {
			if _, there := seen[k]; !there {
				c.enterLocked(m, tables.Change{Key: k})
			}
		}
		for k, v := range seen {
			if was, there := m.values[k]; !there || !reflect.DeepEqual(was, v) {
				c.enterLocked(m, tables.Change{Key: k, Value: v})
			}
		}
		if m.rev > rev {
			rev, place = m.rev, m.place
		}
		if m.ready {
			c.followsLocked(m, true)
		}
	}
	c.giveUpIdentitiesLocked(0) // all that there is has been read
	c.subscribeLocked()
	c.position.Incarnation, c.position.Revision, c.position.Place, c.position.Older = of, rev, place, false
	c.rev, c.dirty = rev, rev
	c.keepTakenLocked()
	clear(c.refused)
	if told {
		c.Log.Info("the store is followed again", "store", of.String(), "revision", int64(rev))
	}
	c.OnFreeze("")
	c.OnOwnHost()
	c.changes.Tell()
	c.Kick("store")
}

// frozenLocked returns why the desired state is frozen; nil = it is not.
func (c *State) frozenLocked() error {
	switch {
	case c.frozen == nil:
		return nil
	case c.frozen.text == "":
		return errors.New("it has not been read completely yet")
	}
	return errors.New(c.frozen.text)
}

// LostAttachments returns the attachments whose endpoint the store lacks.
func (c *State) LostAttachments() []Owned {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Owned
	for _, o := range c.Own() {
		if !c.hasLocked(o) {
			out = append(out, o)
		}
	}
	return out
}

// Patient tells whether an endpoint that netmaster refuses now may be taken later:
// in a restored store other hosts may have endpoints that they are still to
// release.
func (c *State) Patient() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen != nil && time.Since(c.frozen.since) < c.Grace/2
}

// Refuse notes that netmaster does not take an endpoint back, or takes it again.
func (c *State) Refuse(k model.EndpointKey, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.refused[k] = true
	} else {
		delete(c.refused, k)
	}
	c.judgeLocked()
}

// Stale tells why the store is not followed; nil when it is.
func (c *State) Stale() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.staleLocked()
}

func (c *State) staleLocked() error {
	g := c.mirrors[Scope{}]
	if g == nil {
		return errors.New("the agent has not begun to follow it")
	}
	if g.err != nil {
		return g.err
	}
	var first *mirror
	for _, m := range c.mirrors {
		// What was acquired just now is waited for by who acquired it.
		if m.err != nil && m.ready && (first == nil || m.part.String() < first.part.String()) {
			first = m
		}
	}
	if first != nil {
		return fmt.Errorf("%s: %w", first.part, first.err)
	}
	return c.frozenLocked()
}
