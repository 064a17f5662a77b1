package statemirror

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// urgency is whether a change matters to the picture, and when.
type urgency int

const (
	irrelevant urgency = iota
	whenQuiet          // an endpoint of another host: they come in bursts, and nothing here waits for them
	atOnce
)

// enterLocked records one change and hands it to the Compiler.
func (c *State) enterLocked(m *mirror, ch tables.Change) urgency {
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
		return c.unconfirmedLocked(m, k, ch)
	}
	if c.isUnconfirmedLocked(ch.Key) {
		return irrelevant
	}
	return c.compileInputLocked(m, ch)
}

// compileInputLocked hands one change to the Compiler.
func (c *State) compileInputLocked(m *mirror, ch tables.Change) urgency {
	switch ch.Key.(type) {
	case model.NetworkKey, model.TenantName, tables.GlobalKey, tables.BgpKey, model.ServiceKey, model.ClusterServiceKey:
		c.reconsider = true
	}
	switch k := ch.Key.(type) {
	case model.NetworkKey:
		enter(ch, m.networks, k, c.comp.SetNetwork, c.comp.DeleteNetwork)
	case model.GroupKey:
		enter(ch, m.groups, k, c.comp.SetGroup, c.comp.DeleteGroup)
	case model.NetProfileKey:
		enter(ch, nil, k, c.comp.SetNetProfile, c.comp.DeleteNetProfile)
	case model.PolicyKey:
		enter(ch, nil, k, c.comp.SetPolicy, c.comp.DeletePolicy)
	case model.RuleKey:
		enter(ch, nil, k, c.comp.SetRule, c.comp.DeleteRule)
	case model.EndpointKey:
		return c.enterEndpointLocked(m, k, ch)
	case tables.IdentityKey:
		enter(ch, nil, k, c.comp.SetIdentity, func(k tables.IdentityKey) { c.comp.DeleteIdentity(k.Tenant, k.ID) })
		c.newIdentity = c.newIdentity || ch.Value != nil
	case model.ClusterServiceKey:
		enter(ch, nil, k, c.setClusterServiceLocked, func(k model.ClusterServiceKey) { c.closeServiceLocked(k) })
	case model.ServiceSliceKey:
		enter(ch, nil, k, c.comp.SetServiceSlice, c.comp.DeleteServiceSlice)
	case model.NodeName:
		enter(ch, nil, k, c.comp.SetClusterNode, c.comp.DeleteClusterNode)
	case tables.ServiceRangesKey:
		enter(ch, nil, k, c.comp.SetServiceRanges, func(tables.ServiceRangesKey) { c.comp.SetServiceRanges(model.ServiceRanges{}) })
	case model.ServiceKey:
		enter(ch, nil, k, c.setServiceLocked, func(k model.ServiceKey) { c.closeServiceLocked(k) })
	case model.NamespaceName:
		enter(ch, nil, k, c.comp.SetNamespace, c.comp.DeleteNamespace)
	case tables.HostAbsenceKey: // it takes nothing from a picture; who asks Peers may
		enter(ch, c.absences, k, func(tables.HostAbsence) {}, func(tables.HostAbsenceKey) {})
		c.hostsChanged.Tell()
		return irrelevant
	case tables.HostDrainKey:
		c.comp.Hosts.Drain(k.Host, ch.Value != nil)
	case tables.BgpKey:
		enter(ch, c.bgps, k, func(model.Bgp) {}, func(tables.BgpKey) {})
		if k.Host == c.Host {
			c.comp.Services.SpeaksBGP(ch.Value != nil)
		}
	case model.HostName:
		if k == c.Host {
			c.OnOwnHost()
			if c.unrecorded = ch.Value == nil; c.unrecorded {
				return atOnce // the picture keeps the last record
			}
		}
		if now, _ := ch.Value.(model.Host); now.Control != c.hosts[k].Control || now.VTEP != c.hosts[k].VTEP {
			c.hostsVersion++
		}
		c.hostsChanged.Tell()
		enter(ch, c.hosts, k, c.comp.SetHost, c.comp.DeleteHost)
	case model.TenantName:
		was := c.tenants[k]
		enter(ch, c.tenants, k, c.comp.SetTenant, c.comp.DeleteTenant)
		now := c.tenants[k]
		if c.OnInfra != nil && !slices.Equal(now.Infra, was.Infra) {
			c.OnInfra()
		}
		if c.mirrors[TenantScope(k)] == nil || now.Router == was.Router && slices.Equal(now.Shared, was.Shared) && slices.Equal(now.Clients, was.Clients) {
			return irrelevant
		}
	case tables.GlobalKey:
		c.global = nil
		enter(ch, nil, k, func(g model.Global) { c.setGlobalLocked(c.mode.follow(g)) }, func(tables.GlobalKey) { c.comp.DeleteGlobal() })
	}
	return atOnce
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

func (c *State) enterEndpointLocked(m *mirror, k model.EndpointKey, ch tables.Change) urgency {
	_, hidden := c.hidden[k]
	_, own := m.endpoints[k]
	if ch.Value == nil {
		if own && !hidden {
			c.OnLost()
		}
		c.reconsider = c.reconsider || own
		delete(m.endpoints, k)
		c.removeEndpointLocked(k)
		switch {
		case hidden:
			return irrelevant
		case own:
			return atOnce
		}
		return whenQuiet
	}
	e := ch.Value.(model.Endpoint)
	c.reconsider = c.reconsider || own != (e.Host == c.Host)
	if e.Host != c.Host {
		delete(m.endpoints, k)
	} else if m.endpoints[k] = e; hidden {
		return irrelevant
	}
	c.setEndpointLocked(e)
	if own || e.Host == c.Host {
		return atOnce
	}
	return whenQuiet
}
