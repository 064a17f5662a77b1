package statemirror

import (
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// urgency is whether a change matters to the desired state, and when.
type urgency int

const (
	irrelevant urgency = iota
	whenQuiet          // an endpoint of another host: they come in bursts, and nothing here waits for them
	atOnce
)

// mirrorRow is a change of a mirror's that is to be entered.
type mirrorRow struct {
	from *mirror
	tables.Change
}

// recordInput hands the records of mirrors to the parts that own them and to the Compiler.
// It owns no state. The State calls it with what is delivered while the store is followed.
type recordInput struct {
	*shared
	mirrors     *mirrorSet
	unconfirmed *UnconfirmedChanges
	endpoints   *Endpoints
	services    *closedServices
	hosts       *HostTable
	settings    *Settings
	comp        *compile.Compiler
}

// enter records one change and hands it to the Compiler.
func (i *recordInput) enter(m *mirror, ch tables.Change) urgency {
	switch ch.Key.(type) {
	case nil, tables.ReplacementKey, tables.StagedKey: // mirror.rules has them
		return irrelevant
	}
	if ch.Value == nil {
		delete(m.values, ch.Key)
	} else {
		m.values[ch.Key] = ch.Value
	}
	if k, ok := ch.Key.(tables.TrialKey); ok {
		rows, matters := i.unconfirmed.enter(m, k, ch, i.mirrors.live)
		i.enterRows(rows)
		return matters
	}
	if i.unconfirmed.has(ch.Key) {
		return irrelevant
	}
	return i.setInput(m, ch)
}

// enterRows hands rows to the Compiler.
func (i *recordInput) enterRows(rows []mirrorRow) {
	for _, r := range rows {
		i.setInput(r.from, r.Change)
	}
}

// enterDifference enters what a mirror has now in place of what it had. The rows are of the
// revision mod or earlier; 0 = all mirrors have been read.
func (i *recordInput) enterDifference(m *mirror, was, now map[any]any, mod store.Revision) {
	for k := range was {
		if _, there := now[k]; !there {
			i.enter(m, tables.Change{Key: k})
		}
	}
	for k, v := range now {
		if old, had := was[k]; !had || !reflect.DeepEqual(old, v) {
			i.enter(m, tables.Change{Key: k, Value: v, Mod: mod})
		}
	}
}

// setInput hands one change to the Compiler.
func (i *recordInput) setInput(m *mirror, ch tables.Change) urgency {
	comp := i.comp
	switch ch.Key.(type) {
	case model.NetworkKey, model.TenantName, tables.GlobalKey, tables.BgpKey, model.ServiceKey, model.ClusterServiceKey:
		i.mirrors.reconsider = true
	}
	switch k := ch.Key.(type) {
	case model.NetworkKey:
		enter(ch, m.networks, k, comp.SetNetwork, comp.DeleteNetwork)
	case model.GroupKey:
		enter(ch, m.groups, k, comp.SetGroup, comp.DeleteGroup)
	case model.NetProfileKey:
		enter(ch, nil, k, comp.SetNetProfile, comp.DeleteNetProfile)
	case model.PolicyKey:
		enter(ch, nil, k, comp.SetPolicy, comp.DeletePolicy)
	case model.RuleKey:
		enter(ch, nil, k, comp.SetRule, comp.DeleteRule)
	case model.EndpointKey:
		return i.endpoints.enter(m, k, ch)
	case tables.IdentityKey:
		enter(ch, nil, k, comp.SetIdentity, func(k tables.IdentityKey) { comp.DeleteIdentity(k.Tenant, k.ID) })
	case model.ClusterServiceKey:
		enter(ch, nil, k.ServiceKey(), i.services.set, func(k model.ServiceKey) { i.services.close(k, i.mirrors.live) })
	case model.ServiceSliceKey:
		enter(ch, nil, k, comp.SetServiceSlice, comp.DeleteServiceSlice)
	case model.NodeName:
		enter(ch, nil, k, comp.SetClusterNode, comp.DeleteClusterNode)
	case tables.ServiceRangesKey:
		enter(ch, nil, k, comp.SetServiceRanges, func(tables.ServiceRangesKey) { comp.SetServiceRanges(model.ServiceRanges{}) })
	case model.ServiceKey:
		enter(ch, nil, k, i.services.set, func(k model.ServiceKey) { i.services.close(k, i.mirrors.live) })
	case model.NamespaceName:
		enter(ch, nil, k, comp.SetNamespace, comp.DeleteNamespace)
	case tables.AwayTimeKey: // it takes nothing from a desired state; who asks Peers may
		i.hosts.setAway(ch, k)
		return irrelevant
	case tables.HostDrainKey:
		comp.Hosts.SetDrained(k.Host, ch.Value != nil)
	case tables.BgpKey:
		i.hosts.setBgp(ch, k)
		if k.Host == i.Host {
			comp.Services.SpeaksBGP(ch.Value != nil)
		}
	case model.HostName:
		i.setHost(k, ch)
	case model.TenantName:
		return i.setTenant(k, ch)
	case tables.GlobalKey:
		i.settings.global = nil
		enter(ch, nil, k, func(g model.Global) { i.settings.setGlobal(i.settings.follow(g)) }, func(tables.GlobalKey) { comp.DeleteGlobal() })
	}
	return atOnce
}

func (i *recordInput) setHost(k model.HostName, ch tables.Change) {
	if k == i.Host {
		i.Agent.OnOwnHost()
	}
	h, is := ch.Value.(model.Host)
	switch {
	case !i.hosts.setHost(k, h, is):
	case is:
		i.comp.SetHost(h)
	default:
		i.comp.DeleteHost(k)
	}
}

func (i *recordInput) setTenant(k model.TenantName, ch tables.Change) urgency {
	tenants := i.settings.tenants
	was := tenants[k]
	enter(ch, tenants, k, i.comp.SetTenant, i.comp.DeleteTenant)
	now := tenants[k]
	if !slices.Equal(now.Infra, was.Infra) {
		i.Agent.OnInfra()
	}
	if i.mirrors.byScope[TenantScope(k)] == nil || now.Router == was.Router && slices.Equal(now.Shared, was.Shared) && slices.Equal(now.Clients, was.Clients) {
		return irrelevant
	}
	return atOnce
}

// setFollowed tells the Compiler that all endpoints of a mirror have been entered, or
// are followed no longer.
func (i *recordInput) setFollowed(m *mirror, is bool) {
	switch {
	case m.part.All:
		i.comp.Interest.SetAllFollowed(m.part.Tenant, is)
	case m.part.Network != "":
		i.comp.Interest.SetFollowed(m.part.network(), is)
	}
}

// enter puts a row into, or takes it from, a map (nil = none) and the Compiler.
func enter[K comparable, V any](ch tables.Change, to map[K]V, k K, set func(V), del func(K)) {
	if ch.Value == nil {
		delete(to, k)
		del(k)
		return
	}
	v := ch.Value.(V)
	if to != nil {
		to[k] = v
	}
	set(v)
}
