package analysis

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// maxPlanPairs is how many pairs of endpoints that are not alike one plan may be about.
const maxPlanPairs = 1 << 19

// ErrRowsMoved refuses a plan of rows that are no longer as they were read.
var ErrRowsMoved = model.Errorf(model.ErrConflict, "others keep changing the same objects; try again")

// PlannedRow is a row as it was read, and as it would be.
type PlannedRow struct {
	Now  store.KV
	Then []byte // nil = it would not be there
}

// Effects are what planned rows would change for connections.
type Effects struct {
	Revision store.Revision // of the rows that they are compared with
	Flows    []Flow
	Services []ServiceEffect // that change, by key
	closing  closing
	// Unconfirmed are the ids of changes that wait to be confirmed, and are in force before and after.
	Unconfirmed []string
}

// Flow is connections that would open or close.
type Flow struct {
	reachability.Difference
	From, To []string // endpoints' keys, subjects such as group:TENANT/NAME for all of their endpoints, or prefixes
}

// ServiceEffect is a service that changes, with how many backends take its new connections.
type ServiceEffect struct {
	Service       model.ServiceKey
	Before, After int
	Created, Gone bool
	Parts         []string // what changes of a service that stays: addresses, ports, ...
	Clients       []ServiceClients
}

// Plan returns what rows would change, of what the one who asks may know. Nothing of the rows is
// left in the Engine.
func (e *Engine) Plan(ctx context.Context, rows []PlannedRow, scope Scope) (out Effects, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		now, then, err := e.events(rows)
		if err != nil {
			return err
		}
		out.Revision, out.Unconfirmed = r.rev, r.unconfirmed()
		if len(rows) == 0 {
			return nil
		}
		before := r.state
		reverted := false
		defer func() {
			if !reverted { // the next question reads all rows
				e.rows = nil
			}
		}()
		r.apply(then, r.rev)
		state, _ := r.comp.Compile(int64(r.rev))
		after := r.cluster.Clone()
		after.Update(state)
		differences, err := reachability.Compare(ctx, r.cluster, after, scope.Has, maxPlanPairs)
		if err == nil {
			out.Flows = r.namedFlows(slices.DeleteFunc(differences, func(d reachability.Difference) bool { return isUnjoined(d, state) }))
			out.closing = r.closingOf(out.Flows)
			out.Services, err = r.serviceEffects(ctx, [2]desired.Host{before, state}, after, scope)
		}
		r.apply(now, r.rev)
		r.compile()
		reverted = true
		return err
	})
	return out, err
}

// events are the rows as they are and as they would be, if they still are as they were read.
// The caller has the lock: what comes meanwhile is entered afterwards.
func (e *Engine) events(rows []PlannedRow) (now, then []store.Event, err error) {
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = row.Now.Key
	}
	read, rev := e.source.ReadCached(0, keys)
	mods := make(map[string]store.Revision, len(read))
	for _, kv := range read {
		mods[kv.Key] = kv.Mod
	}
	for _, row := range rows {
		if mod := mods[row.Now.Key]; rev == 0 || mod != row.Now.Mod {
			return nil, nil, ErrRowsMoved
		}
		now = append(now, store.Event{KV: row.Now})
		kv := store.KV{Key: row.Now.Key}
		if row.Then != nil {
			kv = store.KV{Key: row.Now.Key, Value: row.Then, Create: store.Pending, Mod: store.Pending}
		}
		then = append(then, store.Event{KV: kv})
	}
	return now, then, nil
}

// isUnjoined reports whether a difference opens nothing but the way by hosts to addresses of
// networks that are no longer joined. No endpoint is reached by it.
func isUnjoined(d reachability.Difference, after desired.Host) bool {
	if !d.Opens || d.Before.Gap != reachability.GapAddress {
		return false
	}
	ofNetwork := func(p netip.Prefix) bool {
		for _, n := range after.Networks.All() {
			if covers(n, p) {
				return true
			}
		}
		return false
	}
	outside := slices.Concat(d.From.Prefixes, d.To.Prefixes)
	return len(outside) > 0 && !slices.ContainsFunc(outside, func(p netip.Prefix) bool { return !ofNetwork(p) })
}

// serviceEffects are the services that differ between two states, and what that means to clients.
func (r *clusterRows) serviceEffects(ctx context.Context, states [2]desired.Host, after *reachability.Cluster, scope Scope) (out []ServiceEffect, err error) {
	n := r.newNames()
	for d := range states[1].Services.Diff(states[0].Services) {
		if !scope.Has(d.Key.Tenant) {
			continue
		}
		x := ServiceEffect{Service: d.Key, Created: !d.Had, Gone: !d.Has}
		if d.Had {
			x.Before = takers(d.Old)
		}
		if d.Has {
			x.After = takers(d.New)
		}
		if d.Had && d.Has {
			x.Parts = differingParts(d.Old, d.New)
		}
		if len(x.Parts) == 0 && !x.Created && !x.Gone {
			continue
		}
		var both [2]*desired.Service
		if d.Had {
			both[0] = d.Old
		}
		if d.Has {
			both[1] = d.New
		}
		if x.Clients, err = r.serviceClients(ctx, r.cluster, after, x, both, scope, n); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b ServiceEffect) int { return cmp.Compare(a.Service.String(), b.Service.String()) })
	return out, nil
}

// differingParts names in what two states of a service differ.
func differingParts(a, b *desired.Service) (out []string) {
	backends := false
	for d := range b.Backends.Diff(a.Backends) {
		backends = backends || !d.Had || !d.Has || *d.Old != *d.New
	}
	for _, part := range []struct {
		name    string
		differs bool
	}{
		{"addresses", a.Network != b.Network || a.IPv4 != b.IPv4 || a.IPv6 != b.IPv6},
		{"ports", !slices.Equal(a.Ports, b.Ports)},
		{"frontends", !slices.EqualFunc(a.Frontends, b.Frontends, desired.Frontend.Equal)},
		{"backends", backends},
		{"traffic policy", a.InternalPolicy != b.InternalPolicy || a.ExternalPolicy != b.ExternalPolicy},
		{"session affinity", a.Affinity != b.Affinity},
		{"exposure", a.Exposed != b.Exposed},
	} {
		if part.differs {
			out = append(out, part.name)
		}
	}
	return out
}

// takers is how many backends take a service's new connections, in either family.
func takers(s *desired.Service) int {
	all := map[model.EndpointKey]bool{}
	for _, v6 := range []bool{false, true} {
		for k := range s.Pool(v6, desired.TrafficCluster) {
			all[k] = true
		}
	}
	return len(all)
}

// namedFlows names the sides of differences: for all endpoints of a group, or of a network, the
// group or network.
func (r *clusterRows) namedFlows(all []reachability.Difference) []Flow {
	n := r.newNames()
	out := make([]Flow, len(all))
	for i, d := range all {
		out[i] = Flow{Difference: d, From: n.of(d.From), To: n.of(d.To)}
	}
	return out
}

// names finds the groups and networks all of whose endpoints a side has.
type names struct {
	rows *clusterRows
	size map[string]int // of groups and networks, by their subjects
}

func (r *clusterRows) newNames() *names {
	n := &names{rows: r, size: map[string]int{}}
	for k, e := range r.endpoints {
		if _, attached := r.cluster.Port(k); attached {
			for _, of := range subjectsOf(e) {
				n.size[of]++
			}
		}
	}
	return n
}

// subjectsOf are the network and the group of an endpoint, as subjects of questions.
func subjectsOf(e *model.Endpoint) []string {
	out := []string{"network:" + string(e.Key.Network.Tenant) + "/" + string(e.Key.Network.Name)}
	if e.Group != "" {
		out = append(out, "group:"+string(e.Key.Network.Tenant)+"/"+string(e.Group))
	}
	return out
}

func (n *names) of(s reachability.Side) (out []string) {
	count := map[string]int{}
	for _, k := range s.Endpoints {
		if e := n.rows.endpoints[k]; e != nil {
			for _, of := range subjectsOf(e) {
				count[of]++
			}
		}
	}
	said := map[string]bool{}
	for _, k := range s.Endpoints {
		name := k.String()
		if e := n.rows.endpoints[k]; e != nil {
			for _, of := range subjectsOf(e) {
				if count[of] > 1 && count[of] == n.size[of] {
					name = of
					break
				}
			}
		}
		if !said[name] {
			said[name] = true
			out = append(out, name)
		}
	}
	for _, p := range s.Prefixes {
		out = append(out, p.String())
	}
	return out
}
