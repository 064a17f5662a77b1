package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	health "github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Hosts tells of hosts, and drains, evicts and removes them. It has no state of its own.
type Hosts struct {
	commits      *Committer
	hostView     *HostView
	endpointView *EndpointView
	heartbeats   *liveness.Heartbeats
	endpoints    *Endpoints
}

// HostState is all that is known of a host.
type HostState struct {
	model.Host                 // Name always; the rest only when Known
	Known      bool            // an agent has told of it
	Alive      bool            // its agent is registered, and not known to be silent
	Registered bool            // its agent has said so within cluster.ServiceTTL
	HasStatus  bool            // its agent has told a status
	Status     HostStatus      // the last one
	Endpoints  int             // that live there
	VXLANPort  int             // UDP port of its tunnels; 0 = it is not registered
	Draining   bool            // services send its providers no new connections, as an operator said
	Away       tables.AwayTime // while netmasters count how long it is away
	Addresses  tables.HostAddresses
}

// LastStatusTime returns when the host's agent told its status last, by the host's
// clock; zero = never.
func (h HostState) LastStatusTime() time.Time {
	t, err := time.Parse(time.RFC3339, h.Status.Updated)
	if !h.HasStatus || err != nil {
		return time.Time{}
	}
	return t
}

// List returns all hosts that a record, a status, a registration, an endpoint or
// a word that they drain names, by name. A host that is away stays until somebody removes it.
// Within a Scope it returns the hosts that have endpoints of the tenants, and of those the
// state and that number alone.
func (hs *Hosts) List(ctx context.Context, a Actor) ([]HostState, error) {
	v, err := hs.commits.View(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := cluster.RegisteredHosts(ctx, hs.commits.store)
	if err != nil {
		return nil, err
	}
	silent, err := hs.heartbeats.Overdue(ctx, slices.Collect(maps.Keys(registered))...)
	if err != nil {
		return nil, err
	}
	statuses, err := hs.HostStatuses(ctx)
	if err != nil {
		return nil, err
	}
	all := map[model.HostName]HostState{}
	for _, name := range v.Hosts.HostNames() {
		all[name] = HostState{Host: model.Host{Name: name}}
	}
	for name := range registered {
		all[name] = HostState{Host: model.Host{Name: name}}
	}
	for _, d := range v.Hosts.drainRows.list("") {
		all[d.Host] = HostState{Host: model.Host{Name: d.Host}}
	}
	for _, st := range statuses {
		all[st.Host] = HostState{Host: model.Host{Name: st.Host}, HasStatus: true, Status: st}
	}
	out := make([]HostState, 0, len(all))
	scope := a.Scope()
	own := v.Endpoints.CountByHost(scope)
	for _, h := range all {
		h.complete(v, registered, silent)
		if scope.Limited() {
			if h = h.within(own); h.Endpoints == 0 {
				continue
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b HostState) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out, nil
}

// complete adds to a host's name and status what the view, the registry and who
// hears it know.
func (h *HostState) complete(v *View, registered map[model.HostName]cluster.Service, silent map[model.HostName]bool) {
	if rec, known := v.Hosts.Get(h.Name); known {
		h.Host, h.Known = rec, true
	}
	reg, ok := registered[h.Name]
	h.Registered, h.VXLANPort = ok, reg.Port
	h.Alive = ok && !silent[h.Name]
	h.Endpoints = v.Endpoints.CountOfHost(h.Name)
	h.Draining = v.Hosts.HostDrains(h.Name)
	h.Addresses = v.Hosts.HostAddresses(h.Name)
	if !h.Alive {
		h.Away, _ = v.Hosts.AwayTime(h.Name)
	}
}

// within returns the part of a host that a user sees whose endpoints there are counted.
func (h HostState) within(endpoints map[model.HostName]int) HostState {
	return HostState{
		Host: model.Host{Name: h.Name}, Known: h.Known, Alive: h.Alive, Registered: h.Registered, HasStatus: h.HasStatus,
		Status:    HostStatus{Host: h.Name, Ready: h.Status.Ready, Updated: h.Status.Updated},
		Endpoints: endpoints[h.Name], Draining: h.Draining, Away: tables.AwayTime{Seconds: h.Away.Seconds},
	}
}

// Get returns one of List, or ErrNotFound. Of the others it reads the
// registrations only, which lie by address.
func (hs *Hosts) Get(ctx context.Context, a Actor, k model.HostName) (HostState, error) {
	v, err := hs.commits.View(ctx)
	if err != nil {
		return HostState{}, err
	}
	registered, err := cluster.RegisteredHosts(ctx, hs.commits.store)
	if err != nil {
		return HostState{}, err
	}
	silent, err := hs.heartbeats.Overdue(ctx, k)
	if err != nil {
		return HostState{}, err
	}
	kv, err := hs.commits.store.Get(ctx, tables.HostStatuses.Key(k))
	if err != nil {
		return HostState{}, fmt.Errorf("read the status of host %q: %w", k, err)
	}
	h := HostState{Host: model.Host{Name: k}}
	status, err := tables.HostStatuses.Decode(kv)
	if err != nil {
		hs.commits.log.Error("a host's status cannot be read", "key", kv.Key, "error", err)
	}
	h.Status, h.HasStatus = status.Value, status.Exists()
	h.complete(v, registered, silent)
	if k == "" || !h.Known && !h.HasStatus && !h.Registered && !h.Draining && h.Endpoints == 0 {
		return HostState{}, a.Scope().hostNotFound(k)
	}
	if scope := a.Scope(); scope.Limited() {
		if h = h.within(v.Endpoints.CountByHost(scope)); h.Endpoints == 0 {
			return HostState{}, scope.hostNotFound(k)
		}
	}
	return h, nil
}

// RemoveHost forgets a host that will not come back: its record, which ends the
// tunnels of all others to it, its status and its BGP settings. It refuses a
// host that is alive (ErrInUse), and one that has endpoints unless force is set,
// which releases them; it tells how many those were. Nothing calls it by itself:
// a host that is only unreachable keeps its containers (known fault 38).
func (hs *Hosts) RemoveHost(ctx context.Context, a Actor, k model.HostName, force bool) (int, store.Revision, error) {
	eps, err := hs.endpointsToRelease(ctx, a, k, force, "rm")
	if err != nil {
		return 0, 0, err
	}
	u := hs.commits.as(a)
	released, err := hs.endpoints.deleteEndpoints(ctx, u, eps, checkStillAway(k))
	if err != nil {
		return released, u.rev, partlyReleased("remove", k, released, len(eps), err)
	}
	_, err = u.update(ctx, fmt.Sprintf("remove host %q", k), func(tx store.Tx) error {
		// An agent writes its host's record before it registers, so that one that
		// comes back now either is seen here or changes what is compared.
		if _, err := tables.Hosts.Find(tx, k); err != nil {
			return err
		}
		registered, err := tx.Range(cluster.AgentScope, 0)
		if err != nil {
			return err
		}
		for _, kv := range registered {
			if s, ok := cluster.DecodeAgent(kv); ok && s.Hostname == string(k) {
				return isAlive(k)
			}
		}
		tables.Hosts.Delete(tx, k)
		tables.HostStatuses.Delete(tx, k)
		tables.HostAddressRows.Delete(tx, tables.HostAddressesKey{Host: k})
		tables.Bgps.Delete(tx, tables.BgpKey{Host: k})
		tables.HostDrains.Delete(tx, tables.HostDrainKey{Host: k})
		tables.AwayTimes.Delete(tx, tables.AwayTimeKey{Host: k})
		return nil
	})
	return released, u.rev, err
}

// endpointsToRelease returns the endpoints of a host that is to be given up. It refuses one that is
// alive, and, unless force is set, one that has endpoints; verb is netctl's.
func (hs *Hosts) endpointsToRelease(ctx context.Context, a Actor, k model.HostName, force bool, verb string) ([]model.Endpoint, error) {
	h, err := hs.Get(ctx, a, k)
	if err != nil {
		return nil, err
	}
	if h.Registered {
		return nil, isAlive(k)
	}
	v, err := hs.commits.View(ctx)
	if err != nil {
		return nil, err
	}
	eps := v.Endpoints.OfHost(k)
	others := slices.DeleteFunc(slices.Clone(eps), model.Endpoint.OfHost) // these go with the host
	if len(others) > 0 && !force {
		return nil, hasEndpoints(k, others, verb)
	}
	return eps, nil
}

// hasEndpoints refuses to give up what is on a host without being told so twice.
func hasEndpoints(k model.HostName, eps []model.Endpoint, verb string) error {
	const few = 5
	var names []string
	for _, e := range eps[:min(few, len(eps))] {
		names = append(names, e.Key.String())
	}
	if more := len(eps) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return model.Errorf(model.ErrInUse, "host %q has %s (%s): if its containers are permanently gone, --force releases them (netctl host %s --force)",
		k, health.Count(len(eps), "endpoint"), strings.Join(names, ", "), verb)
}

func isAlive(k model.HostName) error {
	return model.Errorf(model.ErrInUse, "host %q is alive: stop netplugin there first; it counts as away %d s later", k, int(cluster.ServiceTTL/time.Second))
}
