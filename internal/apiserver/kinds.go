package apiserver

import (
	"context"
	"iter"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// kind is one collection under /api/v1.
type kind struct {
	name         string // "networks"
	object, oper any    // zero wire objects, for the description of the API; oper nil = no operational state
	// list and get return wire objects with links.
	list   func(v *control.View) iter.Seq[any]
	get    func(v *control.View, key string) (any, error)
	writer writer
	del    func(ctx context.Context, key string) error
	// inspect returns the operational state; nil = the kind has none.
	inspect func(v *control.View, key string) (any, error)
}

// notFound says that an object does not exist.
func notFound(noun, key string) error {
	return model.Errorf(model.ErrNotFound, "%s %q does not exist", noun, clip([]byte(key)))
}

// del builds a kind's del. A key that cannot be one names nothing.
func del[K any](noun string, parse func(string) (K, error), store func(context.Context, K) error) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		k, err := parse(key)
		if err != nil {
			return notFound(noun, key)
		}
		return store(ctx, k)
	}
}

// find builds a look-up in a view.
func find[K, M any](noun string, parse func(string) (K, error), get func(*control.View, K) (M, bool), to func(*control.View, M) any) func(*control.View, string) (any, error) {
	return func(v *control.View, key string) (any, error) {
		k, err := parse(key)
		if err != nil {
			return nil, notFound(noun, key)
		}
		m, ok := get(v, k)
		if !ok {
			return nil, notFound(noun, key)
		}
		return to(v, m), nil
	}
}

// all builds a kind's list. Objects are made one by one while the answer is
// sent.
func all[M any](ms func(*control.View) []M, to func(*control.View, M) any) func(*control.View) iter.Seq[any] {
	return func(v *control.View) iter.Seq[any] {
		list := ms(v)
		return func(yield func(any) bool) {
			for _, m := range list {
				if !yield(to(v, m)) {
					return
				}
			}
		}
	}
}

// kinds returns the collections that this server has.
func kinds(c *control.Controller, mode string) []kind {
	parseGlobal := func(s string) (string, error) {
		if s != globalName {
			return "", model.ErrNotFound
		}
		return s, nil
	}
	getGlobal := func(v *control.View, _ string) (model.Global, bool) { return v.Global() }
	return append([]kind{
		{
			name: "globals", object: api.Global{}, oper: api.GlobalOper{},
			list: func(v *control.View) iter.Seq[any] {
				return func(yield func(any) bool) {
					if g, ok := v.Global(); ok {
						yield(globalToAPI(g))
					}
				}
			},
			get:     find("global", parseGlobal, getGlobal, func(_ *control.View, g model.Global) any { return globalToAPI(g) }),
			writer:  writes("global", globalFromAPI, whole(c.ChangeGlobal), globalToAPI, without(globalToAPI)),
			del:     del("global", parseGlobal, func(ctx context.Context, _ string) error { return c.DeleteGlobal(ctx) }),
			inspect: find("global", parseGlobal, getGlobal, func(v *control.View, _ model.Global) any { return globalOper(v, mode) }),
		},
		{
			name: "tenants", object: api.Tenant{}, oper: api.TenantOper{},
			list:    all((*control.View).Tenants, tenantView),
			get:     find("tenant", model.ParseTenantName, (*control.View).Tenant, tenantView),
			writer:  writes("tenant", tenantFromAPI, changeTenant(c), tenantToAPI, tenantView),
			del:     del("tenant", model.ParseTenantName, c.DeleteTenant),
			inspect: find("tenant", model.ParseTenantName, (*control.View).Tenant, func(v *control.View, t model.Tenant) any { return tenantOper(v, t.Name) }),
		},
		{
			name: "networks", object: api.Network{}, oper: api.NetworkOper{},
			list:    all(func(v *control.View) []model.Network { return v.Networks("") }, networkView),
			get:     find("network", model.ParseNetworkKey, (*control.View).Network, networkView),
			writer:  writes("network", networkFromAPI, whole(c.ChangeNetwork), networkToAPI, networkView),
			del:     del("network", model.ParseNetworkKey, c.DeleteNetwork),
			inspect: find("network", model.ParseNetworkKey, (*control.View).Network, func(v *control.View, n model.Network) any { return networkOper(v, n) }),
		},
		{
			name: "endpointGroups", object: api.EndpointGroup{}, oper: api.EndpointGroupOper{},
			list:    all(func(v *control.View) []model.Group { return v.Groups("") }, groupView),
			get:     find("endpointGroup", model.ParseGroupKey, (*control.View).Group, groupView),
			writer:  writes("endpointGroup", groupFromAPI, changeGroup(c), groupToAPI, groupView),
			del:     del("endpointGroup", model.ParseGroupKey, c.DeleteGroup),
			inspect: find("endpointGroup", model.ParseGroupKey, (*control.View).Group, func(v *control.View, g model.Group) any { return groupOper(v, g) }),
		},
		{
			name: "policys", object: api.Policy{}, oper: api.PolicyOper{},
			list:    all(func(v *control.View) []model.ContivPolicy { return v.Policies("") }, policyView),
			get:     find("policy", model.ParsePolicyKey, (*control.View).Policy, policyView),
			writer:  writes("policy", policyFromAPI, whole(c.ChangePolicy), policyToAPI, policyView),
			del:     del("policy", model.ParsePolicyKey, c.DeletePolicy),
			inspect: find("policy", model.ParsePolicyKey, (*control.View).Policy, func(v *control.View, p model.ContivPolicy) any { return policyOper(v, p) }),
		},
		{
			name: "rules", object: api.Rule{},
			list:   all(func(v *control.View) []model.Rule { return v.Rules("") }, func(_ *control.View, r model.Rule) any { return ruleToAPI(r) }),
			get:    find("rule", model.ParseRuleKey, (*control.View).Rule, func(_ *control.View, r model.Rule) any { return ruleToAPI(r) }),
			writer: writes("rule", ruleFromAPI, whole(c.ChangeRule), ruleToAPI, without(ruleToAPI)),
			del:    del("rule", model.ParseRuleKey, c.DeleteRule),
		},
	}, moreKinds(c)...)
}

func changeTenant(c *control.Controller) func(model.Tenant, emptied) control.Change {
	return func(t model.Tenant, empty emptied) control.Change { return c.ChangeTenant(t, empty("defaultNetwork")) }
}

func changeGroup(c *control.Controller) func(model.Group, emptied) control.Change {
	return func(g model.Group, empty emptied) control.Change { return c.ChangeGroup(g, empty("cfgdTag")) }
}

// The views below add the links that the server owns, computed from what
// exists.

func tenantView(v *control.View, t model.Tenant) any {
	o := tenantToAPI(t)
	for _, n := range v.Networks(t.Name) {
		addLink(&o.LinkSets.Networks, "network", n.Key.String())
	}
	for _, g := range v.Groups(t.Name) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, p := range v.Policies(t.Name) {
		addLink(&o.LinkSets.Policies, "policy", p.Key.String())
	}
	for _, p := range v.NetProfiles(t.Name) {
		addLink(&o.LinkSets.NetProfiles, "netprofile", p.Key.String())
	}
	for _, p := range v.AppProfiles(t.Name) {
		addLink(&o.LinkSets.AppProfiles, "appProfile", p.Key.String())
	}
	for _, s := range v.Services(t.Name) {
		addLink(&o.LinkSets.Servicelbs, "serviceLB", s.Key.String())
	}
	for _, x := range v.Volumes(t.Name) {
		addLink(&o.LinkSets.Volumes, "volume", x.Key.String())
	}
	for _, p := range v.VolumeProfiles(t.Name) {
		addLink(&o.LinkSets.VolumeProfiles, "volumeProfile", p.Key.String())
	}
	return o
}

func networkView(v *control.View, n model.Network) any {
	o := networkToAPI(n)
	for _, g := range v.GroupsOfNetwork(n.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, s := range v.ServicesOfNetwork(n.Key) {
		addLink(&o.LinkSets.Servicelbs, "serviceLB", s.Key.String())
	}
	return o
}

func groupView(v *control.View, g model.Group) any {
	o := groupToAPI(g)
	if k, ok := v.AppProfileOf(g.Key); ok {
		o.Links.AppProfile = api.Link{Type: "appProfile", Key: k.String()}
	}
	for _, r := range v.RulesOfGroup(g.Key) {
		addLink(&o.LinkSets.MatchRules, "rule", r.Key.String())
	}
	return o
}

func policyView(v *control.View, p model.ContivPolicy) any {
	o := policyToAPI(p)
	for _, g := range v.GroupsOfPolicy(p.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, r := range v.RulesOfPolicy(p.Key) {
		addLink(&o.LinkSets.Rules, "rule", r.Key.String())
	}
	return o
}

// handleKind registers a collection's routes, each with and without trailing
// slash.
func (s *server) handleKind(k kind) {
	base, inspect := "/api/v1/"+k.name, "/api/v1/inspect/"+k.name
	get := func(f func(v *control.View, key string) (any, error)) handler {
		return func(_ http.ResponseWriter, r *http.Request) (any, error) {
			v, err := s.control.View(r.Context())
			if err != nil {
				return nil, err
			}
			return f(v, r.PathValue("key"))
		}
	}
	write := func(w http.ResponseWriter, r *http.Request) (any, error) { return s.write(k, w, r) }
	s.handleOf(&k, "GET", base, get(func(v *control.View, _ string) (any, error) { return k.list(v), nil }))
	s.handleOf(&k, "GET", base+"/{key}", get(k.get))
	s.handleOf(&k, "POST", base+"/{key}", write)
	s.handleOf(&k, "PUT", base+"/{key}", write)
	s.handleOf(&k, "DELETE", base+"/{key}", func(_ http.ResponseWriter, r *http.Request) (any, error) {
		key := r.PathValue("key")
		return key, k.del(r.Context(), key)
	})
	s.handleOf(&k, "GET", inspect+"/{key}", get(func(v *control.View, key string) (any, error) {
		config, err := k.get(v, key)
		if err != nil || k.inspect == nil {
			return struct{ Config any }{config}, err
		}
		oper, err := k.inspect(v, key)
		return struct{ Config, Oper any }{config, oper}, err
	}))
}
