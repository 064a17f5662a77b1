package statemirror

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// LateGrace is how long an endpoint that no attachment needs any more may stay in
// the mirror: the news of its deletion may be on its way.
const LateGrace = 20 * time.Second

// identityGrace is how long an endpoint waits for the record of its identity. One that
// is missing for longer is damage, which is reported as such.
const identityGrace = 2 * time.Second

// Endpoints decides which endpoints of the mirrors the Compiler has. It owns the hidden
// endpoints, and the endpoints that wait for their identity: an endpoint and the record of
// its identity come by two mirrors, in any order. Without the record no rule allows the identity, so
// until then the endpoint stays as it was. Attachments hide, reveal and look up their own.
type Endpoints struct {
	*shared
	mirrors     *mirrorSet
	comp        *compile.Compiler
	services    *closedServices
	hidden      map[model.EndpointKey]time.Time // since when no attachment needs it; zero = one does
	pending     map[model.EndpointKey]pendingEndpoint
	newIdentity bool // identities have come since release
}

type pendingEndpoint struct {
	endpoint model.Endpoint
	since    time.Time
}

// enter enters a change of an endpoint.
func (e *Endpoints) enter(m *mirror, k model.EndpointKey, ch tables.Change) urgency {
	_, hidden := e.hidden[k]
	_, own := m.endpoints[k]
	if ch.Value == nil {
		if own && !hidden {
			e.OnLost()
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
	ep := ch.Value.(model.Endpoint)
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

// set hands an endpoint to the Compiler, now or when its identity is known; one of this host
// when the policies of its tenant are, too.
func (e *Endpoints) set(ep model.Endpoint) {
	e.services.reopen(ep.IPv4, ep.IPv6)
	if e.hasIdentity(ep) && !e.lacksPolicies(ep) {
		delete(e.pending, ep.Key)
		e.comp.SetEndpoint(ep)
		return
	}
	e.pending[ep.Key] = pendingEndpoint{ep, time.Now()}
}

func (e *Endpoints) hasIdentity(ep model.Endpoint) bool {
	return ep.Identity < model.IdentityFirst || ep.Identity > model.IdentityLast || e.comp.Identities.Knows(ep.Key.Network.Tenant, ep.Identity)
}

// lacksPolicies reports whether an endpoint is of this host and the netmaster still leaves out
// its tenant's policies: it has not seen the endpoint yet, or its list is on its way.
func (e *Endpoints) lacksPolicies(ep model.Endpoint) bool {
	rest := e.mirrors.byScope[TenantScope(ep.Key.Network.Tenant)]
	return ep.Host == e.Host && rest != nil && rest.partial
}

func (e *Endpoints) remove(k model.EndpointKey) {
	delete(e.pending, k)
	e.comp.DeleteEndpoint(k)
}

// release hands over the endpoints whose identities have become known.
func (e *Endpoints) release() {
	if !e.newIdentity {
		return
	}
	e.newIdentity = false
	for _, p := range e.pending {
		if e.hasIdentity(p.endpoint) && !e.lacksPolicies(p.endpoint) {
			e.set(p.endpoint)
		}
	}
}

// giveUpIdentities hands over the endpoints that have waited for so long.
func (e *Endpoints) giveUpIdentities(grace time.Duration) {
	for k, p := range e.pending {
		if time.Since(p.since) >= grace && !e.lacksPolicies(p.endpoint) {
			delete(e.pending, k)
			e.comp.SetEndpoint(p.endpoint)
			e.Soon("an identity without a record")
		}
	}
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
		if !since.IsZero() && now.Sub(since) >= max(linger, 2*LateGrace) {
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
			out = append(out, ep)
		}
	}
	return out
}

// own returns an endpoint of this host, if the mirrors hold it.
func (e *Endpoints) own(k model.EndpointKey) (model.Endpoint, bool) {
	m := e.mirrors.endpoints(k.Network)
	if m == nil {
		return model.Endpoint{}, false
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
			out[k] = m.endpoints[k]
		}
	}
	return out
}
