package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// handlePlugin registers what runtimes ask for.
func (s *server) handlePlugin() {
	handleRead(s.router, "POST", "/plugin/createEndpoint", access.OwnHost, endpointBody[api.CreateEndpointRequest], ofCreateEndpoint, s.endpoints.createEndpoint)
	s.router.handle("POST", "/plugin/pod", access.AnyHost, nil, s.endpoints.placePod).verb = verbReport
	s.router.handle("POST", "/plugin/network", access.AnyHost, nil, s.endpoints.placeEndpoint).verb = verbReport
	handleRead(s.router, "POST", "/plugin/deleteEndpoint", access.OwnHost, readBody[api.DeleteEndpointRequest], s.endpoints.ofDeleteEndpoint, s.endpoints.deleteEndpoint)
	handleRead(s.router, "POST", "/plugin/updateEndpoint", access.OwnHost, endpointBody[api.UpdateEndpointRequest], s.endpoints.ofUpdateEndpoint, s.endpoints.updateEndpoint)
	handleRead(s.router, "POST", "/plugin/allocAddress", access.OwnHost, readBody[api.AllocAddressRequest], ofAllocAddress, s.endpoints.allocAddress)
	handleRead(s.router, "POST", "/plugin/releaseAddress", access.OwnHost, readBody[api.ReleaseAddressRequest], s.endpoints.ofReleaseAddress, s.endpoints.releaseAddress)
}

func (s *endpointHandlers) createEndpoint(w http.ResponseWriter, r *request, req api.CreateEndpointRequest) (any, error) {
	pod := req.ConfigEP.Pod
	req.ConfigEP.Pod = nil
	want, err := endpointFromAPI(req)
	if err != nil {
		return nil, err
	}
	if pod != nil {
		if err := s.asPod(r.Context(), &want, *pod); err != nil {
			return nil, err
		}
	}
	valid, err := model.Check(want)
	if err != nil {
		return nil, err
	}
	actor := r.actor
	if pod != nil {
		actor = actor.OfPodOn(model.HostName(s.pods.Node(pod.Namespace, pod.Name, pod.UID)))
	}
	e, rev, err := s.control.Endpoints.CreateEndpoint(r.Context(), actor, valid)
	r.committed(rev)
	if p := want.Pod; (p.KeepIPv4 || p.KeepIPv6) && (errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrInvalid)) {
		// The endpoint is another at each try of the kubelet, and the trouble the same.
		s.pods.ReportRefused(pod.Namespace, pod.Name, pod.UID, cmp.Or(errors.Unwrap(err), err))
	}
	if err != nil {
		return nil, err
	}
	warn(w, warnings(want))
	v := s.control.Current()
	written, deleted := v.Revisions.TenantRevisions(e.Key.Network.Tenant)
	return api.CreateEndpointResponse{
		EndpointConfig: endpointConfig(v, e), Revision: int64(rev), GlobalRevision: int64(v.Revisions.GlobalRevision()),
		TenantWritten: int64(written), TenantDeleted: int64(deleted),
	}, nil
}

// endpointBody is readBody for what policies may select by.
func endpointBody[T any](w http.ResponseWriter, r *request) (in T, err error) {
	text, err := decode(w, r, &in)
	if err != nil {
		return in, err
	}
	return in, strictEndpoint.unambiguous(text)
}

func (s *endpointHandlers) deleteEndpoint(_ http.ResponseWriter, r *request, req api.DeleteEndpointRequest) (any, error) {
	k, err := endpointKey(req.TenantName, req.NetworkName, req.EndpointID)
	if err != nil {
		return nil, err
	}
	e, rev, err := s.control.Endpoints.DeleteEndpoint(r.Context(), r.actor, k)
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	return api.DeleteEndpointResponse{EndpointConfig: endpointConfig(s.control.Current(), e), Revision: int64(rev)}, nil
}

func (s *endpointHandlers) updateEndpoint(w http.ResponseWriter, r *request, req api.UpdateEndpointRequest) (any, error) {
	if req.Event != api.EventStart && req.Event != api.EventDie {
		return nil, model.InvalidField("Event", req.Event, "must be start or die")
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	if byContainer(req) {
		return api.UpdateEndpointResponse{IPAddress: req.IPAddress}, s.containerDied(r, v, req.ContainerID)
	}
	tenant, err := model.ParseTenantName(req.Tenant)
	if err != nil {
		return nil, apiconv.Renamed(err, "Tenant")
	}
	network, err := networkOrGroup(v, tenant, req.Network)
	if err != nil {
		return nil, err
	}
	id, err := model.ParseEndpointID(req.EndpointID)
	if err != nil {
		return nil, err
	}
	ill, err := unhealthy(req.Health)
	if err != nil {
		return nil, err
	}
	rev, err := s.control.Endpoints.UpdateEndpoint(r.Context(), r.actor, control.EndpointUpdate{
		Unhealthy: ill,
		Key:       model.EndpointKey{Network: network, ID: id},
		Container: req.ContainerID, Name: req.EPCommonName, Labels: req.Labels, Removed: req.RemovedLabels,
		Stopped: req.Event == api.EventDie,
	})
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	warn(w, labelWarnings(req.Labels))
	return api.UpdateEndpointResponse{IPAddress: req.IPAddress}, nil
}

// unhealthy reads what a health check says; nil = nothing.
func unhealthy(health string) (*bool, error) {
	ill := health == api.Unhealthy
	switch health {
	case "":
		return nil, nil
	case api.Healthy, api.Unhealthy:
		return &ill, nil
	}
	return nil, model.InvalidField("Health", health, "must be healthy or unhealthy")
}

// containerDied records that a container has stopped, for all its endpoints.
func (s *endpointHandlers) containerDied(r *request, v *control.View, id string) error {
	if id == "" {
		return model.InvalidField("ContainerID", "", "must not be empty")
	}
	found := false
	var errs []error
	for _, e := range v.Endpoints.Find(id) {
		if e.Container == id {
			found = true
			rev, err := s.control.Endpoints.UpdateEndpoint(r.Context(), r.actor, control.EndpointUpdate{Key: e.Key, Stopped: true})
			r.committed(rev)
			errs = append(errs, err)
		}
	}
	if !found {
		return model.Errorf(model.ErrNotFound, "no endpoint has the container %q", clip([]byte(id)))
	}
	return errors.Join(errs...)
}

// networkOrGroup finds a tenant's network by its name or by the name of a
// group on it, since a runtime's network may be either.
func networkOrGroup(v *control.View, tenant model.TenantName, name string) (model.NetworkKey, error) {
	if n, ok := v.Networks.Get(model.NetworkKey{Tenant: tenant, Name: model.NetworkName(name)}); ok {
		return n.Key, nil
	}
	if g, ok := v.Groups.Get(model.GroupKey{Tenant: tenant, Name: model.GroupName(name)}); ok {
		return g.NetworkKey(), nil
	}
	if _, ok := v.Tenants.Get(tenant); !ok {
		return model.NetworkKey{}, model.Errorf(model.ErrNotFound, "Tenant %q does not exist", tenant)
	}
	return model.NetworkKey{}, model.Errorf(model.ErrNotFound, "network %q of tenant %q does not exist", clip([]byte(name)), tenant)
}

func (s *endpointHandlers) allocAddress(_ http.ResponseWriter, r *request, req api.AllocAddressRequest) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	n, ask, err := addressRequest(v, req)
	if err != nil {
		return nil, err
	}
	a, rev, err := s.control.Addresses.AllocAddress(r.Context(), r.actor, ask)
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	bits := n.Subnet.Bits()
	if a.Is6() {
		bits = n.Subnet6.Bits()
	}
	return api.AllocAddressResponse{NetworkID: req.NetworkID, IPv4Address: netip.PrefixFrom(a, bits).String()}, nil
}

func addressRequest(v *control.View, req api.AllocAddressRequest) (n model.Network, ask control.AddressRequest, err error) {
	pool, poolTenant, err := parsePool(req.AddressPool)
	if err != nil {
		return n, ask, err
	}
	if req.NetworkID != "" {
		n, ask.Group, err = resolveNetworkID(v, req.NetworkID)
	} else {
		n, err = networkOfPool(v, pool, poolTenant)
	}
	if err != nil {
		return n, ask, err
	}
	ask.Network = n.Key
	if pool.IsValid() && pool != n.Subnet && pool != n.Subnet6 {
		return n, ask, model.InvalidField("AddressPool", req.AddressPool, "must be a subnet of network "+n.Key.String())
	}
	ask.IPv6 = pool.IsValid() && pool.Addr().Is6() || !n.Subnet.IsValid()
	if req.PreferredIPv4Address != "" {
		parse := model.ParseAddr4
		if ask.IPv6 {
			parse = model.ParseAddr6
		}
		if ask.Preferred, err = parse("PreferredIPv4Address", req.PreferredIPv4Address); err != nil {
			return n, ask, err
		}
	}
	if ask.Host, err = apiconv.Optional(req.Host, model.ParseHostName); err != nil {
		return n, ask, apiconv.Renamed(err, "Host")
	}
	ask.AnyHost, ask.Requester = req.AnyHost, req.Requester
	return n, ask, nil
}

// parsePool reads "10.1.1.0/24", "10.1.1.0/24:tenant" or nothing.
func parsePool(s string) (p netip.Prefix, t model.TenantName, err error) {
	if s == "" {
		return p, "", nil
	}
	cidr := s
	if slash := strings.IndexByte(s, '/'); slash >= 0 {
		if colon := strings.IndexByte(s[slash:], ':'); colon >= 0 {
			cidr = s[:slash+colon]
			if t, err = model.ParseTenantName(s[slash+colon+1:]); err != nil {
				return p, "", apiconv.Renamed(err, "AddressPool")
			}
		}
	}
	if p, err = netip.ParsePrefix(cidr); err != nil {
		return p, "", model.InvalidField("AddressPool", s, "must be a subnet such as 10.1.1.0/24, or 10.1.1.0/24:tenant")
	}
	return p.Masked(), t, nil
}

// networkOfPool finds the only network that has the subnet.
func networkOfPool(v *control.View, pool netip.Prefix, tenant model.TenantName) (model.Network, error) {
	if !pool.IsValid() {
		return model.Network{}, model.InvalidField("NetworkID", "", "must be network.tenant, unless AddressPool names a subnet")
	}
	var found []model.Network
	for _, n := range v.Networks.List(tenant) {
		if n.Subnet == pool || n.Subnet6 == pool {
			found = append(found, n)
		}
	}
	if tenant == "" && len(found) > 1 { // 1.x looked in the default tenant
		for _, n := range found {
			if n.Key.Tenant == model.DefaultTenant {
				return n, nil
			}
		}
	}
	if _, ok := v.Tenants.Get(tenant); tenant != "" && !ok {
		return model.Network{}, model.Errorf(model.ErrNotFound, "AddressPool \"%s:%s\": tenant %q does not exist", pool, tenant, tenant)
	}
	switch len(found) {
	case 0:
		return model.Network{}, model.Errorf(model.ErrNotFound, "no network has the AddressPool %q", pool)
	case 1:
		return found[0], nil
	}
	return model.Network{}, model.Errorf(model.ErrConflict,
		"AddressPool %q is a subnet of several tenants' networks: give NetworkID, or %s:tenant", pool, pool)
}

// resolveNetworkID finds "network.tenant", "network.tenant:group" or
// "network:group.tenant". Names may hold dots, so every split is looked up; if
// several exist, the request is refused as ambiguous.
func resolveNetworkID(v *control.View, id string) (model.Network, model.GroupName, error) {
	type match struct {
		n model.Network
		g model.GroupName
	}
	var found []match
	var noTenant, noNetwork, noGroup string // what the last split lacks
	try := func(network, tenant, group string) {
		n, ok := v.Networks.Get(model.NetworkKey{Tenant: model.TenantName(tenant), Name: model.NetworkName(network)})
		if _, there := v.Tenants.Get(model.TenantName(tenant)); !there {
			noTenant = fmt.Sprintf("tenant %q", clip([]byte(tenant)))
			return
		}
		if !ok {
			noNetwork = fmt.Sprintf("network %q of tenant %q", clip([]byte(network)), tenant)
			return
		}
		if group != "" {
			if _, ok := v.Groups.Get(model.GroupKey{Tenant: n.Key.Tenant, Name: model.GroupName(group)}); !ok {
				noGroup = fmt.Sprintf("endpoint group %q of tenant %q", clip([]byte(group)), tenant)
				return
			}
		}
		found = append(found, match{n, model.GroupName(group)})
	}
	name, suffix, hasColon := strings.Cut(id, ":")
	for i := range len(name) {
		if name[i] == '.' {
			try(name[:i], name[i+1:], suffix) // network.tenant or network.tenant:group
		}
	}
	if hasColon {
		for i := range len(suffix) {
			if suffix[i] == '.' {
				try(name, suffix[i+1:], suffix[:i]) // network:group.tenant
			}
		}
	}
	switch len(found) {
	case 0:
		if missing := cmp.Or(noGroup, noNetwork, noTenant); missing != "" {
			return model.Network{}, "", model.Errorf(model.ErrNotFound, "NetworkID %q: %s does not exist", clip([]byte(id)), missing)
		}
		return model.Network{}, "", model.Errorf(model.ErrNotFound, "NetworkID %q names no network; it must be network.tenant, or network.tenant:group", clip([]byte(id)))
	case 1:
		return found[0].n, found[0].g, nil
	}
	var keys []string
	for _, m := range found {
		keys = append(keys, m.n.Key.String())
	}
	return model.Network{}, "", model.Errorf(model.ErrConflict, "NetworkID %q may mean any of the networks %s", clip([]byte(id)), strings.Join(keys, ", "))
}

func (s *endpointHandlers) releaseAddress(_ http.ResponseWriter, r *request, req api.ReleaseAddressRequest) (any, error) {
	a, err := releasedAddress(req)
	if err != nil {
		return nil, err
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	n, _, err := resolveNetworkID(v, req.NetworkID)
	if err != nil {
		return nil, err
	}
	rev, err := s.control.Addresses.ReleaseAddress(r.Context(), r.actor, n.Key, a)
	r.committed(rev)
	return "success", err
}

func releasedAddress(req api.ReleaseAddressRequest) (netip.Addr, error) {
	text, _, _ := strings.Cut(req.IPv4Address, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return a, model.InvalidField("IPv4Address", req.IPv4Address, "must be an IPv4 or IPv6 address such as 10.1.1.2")
	}
	return a, nil
}
