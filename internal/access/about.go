package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/access/audit"
	"github.com/contiv/netplugin/v2/internal/access/refusal"
)

// subject is what a request is about.
type subject struct {
	objects []audit.Object
	// tenants and hosts have all that it is about; ofTenants and ofHosts tell that
	// this is known: else no tenant admin, or no host, may.
	tenants            []string
	hosts              []string
	ofTenants, ofHosts bool
	// hint says what a tenant admin has to do otherwise; empty = nothing helps.
	hint string
}

// about finds out what a request is about; body is its whole body, as the server will
// read it. Where only cluster admins may, whatever it is about, it may say less.
type about func(ctx context.Context, c Cluster, r *http.Request, body []byte) (subject, error)

// Endpoint is where an endpoint is.
type Endpoint struct{ Tenant, Host string }

// Cluster knows what requests name that do not say whose it is. Its answers are as
// fresh as the server's own; ErrUnavailable's kind of errors are told to clients.
type Cluster interface {
	// FindEndpoints returns all endpoints whose key (tenant:network:id), id, container
	// or name is text.
	FindEndpoints(ctx context.Context, text string) ([]Endpoint, error)
	// NamedEndpoint returns the endpoint with an id on a network, or on that of a group,
	// of a tenant; none = there is no such.
	NamedEndpoint(ctx context.Context, tenant, networkOrGroup, id string) ([]Endpoint, error)
	// AddressHosts returns the hosts for which an address of a network is reserved, or
	// has an endpoint; "" is a host of its own, nobody's. The names are as in
	// api.ReleaseAddressRequest.
	AddressHosts(ctx context.Context, networkID, address string) ([]string, error)
}

// aboutPath is about the object that a part of the path names.
func aboutPath(name string, ofTenant bool) about {
	return func(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
		key := r.PathValue(name)
		s := subject{objects: []audit.Object{{Key: key}}}
		if ofTenant {
			s.tenants, s.ofTenants = []string{tenantOfKey(key)}, true
		}
		return s, nil
	}
}

// ofNoHost lets every host that a rule's roles name ask: the object is no host's.
func ofNoHost(of about) about {
	return func(ctx context.Context, c Cluster, r *http.Request, body []byte) (subject, error) {
		s, err := of(ctx, c, r, body)
		s.hosts, s.ofHosts = nil, true
		return s, err
	}
}

func aboutNetworkRule(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	key := r.PathValue("key")
	return subject{objects: []audit.Object{{Key: key + ":" + r.PathValue("rule")}}, tenants: []string{tenantOfKey(key)}, ofTenants: true}, nil
}

func aboutHostAddress(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	return subject{objects: []audit.Object{{Key: r.PathValue("name") + " " + r.PathValue("address")}}}, nil
}

func aboutServiceID(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	_, tenant, _ := strings.Cut(r.PathValue("id"), ":") // service:tenant
	return subject{tenants: []string{tenant}, ofTenants: true}, nil
}

// aboutEndpointsQuery is about the endpoints of a tenant and of a host: either is all
// that they are of.
func aboutEndpointsQuery(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	q := r.URL.Query() // as the server takes it
	s := subject{tenants: []string{q.Get("tenant")}, ofTenants: true, hosts: []string{q.Get("host")}, ofHosts: true}
	if s.tenants[0] == "" {
		s.hint = "choose one tenant's: netctl endpoint ls --tenant NAME"
	}
	return s, nil
}

func aboutCleanup(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	return subject{objects: []audit.Object{{Key: r.PathValue("tenant") + ":" + r.PathValue("what") + ":" + r.PathValue("id")}}}, nil
}

func aboutEndpoint(ctx context.Context, c Cluster, r *http.Request, _ []byte) (subject, error) {
	key := r.PathValue("key")
	s := subject{objects: []audit.Object{{Key: key}}}
	if c == nil {
		return s, nil
	}
	found, err := c.FindEndpoints(ctx, key)
	s.add(found)
	s.ofTenants = true
	return s, err
}

// add makes the subject be about endpoints too.
func (s *subject) add(found []Endpoint) {
	for _, e := range found {
		s.tenants = append(s.tenants, e.Tenant)
		s.hosts = append(s.hosts, e.Host)
	}
}

// read reads a body as the server does: the same type and the same decoder. What the
// server will refuse is about nothing that is known.
func read[T any](body []byte) (out T, ok bool) {
	return out, json.NewDecoder(bytes.NewReader(body)).Decode(&out) == nil
}

func aboutToken(_ context.Context, _ Cluster, _ *http.Request, body []byte) (subject, error) {
	ask, _ := read[api.TokenRequest](body)
	return subject{objects: []audit.Object{{Key: ask.Name + " " + ask.Role + " " + strings.Join(ask.Tenants, ",")}}}, nil
}

func aboutRelease(_ context.Context, _ Cluster, _ *http.Request, body []byte) (subject, error) {
	ask, _ := read[api.Release](body)
	return subject{objects: []audit.Object{{Kind: ask.Kind, Key: ask.Key}}}, nil
}

// aboutHostReport is for all that an agent tells of its host.
func aboutHostReport(_ context.Context, _ Cluster, _ *http.Request, body []byte) (subject, error) {
	report, ok := read[struct {
		Host string `json:"host"`
	}](body)
	return subject{objects: []audit.Object{{Key: report.Host}}, hosts: []string{report.Host}, ofHosts: ok}, nil
}

func aboutHostQuery(_ context.Context, _ Cluster, r *http.Request, _ []byte) (subject, error) {
	host := r.URL.Query().Get("host") // as the server takes it
	return subject{objects: []audit.Object{{Key: host}}, hosts: []string{host}, ofHosts: true}, nil
}

func endpointObject(tenant, network, id string) []audit.Object {
	return []audit.Object{{Key: tenant + ":" + network + ":" + id}}
}

func aboutCreateEndpoint(_ context.Context, _ Cluster, _ *http.Request, body []byte) (subject, error) {
	ask, ok := read[api.CreateEndpointRequest](body)
	return subject{objects: endpointObject(ask.TenantName, ask.NetworkName, ask.EndpointID), hosts: []string{ask.ConfigEP.Host}, ofHosts: ok}, nil
}

func aboutDeleteEndpoint(ctx context.Context, c Cluster, _ *http.Request, body []byte) (s subject, err error) {
	ask, ok := read[api.DeleteEndpointRequest](body)
	s.objects = endpointObject(ask.TenantName, ask.NetworkName, ask.EndpointID)
	if ok && c != nil {
		found, err := c.NamedEndpoint(ctx, ask.TenantName, ask.NetworkName, ask.EndpointID)
		s.add(found)
		s.ofHosts = true
		return s, err
	}
	return s, nil
}

func aboutUpdateEndpoint(ctx context.Context, c Cluster, _ *http.Request, body []byte) (s subject, err error) {
	ask, ok := read[api.UpdateEndpointRequest](body)
	s.objects = endpointObject(ask.Tenant, ask.Network, ask.EndpointID)
	if !ok || c == nil {
		return s, nil
	}
	var found []Endpoint
	if ask.Event == api.EventDie && (ask.EndpointID == "" || ask.Tenant == "") { // by its container, as 1.x tells it
		s.objects = []audit.Object{{Key: ask.ContainerID}}
		found, err = c.FindEndpoints(ctx, ask.ContainerID)
	} else {
		found, err = c.NamedEndpoint(ctx, ask.Tenant, ask.Network, ask.EndpointID)
	}
	s.add(found)
	s.ofHosts = true
	return s, err
}

func aboutAllocAddress(_ context.Context, _ Cluster, _ *http.Request, body []byte) (subject, error) {
	ask, ok := read[api.AllocAddressRequest](body)
	network := ask.NetworkID
	if network == "" {
		network = ask.AddressPool
	}
	return subject{objects: []audit.Object{{Key: network + " " + ask.PreferredIPv4Address}}, hosts: []string{ask.Host}, ofHosts: ok}, nil
}

func aboutReleaseAddress(ctx context.Context, c Cluster, _ *http.Request, body []byte) (s subject, err error) {
	ask, ok := read[api.ReleaseAddressRequest](body)
	s.objects = []audit.Object{{Key: ask.NetworkID + " " + ask.IPv4Address}}
	if ok && c != nil {
		s.hosts, err = c.AddressHosts(ctx, ask.NetworkID, ask.IPv4Address)
		s.ofHosts = true
	}
	return s, err
}

// aboutApply is about all objects of a list. Names of fields may be written in any
// case, and twice: where it is not plain which tenant an object has, no tenant admin
// may.
func aboutApply(_ context.Context, _ Cluster, _ *http.Request, body []byte) (s subject, err error) {
	ask, ok := read[api.ApplyRequest](body)
	if !ok {
		return s, nil // the server will refuse it
	}
	if n := len(ask.Objects); n > maxListed {
		return s, refusal.Invalid("objects: must be at most %d in one list, and not %d: give several", maxListed, n)
	}
	s.ofTenants = true
	for i, object := range ask.Objects {
		o, tenant, plain := applied(object)
		s.objects = append(s.objects, o)
		if !plain || !slices.Contains(kindsOfTenants, o.Kind) {
			s.ofTenants = false
			if s.hint == "" {
				s.hint = fmt.Sprintf("objects[%d]: a tenant-admin's list has objects of tenants (%s), each with its kind and tenantName once", i, strings.Join(kindsOfTenants, ", "))
			}
			continue
		}
		s.tenants = append(s.tenants, tenant)
	}
	return s, nil
}

// applied reads whose an object of a list is.
func applied(object []byte) (o audit.Object, tenant string, plain bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, "", false
	}
	kinds, tenants, plain := 0, 0, true
	names := map[string]string{}
	for d.More() {
		t, err := d.Token()
		name, isName := t.(string)
		var value json.RawMessage
		if err != nil || !isName || d.Decode(&value) != nil {
			return o, "", false
		}
		var into *string
		switch {
		case strings.EqualFold(name, "kind"):
			kinds++
			plain = plain && name == "kind" // the server takes it in this case only
			into = &o.Kind
		case strings.EqualFold(name, "tenantName"):
			tenants++
			into = &tenant
		default:
			var text string
			if json.Unmarshal(value, &text) == nil {
				names[strings.ToLower(name)] = text
			}
			continue
		}
		if json.Unmarshal(value, into) != nil {
			plain = false
		}
	}
	o.Key = tenant + ":" + nameOf(o.Kind, names)
	return o, tenant, plain && kinds == 1 && tenants == 1
}

// nameOf is the rest of an object's key, for the record.
func nameOf(kind string, names map[string]string) string {
	fields := map[string][]string{
		"endpointGroup": {"groupname"}, "rule": {"policyname", "ruleid"}, "netprofile": {"profilename"}, "serviceLB": {"servicename"},
		"extContractsGroup": {"contractsgroupname"}, "endpoint": {"networkname", "endpointid"},
	}[kind]
	if fields == nil {
		fields = []string{strings.ToLower(kind) + "name"}
	}
	var parts []string
	for _, f := range fields {
		parts = append(parts, refusal.Clip(names[f]))
	}
	return strings.Join(parts, ":")
}
