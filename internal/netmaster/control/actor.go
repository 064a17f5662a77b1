package control

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Actor is the client for whom a use-case acts. It limits what the use-case may change and
// show. The zero Actor is a client without any rights: an administrator of no tenant.
type Actor struct {
	admin   bool
	reads   bool               // all tenants' objects
	tenants []model.TenantName // of which it is an administrator
	host    model.HostName     // whose agent it is; empty = it is none
	origin  *Origin            // of an agent's connection; nil = not authenticated
	podOn   model.HostName     // see OfPodOn
	term    *store.Fence       // without which it commits nothing; nil = of no term
	object  string             // of Kubernetes, for which it writes; empty = for users
	// override is why its changes may break assertions; empty = they may not.
	override string
	adopts   bool // whether object takes over what belongs to users
}

// Admin returns the actor whom nothing limits: a cluster administrator, or the program
// itself.
func Admin() Actor { return Actor{admin: true, reads: true} }

// Leader is the netmaster that leads, by the fence of its term. Its controllers act by it.
type Leader store.Fence

// Actor returns the leader as an actor whom nothing else limits: once another leads, its
// commits fail with store.ErrFenced.
func (l Leader) Actor() Actor {
	a := Admin()
	a.term = (*store.Fence)(&l)
	return a
}

// For returns the leader as the author of what an object of Kubernetes says: what it creates
// belongs to the object, and what belongs to another one is model.ErrConflict. With adopt it
// takes over what belongs to users.
func (l Leader) For(object string, adopt bool) Actor {
	a := l.Actor()
	a.object, a.adopts = object, adopt
	return a
}

// Override returns a cluster administrator whose changes may break assertions, for a reason.
func (a Actor) Override(reason string) Actor {
	a.override = reason
	return a
}

// require makes a transaction of a leader depend on its term.
func (a Actor) require(tx store.Tx) {
	if a.term != nil {
		a.term.Require(tx)
	}
}

// Reader returns a client that may show all tenants' objects, and is an administrator of
// some.
func Reader(tenants ...string) Actor {
	a := TenantAdmin(tenants...)
	a.reads = true
	return a
}

// TenantAdmin returns an administrator of tenants, who may show what these have.
func TenantAdmin(tenants ...string) Actor {
	a := Actor{}
	for _, t := range tenants {
		a.tenants = append(a.tenants, model.TenantName(t))
	}
	return a
}

// Agent returns a host's agent. Use cases refuse it, within their transactions, objects
// that belong to another host at that time (model.ErrConflict), whatever was true when the
// request was authorised.
func Agent(h model.HostName) Actor { return Actor{reads: true, host: h} }

// From returns the agent with what its connection proves of its host: KeepHost then takes
// only addresses that are enrolled.
func (a Actor) From(o Origin) Actor {
	a.origin = &o
	return a
}

// OfPodOn returns the actor for CreateEndpoint of a pod that the API server says to be on a
// host.
func (a Actor) OfPodOn(h model.HostName) Actor {
	a.podOn = h
	return a
}

// Scope returns what the actor may read.
func (a Actor) Scope() Scope {
	if a.admin || a.reads {
		return Scope{}
	}
	return Scope{limited: true, tenants: a.tenants}
}

// checkOwnHost refuses an agent the objects of other hosts. An empty host is no host.
func (a Actor) checkOwnHost(what string, has model.HostName) error {
	if a.host != "" && a.host != has {
		return model.Errorf(model.ErrConflict, "%s belongs to host %q now, and an agent may only change endpoints of its own host", what, has)
	}
	return nil
}

// mayReport refuses an agent the reports of other hosts.
func (a Actor) mayReport(h model.HostName) error {
	if a.host != "" && a.host != h {
		return model.Errorf(model.ErrForbidden, "report for host %q: the agent of host %q may only report for its own host", h, a.host)
	}
	return nil
}

// Origin is what the connection proves of the host that sends a report.
type Origin struct {
	From      netip.Addr   // the connection's other end
	Certified []netip.Addr // in the host's certificate
}
