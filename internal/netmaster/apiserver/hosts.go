package apiserver

import (
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// hostHandlers answers for hosts, and takes what their agents report.
type hostHandlers struct {
	*serverContext
	// evictAfter is Config.EvictAfter.
	evictAfter time.Duration
}

func (s *server) handleHosts() {
	s.router.handle("GET", "/api/v1/status", access.View|access.WithinScope, nil, s.diagnosis.status)
	s.router.handle("GET", "/api/v1/hosts", access.View|access.WithinScope, nil, s.hosts.hosts)
	s.router.handle("GET", "/api/v1/hosts/{name}", access.View|access.WithinScope, nil, s.hosts.host)
	s.router.handle("DELETE", "/api/v1/hosts/{name}", access.AdminOnly, namedResource("host", "name"), s.hosts.removeHost)
	s.router.handle("POST", "/api/v1/hosts/{name}/evict", access.AdminOnly, namedResource("host", "name"), s.hosts.evictHost)
	s.router.handle("POST", "/api/v1/hosts/{name}/drain", access.AdminOnly, namedResource("host", "name"), s.hosts.hostDrainer(true))
	s.router.handle("DELETE", "/api/v1/hosts/{name}/drain", access.AdminOnly, namedResource("host", "name"), s.hosts.hostDrainer(false))
	s.router.handle("POST", "/api/v1/hosts/{name}/addresses/{address}", access.AdminOnly, ofHostAddress, s.hosts.hostAddress(true))
	s.router.handle("DELETE", "/api/v1/hosts/{name}/addresses/{address}", access.AdminOnly, ofHostAddress, s.hosts.hostAddress(false))
}

func (s *hostHandlers) hosts(_ http.ResponseWriter, r *request) (any, error) {
	all, err := s.control.Hosts.List(r.Context(), r.actor)
	if err != nil {
		return nil, err
	}
	out, now := make([]api.Host, 0, len(all)), time.Now()
	for _, h := range all {
		out = append(out, s.visibleHost(r.scope(), h, now))
	}
	return out, nil
}

func (s *hostHandlers) host(_ http.ResponseWriter, r *request) (any, error) {
	h, err := s.control.Hosts.Get(r.Context(), r.actor, model.HostName(r.PathValue("name")))
	if err != nil {
		return nil, err
	}
	return s.visibleHost(r.scope(), h, time.Now()), nil
}

func (s *hostHandlers) removeHost(_ http.ResponseWriter, r *request) (any, error) {
	force, err := boolQuery(r, "force")
	if err != nil {
		return nil, err
	}
	name := model.HostName(r.PathValue("name"))
	n, rev, err := s.control.Hosts.RemoveHost(r.Context(), r.actor, name, force)
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	s.log.Info("a host was removed", "host", string(name), "endpointsReleased", n)
	return api.HostRemoval{Host: string(name), EndpointsReleased: n}, nil
}

// boolQuery reads a query parameter that is false when it is not there.
func boolQuery(r *request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, model.InvalidField(name, clip([]byte(text)), "must be true or false")
	}
	return b, nil
}

func hostToAPI(h control.HostState, now time.Time) api.Host {
	st := h.Status
	o := api.Host{
		Name: string(h.Name), State: api.HostAway, Ready: st.Ready && h.Alive, LastWord: st.Updated, Age: -1, VerifiedAge: -1,
		Driver: h.Driver, DriverWhy: st.DriverWhy, Version: st.Version, Control: addrText(h.Control), VTEP: addrText(h.VTEP), VXLANPort: h.VXLANPort,
		Endpoints: h.Endpoints, Attachments: st.Attachments, Ports: st.Ports, Pending: st.Pending, Revision: st.Revision,
		Problems: st.Problems, Error: st.Error, Format: h.Format, Draining: h.Draining, AwaySeconds: h.Away.Seconds,
	}
	for _, a := range slices.Concat(h.Addresses.Enrolled, h.Addresses.Added) {
		o.Addresses = append(o.Addresses, a.String())
	}
	if h.Alive {
		o.State = api.HostAlive
	}
	if o.Driver == "" {
		o.Driver = st.Driver
	}
	if said := h.LastStatusTime(); !said.IsZero() {
		o.Age = max(0, int64(now.Sub(said)/time.Second))
		if verified, err := time.Parse(time.RFC3339, st.Verified); err == nil { // by the same clock
			o.VerifiedAge = o.Age + max(0, int64(said.Sub(verified)/time.Second))
		}
	}
	for _, c := range st.Conditions {
		f := condition.HostFinding(o.Name, api.Condition{Name: c.Name, Severity: c.Severity, Message: c.Message})
		o.Conditions = append(o.Conditions, api.Condition{Name: c.Name, Severity: f.Severity, Message: c.Message, Remedy: f.Remedy, Page: f.Page})
	}
	for name, t := range st.Tables {
		if o.Tables == nil {
			o.Tables = map[string]api.TableFill{}
		}
		o.Tables[name] = api.TableFill(t)
	}
	return o
}

// hostAddress adds an address to a host's accepted ones, or removes it.
func (s *hostHandlers) hostAddress(add bool) handler {
	return func(w http.ResponseWriter, r *request) (any, error) {
		if add {
			if err := refuseBody(w, r); err != nil {
				return nil, err
			}
		}
		a, err := netip.ParseAddr(r.PathValue("address"))
		if err != nil {
			return nil, model.InvalidField("address", clip([]byte(r.PathValue("address"))), "must be an address")
		}
		h, rev, err := s.control.HostLeases.SetHostAddress(r.Context(), r.actor, model.HostName(r.PathValue("name")), a, add)
		r.committed(rev)
		if err != nil {
			return nil, err
		}
		return s.hostToAPI(h, time.Now()), nil
	}
}

// endpointsQuery chooses endpoints.
type endpointsQuery struct {
	tenant         model.TenantName
	host           model.HostName
	network, group string
}

func readEndpointsQuery(_ http.ResponseWriter, r *request) (endpointsQuery, error) {
	q := r.URL.Query()
	return endpointsQuery{model.TenantName(q.Get("tenant")), model.HostName(q.Get("host")), q.Get("network"), q.Get("group")}, nil
}

// ofEndpointsQuery is about the endpoints of a tenant and of a host: either is all that
// they are of.
func ofEndpointsQuery(_ *request, q endpointsQuery) (res access.Resource, err error) {
	res.Hosts = []string{string(q.host)}
	if res.Tenants = []string{string(q.tenant)}; q.tenant == "" {
		res.Hint = "choose one tenant's: netctl endpoint ls --tenant NAME"
	}
	return res, nil
}

// ofHostAddress is about one address of a host.
func ofHostAddress(r *request) (access.Resource, error) {
	return access.Resource{Objects: []audit.Object{{Kind: "host", Key: r.PathValue("name") + " " + r.PathValue("address")}}}, nil
}

// endpoints lists the endpoints that ?tenant=, ?host=, ?network= and ?group= all
// choose; a network or group is NAME (of any tenant) or TENANT:NAME.
func (s *endpointHandlers) endpoints(_ http.ResponseWriter, r *request, q endpointsQuery) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	tenant, host := q.tenant, q.host
	if _, ok := v.Tenants.Get(tenant); tenant != "" && !ok {
		return nil, notFound("tenant", string(tenant))
	}
	_, known := v.Hosts.Get(host)
	known = (known || v.Endpoints.CountOfHost(host) > 0) && !r.scope().Limited()
	if host != "" && !known { // it may have told no more than that it is alive, or have nothing of the scope
		if _, err := s.control.Hosts.Get(r.Context(), r.actor, host); err != nil {
			return nil, err
		}
	}
	network, group := parseScoped(q.network, tenant), parseScoped(q.group, tenant)
	networks := find(v, network, func(t model.TenantName, name string) (model.Network, bool) {
		return v.Networks.Get(model.NetworkKey{Tenant: t, Name: model.NetworkName(name)})
	})
	if !network.any && (len(networks) == 0 || tenant != "" && network.tenant != tenant) {
		return nil, notFound("network", q.network)
	}
	groups := find(v, group, func(t model.TenantName, name string) (model.Group, bool) {
		return v.Groups.Get(model.GroupKey{Tenant: t, Name: model.GroupName(name)})
	})
	if !group.any && (len(groups) == 0 || tenant != "" && group.tenant != tenant) {
		return nil, notFound("endpointGroup", q.group)
	}
	// The view has them by each of these: no more is looked at than what the
	// narrowest has.
	var list []model.Endpoint
	switch {
	case host != "":
		list = v.Endpoints.OfHost(host)
	case !group.any:
		for _, g := range groups {
			list = append(list, v.Endpoints.OfGroup(g.Key)...)
		}
	case !network.any:
		for _, n := range networks {
			list = append(list, v.Endpoints.OfNetwork(n.Key)...)
		}
	default:
		list = v.Endpoints.List(tenant)
	}
	return iter.Seq[any](func(yield func(any) bool) {
		for _, e := range list {
			t := e.Key.Network.Tenant
			if tenant != "" && t != tenant || !network.matches(t, string(e.Key.Network.Name)) || !group.matches(t, string(e.Group)) {
				continue
			}
			o := endpointOper(v, e)
			o.Key = e.Key.String()
			if !yield(visibleTo(r.scope(), o)) {
				return
			}
		}
	}), nil
}

// scoped is what a filter means: objects of a name, of one tenant or ("") of
// any; or any object.
type scoped struct {
	tenant model.TenantName
	name   string
	any    bool
}

// parseScoped reads NAME (of the given tenant) or TENANT:NAME; the empty text
// means any object.
func parseScoped(text string, tenant model.TenantName) scoped {
	t, name, qualified := strings.Cut(text, ":")
	switch {
	case !qualified:
		return scoped{tenant: tenant, name: text, any: text == ""}
	case t == "":
		return scoped{tenant: tenant, name: name}
	}
	return scoped{tenant: model.TenantName(t), name: name}
}

func (s scoped) matches(t model.TenantName, name string) bool {
	return s.any || name == s.name && (s.tenant == "" || t == s.tenant)
}

// find returns the objects that are meant, but for any, in order of tenants.
func find[V any](v *control.View, s scoped, get func(model.TenantName, string) (V, bool)) (out []V) {
	if s.any {
		return nil
	}
	tenants := v.Tenants.List()
	if s.tenant != "" {
		tenants = []model.Tenant{{Name: s.tenant}}
	}
	for _, t := range tenants {
		if x, ok := get(t.Name, s.name); ok {
			out = append(out, x)
		}
	}
	return out
}
