package analysis

import (
	"log/slog"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// clusterRows are the rows that answers depend on, as they are in the store, and what they
// compile to.
type clusterRows struct {
	log       *slog.Logger
	rules     *tables.InForce
	comp      *compile.Compiler
	cluster   *reachability.Cluster
	endpoints map[model.EndpointKey]*model.Endpoint
	networks  map[model.NetworkKey]model.Network
	groups    map[model.GroupKey]model.Group
	spaces    map[model.NamespaceName]model.Namespace
	services  map[model.ServiceKey]model.Service
	hosts     map[model.HostName]model.Host
	tenants   map[model.TenantName]bool
	drained   map[model.HostName]bool
	control   controlRows
	trials    map[tables.TrialKey]map[any]any // the rows that hosts have of unconfirmed changes, by typed key; nil = none
	confirmed map[any]any                     // what can be changed unconfirmed, as it is in its table
	rev       store.Revision
	state     desired.Host // that the rows compile to
	problems  []compile.Problem
	dirty     bool // rows have come since the last compilation
	asserted  *asserted
}

func newClusterRows(log *slog.Logger) *clusterRows {
	r := &clusterRows{
		log: log, rules: tables.NewInForce(), comp: compile.NewWhole(), cluster: reachability.NewCluster(),
		endpoints: map[model.EndpointKey]*model.Endpoint{}, networks: map[model.NetworkKey]model.Network{},
		groups: map[model.GroupKey]model.Group{}, spaces: map[model.NamespaceName]model.Namespace{},
		services: map[model.ServiceKey]model.Service{}, hosts: map[model.HostName]model.Host{}, control: controlRows{}, tenants: map[model.TenantName]bool{},
		drained: map[model.HostName]bool{},
		trials:  map[tables.TrialKey]map[any]any{}, confirmed: map[any]any{},
		asserted: newAsserted(),
	}
	r.cluster.HostOf = r.hostOf
	return r
}

// hostOf is the host that has an endpoint, by its name alone while nothing else is known of it.
func (r *clusterRows) hostOf(k model.EndpointKey) model.Host {
	e := r.endpoints[k]
	if e == nil {
		return model.Host{}
	}
	if h, known := r.hosts[e.Host]; known {
		return h
	}
	return model.Host{Name: e.Host}
}

// apply enters events that bring the rows to a revision.
func (r *clusterRows) apply(events []store.Event, rev store.Revision) {
	for _, e := range events {
		if cluster.IsRegistration(e.KV.Key) {
			if r.control.enter(e) {
				r.dirty, r.asserted.all = true, true
			}
			continue
		}
		ch, err := r.rules.Decode(e)
		if err != nil { // as on hosts: what it described is missing
			r.log.Warn("a record of the store cannot be read: answers are without it", "key", e.KV.Key, "error", err)
		}
		r.take(ch)
	}
	for _, ch := range r.rules.Rest() {
		r.take(ch)
	}
	r.rev = rev
}

// take enters a change of the tables. Hosts have the rows of an unconfirmed change in place of
// those in the tables until it is confirmed or reverted.
func (r *clusterRows) take(ch tables.Change) {
	if k, is := ch.Key.(tables.TrialKey); is {
		for key := range r.trials[k] {
			r.enter(tables.Change{Key: key, Value: r.confirmed[key]})
		}
		delete(r.trials, k)
		if trial, is := ch.Value.(tables.Trial); is {
			r.enterTrial(k, trial)
		}
		return
	}
	if ch.Key != nil && tables.LockKeys(ch.Key) != nil {
		if r.confirmed[ch.Key] = ch.Value; ch.Value == nil {
			delete(r.confirmed, ch.Key)
		}
		for _, rows := range r.trials {
			if _, is := rows[ch.Key]; is {
				return
			}
		}
	}
	r.enter(ch)
}

func (r *clusterRows) enterTrial(k tables.TrialKey, trial tables.Trial) {
	rows := map[any]any{}
	for _, row := range trial.Rows {
		ch, err := row.Change()
		if err != nil || ch.Key == nil { // as on hosts
			r.log.Warn("a record of the store cannot be read: answers are without it", "key", row.Key, "error", err)
			continue
		}
		rows[ch.Key] = ch.Value
		r.enter(ch)
	}
	r.trials[k] = rows
}

// unconfirmed are the ids of the unconfirmed changes that are in force.
func (r *clusterRows) unconfirmed() (out []string) {
	for k := range r.trials {
		out = append(out, k.ID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *clusterRows) enter(ch tables.Change) {
	if k, is := ch.Key.(model.AssertionKey); is {
		r.asserted.set(k, ch.Value)
		return
	}
	r.asserted.note(r, ch)
	c := r.comp
	r.dirty = true
	switch k := ch.Key.(type) {
	case tables.GlobalKey:
		enter(ch, k, nil, func(g model.Global) {
			c.SetGlobal(g)
			c.Egress.SetPrivate(desired.NewHostNAT(g.PvtSubnet).WithIPv6())
		}, func(tables.GlobalKey) { c.DeleteGlobal() })
	case model.TenantName:
		r.tenants[k] = !ch.Deleted()
		enter(ch, k, nil, c.SetTenant, c.DeleteTenant)
	case model.NetworkKey:
		enter(ch, k, r.networks, c.SetNetwork, c.DeleteNetwork)
	case model.GroupKey:
		enter(ch, k, r.groups, c.SetGroup, c.DeleteGroup)
	case model.EndpointKey:
		delete(r.endpoints, k)
		enter(ch, k, nil, func(e model.Endpoint) {
			r.endpoints[k] = &e
			c.SetEndpoint(r.onWhole(e))
		}, c.DeleteEndpoint)
	case tables.IdentityKey:
		enter(ch, k, nil, c.SetIdentity, func(k tables.IdentityKey) { c.DeleteIdentity(k.Tenant, k.ID) })
	case model.NamespaceName:
		enter(ch, k, r.spaces, c.SetNamespace, c.DeleteNamespace)
	case model.PolicyKey:
		enter(ch, k, nil, c.SetPolicy, c.DeletePolicy)
	case model.RuleKey:
		enter(ch, k, nil, c.SetRule, c.DeleteRule)
	case model.ServiceKey:
		enter(ch, k, r.services, c.SetService, c.DeleteService)
	case model.ClusterServiceKey:
		enter(ch, k.ServiceKey(), r.services, c.SetService, c.DeleteService)
	case model.ServiceSliceKey:
		enter(ch, k, nil, c.SetServiceSlice, c.DeleteServiceSlice)
	case model.NodeName:
		enter(ch, k, nil, c.SetClusterNode, c.DeleteClusterNode)
	case tables.ServiceRangesKey:
		enter(ch, k, nil, c.SetServiceRanges, func(tables.ServiceRangesKey) { c.SetServiceRanges(model.ServiceRanges{}) })
	case model.HostName:
		enter(ch, k, r.hosts, c.SetHost, c.DeleteHost)
	case tables.HostDrainKey:
		r.drained[k.Host] = !ch.Deleted()
		for _, e := range r.endpoints {
			if e.Host == k.Host {
				c.SetEndpoint(r.onWhole(*e))
			}
		}
	}
}

// onWhole returns an endpoint as the Compiler has to have it. In its state no host drains, but
// endpoints do.
func (r *clusterRows) onWhole(e model.Endpoint) model.Endpoint {
	e.Draining = e.Draining || r.drained[e.Host]
	return compile.OnWhole(e)
}

// enter puts a row into, or takes it from, a map (nil = none) and the Compiler.
func enter[K comparable, V any](ch tables.Change, k K, rows map[K]V, set func(V), del func(K)) {
	if ch.Deleted() {
		delete(rows, k)
		del(k)
		return
	}
	v := ch.Value.(V)
	if rows != nil {
		rows[k] = v
	}
	set(v)
}

// compile brings the cluster's desired state up to date with the rows.
func (r *clusterRows) compile() {
	if r.dirty {
		named, all := r.control.targets(r.hosts)
		r.comp.Control.Set(named)
		r.cluster.SetControl(all)
		r.state, r.problems = r.comp.Compile(int64(r.rev))
		r.cluster.Update(r.state)
		r.dirty = false
	}
}
