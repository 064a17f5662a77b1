package statemirror

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// OrphanGrace is how long an endpoint that no attachment needs any more may stay in
// the mirror: the news of its deletion may be on its way.
const OrphanGrace = 20 * time.Second

// Endpoints decides which endpoints of the mirrors the Compiler has. It owns the hidden
// endpoints, and the endpoints that are pending. An endpoint and the record of its identity
// are in two mirrors, which are in any order. Without the record no rule allows the
// identity, so the endpoint stays as it was until the record comes. The record is of the
// endpoint's commit or an earlier one: where the mirror of the tenant has reached that commit
// without it, it is damaged, and rules that deny take the endpoint for a peer. No time
// decides. Attachments hide, reveal and look up their own endpoints.
type Endpoints struct {
	*shared
	mirrors  *mirrorSet
	comp     *compile.Compiler
	services *closedServices
	hidden   map[model.EndpointKey]time.Time // since when no attachment needs it; zero = one does
	pending  map[model.EndpointKey]pendingEndpoint
}

// endpointRow is an endpoint with the revision of its last write; 0 = that is not known, and
// all that it needs has been read.
type endpointRow struct {
	model.Endpoint
	mod store.Revision
}

type pendingEndpoint struct {
	endpointRow
	overdue bool // it was pending a second ago
}

// enter enters a change of an endpoint.
func (e *Endpoints) enter(m *mirror, k model.EndpointKey, ch tables.Change) urgency {
	_, hidden := e.hidden[k]
	_, own := m.endpoints[k]
	if ch.Value == nil {
		if own && !hidden {
			e.Agent.OnLost()
		}
		e.mirrors.reconsider = e.mirrors.reconsider || own
		delete(m.endpoints, k)
		e.remove(k)
		switch {
		case hidden:
			return irrelevant
		case own:
			return atOnce
		}
		return whenQuiet
	}
	ep := endpointRow{ch.Value.(model.Endpoint), ch.Mod}
	e.mirrors.reconsider = e.mirrors.reconsider || own != (ep.Host == e.Host)
	if ep.Host != e.Host {
		delete(m.endpoints, k)
	} else if m.endpoints[k] = ep; hidden {
		return irrelevant
	}
	e.set(ep)
	if own || ep.Host == e.Host {
		return atOnce
	}
	return whenQuiet
}

// set hands an endpoint to the Compiler, now or when it waits for nothing any more.
func (e *Endpoints) set(ep endpointRow) {
	e.services.reopen(ep.IPv4, ep.IPv6)
	if e.awaits(ep) == "" {
		delete(e.pending, ep.Key)
		e.comp.SetEndpoint(ep.Endpoint)
		return
	}
	e.pending[ep.Key] = pendingEndpoint{endpointRow: ep}
}

// awaits returns what an endpoint waits for: the record of its identity, and one of this
// host the policies of its tenant. A netmaster leaves those out which has not seen the
// endpoint yet, or whose list is on its way. Empty = nothing.
func (e *Endpoints) awaits(ep endpointRow) string {
	t := ep.Key.Network.Tenant
	rest := e.mirrors.byScope[TenantScope(t)]
	switch {
	case ep.Host == e.Host && rest != nil && rest.partial:
		return fmt.Sprintf("the policies of tenant %s, which netmaster does not pass on yet", t)
	case ep.Identity < model.IdentityFirst, ep.Identity > model.IdentityLast, e.comp.Identities.Knows(t, ep.Identity):
		return ""
	case ep.mod == 0, rest != nil && rest.rev >= ep.mod: // the record is missing for good
		return ""
	}
	return fmt.Sprintf("the record of its identity %d, until tenant %s is known up to revision %d", ep.Identity, t, ep.mod)
}

func (e *Endpoints) remove(k model.EndpointKey) {
	delete(e.pending, k)
	e.comp.DeleteEndpoint(k)
}

// release hands over the pending endpoints that wait for nothing any more.
func (e *Endpoints) release() (matters urgency) {
	for _, p := range e.pending {
		if e.awaits(p.endpointRow) == "" {
			e.set(p.endpointRow)
			matters = atOnce
		}
	}
	return matters
}

// releaseRead is release when all records that there are have been read.
func (e *Endpoints) releaseRead() {
	for k, p := range e.pending {
		p.mod = 0
		e.pending[k] = p
	}
	e.release()
}

// markOverdue has problems tell of the endpoints that are pending for a second or longer.
func (e *Endpoints) markOverdue() {
	for k, p := range e.pending {
		if !p.overdue {
			p.overdue = true
			e.pending[k] = p
			e.Agent.Soon("a pending endpoint")
		}
	}
}

func (e *Endpoints) problems() (out []compile.Problem) {
	for k, p := range e.pending {
		if what := e.awaits(p.endpointRow); p.overdue && what != "" {
			out = append(out, compile.Problem{Object: "endpoint " + k.String(), Text: "it stays as it was, and waits for " + what})
		}
	}
	return out
}

// Hide keeps a local endpoint out of the desired state: it is not plumbed yet, or not any
// more, whatever the store says. Reveal undoes it.
func (e *Endpoints) Hide(k model.EndpointKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hidden[k] = time.Time{}
	if _, ok := e.own(k); ok {
		e.remove(k)
	}
}

// Reveal ends a Hide: the endpoint is in the desired state again as the store has it.
func (e *Endpoints) Reveal(k model.EndpointKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.hidden, k)
	if ep, ok := e.own(k); ok {
		e.set(ep)
	}
}

// Forget says that no attachment needs a hidden endpoint any more. It stays
// hidden for a while, and for as long as it is in the mirror.
func (e *Endpoints) Forget(k model.EndpointKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, hidden := e.hidden[k]; hidden {
		e.hidden[k] = time.Now()
	}
}

// dropForgotten drops the endpoints that were forgotten a while ago and are not in
// the mirror. The lock is not held.
func (e *Endpoints) dropForgotten(now time.Time, linger time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, since := range e.hidden {
		if m := e.mirrors.endpoints(k.Network); m != nil && m.ready {
			if _, there := m.endpoints[k]; there {
				continue
			}
		}
		if !since.IsZero() && now.Sub(since) >= max(linger, 2*OrphanGrace) {
			delete(e.hidden, k)
		}
	}
}

// Orphans returns the endpoints that were forgotten a while ago and are still in the
// mirror.
func (e *Endpoints) Orphans(now time.Time, grace time.Duration) []model.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []model.Endpoint
	for k, since := range e.hidden {
		if since.IsZero() || now.Sub(since) < grace {
			continue
		}
		if ep, there := e.own(k); there {
			out = append(out, ep.Endpoint)
		}
	}
	return out
}

// own returns an endpoint of this host, if the mirrors hold it.
func (e *Endpoints) own(k model.EndpointKey) (endpointRow, bool) {
	m := e.mirrors.endpoints(k.Network)
	if m == nil {
		return endpointRow{}, false
	}
	ep, ok := m.endpoints[k]
	return ep, ok
}

// Missing returns those of this host's endpoints that the store, as far as it is
// known, does not have.
func (e *Endpoints) Missing(all []model.EndpointKey) map[model.EndpointKey]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	missing := map[model.EndpointKey]bool{}
	for _, k := range all {
		if m := e.mirrors.endpoints(k.Network); m != nil && m.ready {
			if _, there := m.endpoints[k]; !there {
				missing[k] = true
			}
		}
	}
	return missing
}

// Groups returns the group of each of this host's endpoints; "" for an endpoint
// that is not known.
func (e *Endpoints) Groups(of []model.EndpointKey) []model.GroupName {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]model.GroupName, len(of))
	for i, k := range of {
		ep, _ := e.own(k)
		out[i] = ep.Group
	}
	return out
}

// Get returns endpoints by their keys. Unknown endpoints have no addresses.
func (e *Endpoints) Get(of []model.EndpointKey) map[model.EndpointKey]model.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[model.EndpointKey]model.Endpoint, len(of))
	for _, k := range of {
		if m := e.mirrors.endpoints(k.Network); m != nil {
			out[k] = m.endpoints[k].Endpoint
		}
	}
	return out
}
