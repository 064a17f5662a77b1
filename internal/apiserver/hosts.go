package apiserver

import (
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

func (s *server) handleHosts() {
	s.handle("GET", "/api/v1/status", s.status)
	s.handle("GET", "/api/v1/hosts", s.hosts)
	s.handle("GET", "/api/v1/hosts/{name}", s.host)
	s.handle("DELETE", "/api/v1/hosts/{name}", s.removeHost)
	s.handle("GET", "/api/v1/endpoints", s.endpoints)
}

func (s *server) hosts(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.control.Hosts(r.Context())
	if err != nil {
		return nil, err
	}
	out, now := make([]api.Host, 0, len(all)), time.Now()
	for _, h := range all {
		out = append(out, hostToAPI(h, now))
	}
	return out, nil
}

func (s *server) host(_ http.ResponseWriter, r *http.Request) (any, error) {
	h, err := s.control.OneHost(r.Context(), model.HostName(r.PathValue("name")))
	if err != nil {
		return nil, err
	}
	return hostToAPI(h, time.Now()), nil
}

func (s *server) removeHost(_ http.ResponseWriter, r *http.Request) (any, error) {
	force, err := boolQuery(r, "force")
	if err != nil {
		return nil, err
	}
	name := model.HostName(r.PathValue("name"))
	n, err := s.control.RemoveHost(r.Context(), name, force)
	if err != nil {
		return nil, err
	}
	s.log.Info("a host was removed", "host", string(name), "endpointsReleased", n)
	return api.HostRemoval{Host: string(name), EndpointsReleased: n}, nil
}

// boolQuery reads a query parameter that is false when it is not there.
func boolQuery(r *http.Request, name string) (bool, error) {
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
		Name: string(h.Name), State: api.HostAway, Ready: st.Ready && h.Alive, LastWord: st.Updated, Age: -1,
		Driver: h.Driver, DriverWhy: st.DriverWhy, Version: st.Version, Control: addrText(h.Control), VTEP: addrText(h.VTEP), VXLANPort: h.VXLANPort,
		Endpoints: h.Endpoints, Attachments: st.Attachments, Ports: st.Ports, Pending: st.Pending, Revision: st.Revision,
		Problems: st.Problems, Error: st.Error, Format: h.Format,
	}
	if h.Alive {
		o.State = api.HostAlive
	}
	if o.Driver == "" {
		o.Driver = st.Driver
	}
	if said := h.LastWord(); !said.IsZero() {
		o.Age = max(0, int64(now.Sub(said)/time.Second))
	}
	for _, c := range st.Conditions {
		o.Conditions = append(o.Conditions, api.Condition{Name: c.Name, Notice: c.Notice, Message: c.Message})
	}
	for name, t := range st.Tables {
		if o.Tables == nil {
			o.Tables = map[string]api.TableFill{}
		}
		o.Tables[name] = api.TableFill(t)
	}
	return o
}

// endpoints lists the endpoints that ?tenant=, ?host=, ?network= and ?group= all
// choose; a network or group is NAME (of any tenant) or TENANT:NAME.
func (s *server) endpoints(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	for name := range q {
		if name != "tenant" && name != "host" && name != "network" && name != "group" {
			return nil, model.InvalidField("query", clip([]byte(name)), "must be tenant, host, network or group")
		}
	}
	tenant, host := model.TenantName(q.Get("tenant")), model.HostName(q.Get("host"))
	if _, ok := v.Tenant(tenant); tenant != "" && !ok {
		return nil, notFound("tenant", string(tenant))
	}
	var list []model.Endpoint
	if host != "" {
		if _, err := s.control.OneHost(r.Context(), host); err != nil {
			return nil, err
		}
		list = v.EndpointsOfHost(host)
	} else {
		list = v.Endpoints(tenant)
	}
	network, networkThere := scoped(q.Get("network"), v.Networks(tenant), func(n model.Network) (model.TenantName, string) { return n.Key.Tenant, string(n.Key.Name) })
	if !networkThere {
		return nil, notFound("network", q.Get("network"))
	}
	group, groupThere := scoped(q.Get("group"), v.Groups(tenant), func(g model.Group) (model.TenantName, string) { return g.Key.Tenant, string(g.Key.Name) })
	if !groupThere {
		return nil, notFound("endpointGroup", q.Get("group"))
	}
	return iter.Seq[any](func(yield func(any) bool) {
		for _, e := range list {
			t := e.Key.Network.Tenant
			if tenant != "" && t != tenant || !network(t, string(e.Key.Network.Name)) || !group(t, string(e.Group)) {
				continue
			}
			o := endpointOper(v, e)
			o.Key = e.Key.String()
			if !yield(o) {
				return
			}
		}
	}), nil
}

// scoped returns what matches a NAME or TENANT:NAME, and whether anything of all
// does; the empty text matches everything.
func scoped[T any](text string, all []T, id func(T) (model.TenantName, string)) (matches func(model.TenantName, string) bool, there bool) {
	if text == "" {
		return func(model.TenantName, string) bool { return true }, true
	}
	tenant, name, qualified := strings.Cut(text, ":")
	if !qualified {
		tenant, name = "", text
	}
	matches = func(t model.TenantName, n string) bool {
		return n == name && (tenant == "" || string(t) == tenant)
	}
	for _, x := range all {
		if matches(id(x)) {
			return matches, true
		}
	}
	return nil, false
}
