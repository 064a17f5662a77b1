package netctl

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

// ownedByContainer is why an endpoint stays.
const ownedByContainer = "it is a container's, and goes with the container"

// protectedKinds are the kinds of objects whose deletion the server does not refuse while
// endpoints are there that they protect, and endpoints themselves.
var protectedKinds = map[string]bool{"rule": true, "networkPolicy": true, endpointKind: true}

// deletionForecast is what deleting a list of objects would leave.
type deletionForecast struct {
	listed, existing map[api.ObjectName]bool
	remaining        map[api.ObjectName]string // why
	uses             map[api.ObjectName][]api.ObjectName
	users            map[api.ObjectName][]api.ObjectName
}

// forecastDeletion finds which objects of a list would stay if it were deleted, after the objects of
// a dry run were applied.
func forecastDeletion(ctx context.Context, client *api.Client, list []api.ObjectName, after []api.ApplyResult) (*deletionForecast, error) {
	f := &deletionForecast{
		listed: map[api.ObjectName]bool{}, existing: map[api.ObjectName]bool{}, remaining: map[api.ObjectName]string{},
		uses: map[api.ObjectName][]api.ObjectName{}, users: map[api.ObjectName][]api.ObjectName{},
	}
	for _, n := range list {
		f.listed[n] = true
	}
	for _, k := range objectKinds() {
		if k.single != "" || !k.perTenant && k.name != "tenant" && !f.has(k.name) {
			continue
		}
		objects, err := k.list(ctx, client)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if err := f.add(api.ObjectName{Kind: k.name, Key: k.key(object)}, object); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range after {
		if len(r.After) > 0 {
			if err := f.add(api.ObjectName{Kind: r.Kind, Key: r.Key}, r.After); err != nil {
				return nil, err
			}
		}
	}
	for tenant := range f.tenants() {
		endpoints, err := client.Endpoints(ctx, api.EndpointFilter{Tenant: tenant})
		if err != nil && !api.IsNotFound(err) {
			return nil, err
		}
		f.addEndpoints(endpoints)
	}
	for user, used := range f.uses {
		for _, n := range used {
			f.users[n] = append(f.users[n], user)
		}
	}
	for more := true; more; {
		more = false
		for _, n := range list {
			if _, known := f.remaining[n]; known || !f.existing[n] {
				continue
			}
			if why := f.whyRemains(n); why != "" {
				f.remaining[n], more = why, true
			}
		}
	}
	return f, nil
}

// tenants are those of which the list has objects.
func (f *deletionForecast) tenants() map[string]bool {
	out := map[string]bool{}
	for n := range f.listed {
		if slices.Contains(undeletable, n) {
			continue
		}
		if k, err := findShown(n.Kind); err == nil && (k.perTenant || k.name == "tenant") {
			tenant, _, _ := cutKey(n.Key)
			out[tenant] = true
		}
	}
	return out
}

func (f *deletionForecast) addEndpoints(endpoints []api.EndpointOper) {
	for _, e := range endpoints {
		name := api.ObjectName{Kind: endpointKind, Key: e.Key}
		tenant, network, _ := cutKey(e.Key)
		f.existing[name] = true
		f.uses[name] = []api.ObjectName{{Kind: "network", Key: tenant + ":" + network}, {Kind: "endpointGroup", Key: tenant + ":" + e.ServiceName}}
		if f.listed[name] && e.HomingHost != "" {
			f.remaining[name] = ownedByContainer
		}
	}
}

func (f *deletionForecast) has(kind string) bool {
	for n := range f.listed {
		if n.Kind == kind {
			return true
		}
	}
	return false
}

// add notes an object, and what it refers to.
func (f *deletionForecast) add(name api.ObjectName, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	f.existing[name] = true
	f.uses[name] = nil
	if tenant, ok := fields["tenantName"].(string); ok && name.Kind != "tenant" {
		f.uses[name] = append(referencedBy(tenant, fields), api.ObjectName{Kind: "tenant", Key: tenant})
	}
	return nil
}

// referencesOf are the kinds of what fields name in the object's tenant.
var referencesOf = map[string]string{
	"networkName": "network", "fromNetwork": "network", "toNetwork": "network", "network": "network",
	"policies": "policy", "netProfile": "netprofile", "extContractsGrps": "extContractsGroup",
	"endpointGroups": "endpointGroup", "fromEndpointGroup": "endpointGroup", "toEndpointGroup": "endpointGroup", "group": "endpointGroup",
}

func referencedBy(tenant string, fields map[string]any) (out []api.ObjectName) {
	for field, value := range fields {
		kind := referencesOf[field]
		values, ok := value.([]any)
		if !ok {
			values = []any{value}
		}
		for _, v := range values {
			switch v := v.(type) {
			case map[string]any:
				if field != "link-sets" && field != "links" {
					out = append(out, referencedBy(tenant, v)...)
				}
			case string:
				if kind != "" && v != "" {
					out = append(out, api.ObjectName{Kind: kind, Key: tenant + ":" + v})
				}
			}
		}
	}
	return out
}

// whyRemains says what keeps an object of the list; "" = nothing that is known to stay.
func (f *deletionForecast) whyRemains(n api.ObjectName) string {
	for _, user := range f.users[n] {
		if user != n && f.remains(user) {
			return user.Kind + " " + user.Key + " uses it"
		}
	}
	tenant, _, _ := strings.Cut(n.Key, ":")
	switch n.Kind {
	case "rule":
		policy := f.policyOf(n)
		for _, p := range append(f.users[policy], policy) {
			if f.remaining[p] != "" {
				return p.Kind + " " + p.Key + " stays, which it protects"
			}
		}
	case "networkPolicy":
		for p := range f.remaining {
			if of, _, _ := strings.Cut(p.Key, ":"); of == tenant && (p.Kind == "endpointGroup" || p.Kind == "network") {
				return p.Kind + " " + p.Key + " stays, which it may protect"
			}
		}
	}
	return ""
}

// remains reports whether an object that is there is known to be there afterwards.
func (f *deletionForecast) remains(n api.ObjectName) bool {
	if n.Kind == "rule" && f.listed[f.policyOf(n)] {
		n = f.policyOf(n)
	}
	_, stays := f.remaining[n]
	return stays || !f.listed[n] && f.existing[n]
}

// policyOf is the policy of a rule; the zero name = it is no rule.
func (f *deletionForecast) policyOf(n api.ObjectName) api.ObjectName {
	if n.Kind != "rule" {
		return api.ObjectName{}
	}
	tenant, policy, _ := cutKey(n.Key)
	return api.ObjectName{Kind: "policy", Key: tenant + ":" + policy}
}

// namesGroup reports whether a rule names a group that goes.
func (f *deletionForecast) namesGroup(n api.ObjectName) bool {
	for _, used := range f.uses[n] {
		if used.Kind == "endpointGroup" && f.listed[used] && !f.remains(used) {
			return true
		}
	}
	return false
}
