package analysis

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Subject is one side of a question, as a user names it.
type Subject struct {
	field string
	text  string
	kind  string // "" = an endpoint's key, id, container or name
	name  string // the object's, without the kind
	in    model.TenantName
	byKey map[string]string // labels
	addrs []netip.Prefix
}

// subjectKinds are the words before the colon, with what they stand for.
var subjectKinds = map[string]string{
	"endpoint": "", "pod": "pod", "group": "group", "network": "network", "namespace": "namespace", "service": "service",
	"host": "host", "tenant": "tenant",
}

const subjectForms = "must be an endpoint, or pod:NAMESPACE/NAME, group:NAME, network:NAME, namespace:NAME, service:NAME, host:NAME, tenant:NAME, KEY=VALUE of labels, an address, a range of addresses, internet, or any"

// internet is all addresses.
var internet = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// ParseSubject reads one side of a question. Groups, networks, services and labels are those of
// a tenant; TENANT/ before a name of the first three chooses another. The error is of kind
// model.ErrInvalid.
func ParseSubject(field, text string, tenant model.TenantName) (Subject, error) {
	s := Subject{field: field, text: text, in: tenant}
	bad := model.InvalidField(field, text, subjectForms)
	if text == "" {
		return s, bad
	}
	switch text {
	case "internet":
		s.kind, s.addrs = "addresses", internet
		return s, nil
	case "any":
		s.kind, s.addrs = "any", internet
		return s, nil
	}
	if p, ok := parsePrefix(text); ok {
		if p != p.Masked() {
			return s, model.InvalidField(field, text, "must be the range "+p.Masked().String())
		}
		s.kind, s.addrs = "addresses", []netip.Prefix{p}
		return s, nil
	}
	kind, name, colon := strings.Cut(text, ":")
	if known, is := subjectKinds[kind]; colon && is {
		if s.kind, s.name = known, name; name == "" {
			return s, bad
		}
		if tenant, rest, other := strings.Cut(name, "/"); other && (known == "group" || known == "network" || known == "service") {
			s.in, s.name = model.TenantName(tenant), rest
		}
		return s, nil
	}
	if strings.Contains(text, "=") {
		s.kind, s.byKey = "labels", map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			k, v, ok := strings.Cut(pair, "=")
			if !ok || k == "" {
				return s, bad
			}
			s.byKey[k] = v
		}
		return s, nil
	}
	s.name = text
	return s, nil
}

func parsePrefix(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil
}

// Scope says of which tenants the one who asks may know.
type Scope interface {
	Has(tenant model.TenantName) bool
}

// side is what a subject stands for.
type side struct {
	endpoints []*desired.Port // that hosts have, in the order of their keys
	outside   []netip.Prefix
	services  []serviceParts
	name      string // of what outside stands for; "" = the prefixes themselves
	// addressed: the endpoints have addresses of outside, each in its own domain.
	addressed bool
	one       bool // a single endpoint, or a single address
	taken     map[domainAddress]bool
	use       map[netip.Addr]addressUse // of single addresses
}

// nameOf names prefixes of outside: of a host with several addresses, which of them it is.
func (s side) nameOf(p netip.Prefix) string {
	switch {
	case s.name == "":
		return p.String()
	case len(s.outside) == 1:
		return s.name
	}
	return s.name + " " + p.Addr().String()
}

// serviceParts is a service, and as which services it is in the desired state.
type serviceParts struct {
	key   model.ServiceKey
	parts []model.ServiceKey
	at    netip.Addr // the only address that is asked about; zero = all
	node  bool       // it is a host's
}

// answersAt reports whether a frontend at an address is asked about.
func (s serviceParts) answersAt(frontend netip.Addr) bool {
	return !s.at.IsValid() || frontend == s.at || s.node && frontend == desired.AnyNode(s.at)
}

func (s side) isEmpty() bool { return len(s.endpoints)+len(s.outside)+len(s.services) == 0 }

// resolve finds what a subject stands for. It fails with model.ErrNotFound where there is no
// such object, or none that the one who asks may know of, and with model.ErrConflict when the
// name of an endpoint is several endpoints'.
func (r *clusterRows) resolve(s Subject, scope Scope) (side, error) {
	found := func(is bool) error {
		ofTenant := s.kind == "group" || s.kind == "network" || s.kind == "service"
		switch {
		case ofTenant && (!is || !scope.Has(s.in)):
			return model.Errorf(model.ErrNotFound, "%s: %s %q of tenant %q does not exist", s.field, s.kind, s.name, s.in)
		case !is:
			return model.Errorf(model.ErrNotFound, "%s: %s %q does not exist", s.field, s.kind, s.name)
		}
		return nil
	}
	var err error
	out := side{}
	switch s.kind {
	case "":
		return r.endpoint(s, scope)
	case "addresses":
		out.outside, out.addressed, out.one = s.addrs, !s.isInternet(), s.addrs[0].IsSingleIP()
	case "any":
		out.outside = s.addrs
	case "group":
		_, is := r.groups[s.group()]
		err = found(is)
	case "network":
		_, is := r.networks[s.network()]
		err = found(is)
	case "namespace":
		_, is := r.spaces[model.NamespaceName(s.name)]
		err = found(is)
	case "host":
		_, is := r.hosts[model.HostName(s.name)]
		for _, e := range r.endpoints { // a host's record may come later
			is = is || e.Host == model.HostName(s.name)
		}
		err = found(is)
	case "tenant":
		tenant := model.TenantName(s.name)
		err = found(r.tenants[tenant] && scope.Has(tenant))
	case "service":
		k := model.ServiceKey{Tenant: s.in, Name: s.name}
		_, is := r.services[k]
		if of := (model.ClusterServiceKey{Namespace: model.NamespaceName(s.in), Name: s.name}).ServiceKey(); !is {
			if _, is = r.services[of]; is { // a service of Kubernetes, without the tenant
				k, s.in = of, of.Tenant
			}
		}
		out.services = []serviceParts{{key: k, parts: r.cluster.Parts(k)}}
		return out, found(is)
	}
	if err != nil {
		return side{}, err
	}
	for _, k := range r.selected(s, scope) {
		if p, has := r.cluster.Port(k); has {
			out.endpoints = append(out.endpoints, p)
		}
	}
	return out, nil
}

func (s Subject) group() model.GroupKey {
	return model.GroupKey{Tenant: s.in, Name: model.GroupName(s.name)}
}

func (s Subject) network() model.NetworkKey {
	return model.NetworkKey{Tenant: s.in, Name: model.NetworkName(s.name)}
}

// selects reports whether an endpoint belongs to a subject. A name may be several endpoints', of
// which resolve chooses.
func (s Subject) selects(e *model.Endpoint) bool {
	switch s.kind {
	case "":
		return s.name == e.Key.String() || s.name == string(e.Key.ID) || s.name == e.Container || s.name == e.Name
	case "addresses":
		return !s.isInternet() && (s.addrs[0].Contains(e.IPv4) || s.addrs[0].Contains(e.IPv6))
	case "any":
		return true
	case "group":
		return e.Key.Network.Tenant == s.in && e.Group == model.GroupName(s.name)
	case "network":
		return e.Key.Network == s.network()
	case "namespace":
		return e.Namespace == model.NamespaceName(s.name)
	case "pod":
		space, name, _ := strings.Cut(s.name, "/")
		return e.Namespace == model.NamespaceName(space) && e.Pod.Name == name && name != ""
	case "host":
		return e.Host == model.HostName(s.name)
	case "tenant":
		return e.Key.Network.Tenant == model.TenantName(s.name)
	case "labels":
		for k, v := range s.byKey {
			if got, has := e.Labels[k]; !has || got != v {
				return false
			}
		}
		return e.Key.Network.Tenant == s.in
	}
	return false // services have backends
}

// selected are the endpoints that belong to a subject, in order. Assertions keep theirs.
func (r *clusterRows) selected(s Subject, scope Scope) []model.EndpointKey {
	asserts, keeps := scope.(assertedScope)
	key := memberKey{asserts, s.in, s.text}
	if m := r.asserted.members[key]; m != nil && keeps {
		return m.keys
	}
	var out []model.EndpointKey
	for k, e := range r.endpoints {
		if scope.Has(k.Network.Tenant) && s.selects(e) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, model.EndpointKey.Compare)
	if keeps {
		r.asserted.members[key] = &members{s, asserts, out}
	}
	return out
}

func (s Subject) selectsNothing() error {
	return model.Errorf(model.ErrNotFound, "%s: %q selects no endpoint that is attached to a host", s.field, s.text)
}

func (s Subject) isInternet() bool { return s.text == "internet" }

// isOutside reports whether addresses that are no endpoint's belong to it.
func (s Subject) isOutside() bool { return len(s.addrs) > 0 }

// isAddresses reports whether it is addresses, whatever endpoints have them.
func (s Subject) isAddresses() bool { return s.kind == "addresses" }

// endpoint finds one endpoint by its key, id, container, or name, in this order.
func (r *clusterRows) endpoint(s Subject, scope Scope) (side, error) {
	var hits [4][]model.EndpointKey
	if k, err := model.ParseEndpointKey(s.name); err == nil && r.endpoints[k] != nil {
		hits[0] = []model.EndpointKey{k}
	}
	for k, e := range r.endpoints {
		for i, name := range [3]string{string(k.ID), e.Container, e.Name} {
			if name == s.name {
				hits[i+1] = append(hits[i+1], k)
			}
		}
	}
	for _, found := range hits {
		found = slices.DeleteFunc(found, func(k model.EndpointKey) bool { return !scope.Has(k.Network.Tenant) })
		switch {
		case len(found) > 1:
			var names []string
			for _, k := range found {
				names = append(names, k.String())
			}
			slices.Sort(names)
			return side{}, model.Errorf(model.ErrConflict, "%s: endpoint %q is ambiguous; name one of %s", s.field, s.name, strings.Join(names, ", "))
		case len(found) == 1:
			p, has := r.cluster.Port(found[0])
			if !has {
				return side{}, model.Errorf(model.ErrNotFound, "%s: endpoint %q is not attached to a host", s.field, s.name)
			}
			return side{endpoints: []*desired.Port{p}, one: true}, nil
		}
	}
	if s.text != s.name {
		return side{}, model.Errorf(model.ErrNotFound, "%s: endpoint %q does not exist: name one by its key, id, container or name", s.field, s.name)
	}
	return side{}, model.Errorf(model.ErrNotFound, "%s: endpoint %q does not exist, and it is no address, no labels (KEY=VALUE) and no object (such as group:NAME)", s.field, s.name)
}
