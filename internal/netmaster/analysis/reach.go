package analysis

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// maxPairs is how many pairs of endpoints, or of endpoints and ranges of addresses, one
// question may be about.
const maxPairs = 1 << 20

// Question asks which connections From may open to To.
type Question struct {
	From, To Subject
	Ports    reachability.Ports // that are asked about
	Tenant   model.TenantName   // whose endpoints addresses mean if both sides are addresses; "" = each tenant's
	Reports  map[model.HostName]HostReport
}

// NeedsReports reports whether the answer depends on what hosts report: the ways in from outside,
// and to hosts' addresses.
func (q Question) NeedsReports() bool {
	return q.From.isOutside() || q.To.isOutside() || q.To.kind == "host"
}

// Reachable is the answer to a Question.
type Reachable struct {
	Revision store.Revision
	Rows     []Row
	// Some: some of what was asked is allowed. All: nothing of it is not.
	Some, All bool
	// Unconfirmed are the ids of changes that wait to be confirmed. The answer has them, as hosts do.
	Unconfirmed []string
}

// Row is what holds between each of From and each of To.
type Row struct {
	From, To []string // endpoints' keys, prefixes of addresses, or the address of a service without backends
	IPv4     bool
	IPv6     bool
	Service  *ServiceAsked // nil = To are asked by their own addresses
	// Opening is how clients outside get there, where the question was that; "" = Route says it.
	Opening   Opening
	Published string // HOST and ADDRESS:PORT of a published port
	reachability.Answer
}

// ServiceAsked is a port of a service. At an unspecified address it is each node's.
type ServiceAsked struct {
	Key       model.ServiceKey
	At        netip.AddrPort
	NoBackend bool
}

// GapService is why a service without an address for the one who asks is not reached.
const GapService reachability.Gap = "not-exposed"

// Reach answers a question by what the one who asks may know of.
func (e *Engine) Reach(ctx context.Context, q Question, scope Scope) (out Reachable, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		out, err = r.reach(q, scope)
		return err
	})
	return out, err
}

func (r *clusterRows) reach(q Question, scope Scope) (out Reachable, err error) {
	from, err := r.resolve(q.From, scope)
	if err != nil {
		return out, err
	}
	to, err := r.resolve(q.To, scope)
	if err != nil {
		return out, err
	}
	if q.To.kind == "host" {
		to = side{outside: r.addressesOfHost(model.HostName(q.To.name)), name: q.To.text}
	}
	if q.From.isAddresses() && (q.To.isAddresses() || q.To.kind == "host") {
		from, to = from.ofTenant(q.Tenant), to.ofTenant(q.Tenant)
	}
	from, to = r.setTaken(from), r.setUse(r.setTaken(to), q.Reports)
	for _, s := range []struct {
		side
		of Subject
	}{{from, q.From}, {to, q.To}} {
		if s.isEmpty() {
			return out, s.of.selectsNothing()
		}
	}
	t := newTable(r, q.Ports, scope)
	t.publishedOf = r.publishedPorts(q.Reports)
	if err := t.fill(r.sources(from), to); err != nil {
		return out, err
	}
	return Reachable{Revision: r.rev, Rows: t.list(), Some: t.some, All: t.some && !t.less, Unconfirmed: r.unconfirmed()}, nil
}

// sources are what begins connections: in place of services their backends.
func (r *clusterRows) sources(s side) side {
	for _, of := range s.services {
		for _, k := range of.parts {
			s.endpoints = append(s.endpoints, r.cluster.BackendsOf(k)...)
		}
	}
	s.services = nil
	return s
}

// addressesOfHost are a host's own addresses.
func (r *clusterRows) addressesOfHost(name model.HostName) (out []netip.Prefix) {
	h := r.hosts[name]
	for _, a := range []netip.Addr{h.VTEP, h.Control, h.IPv6} {
		if p := netip.PrefixFrom(a, a.BitLen()); a.IsValid() && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func newTable(r *clusterRows, ports reachability.Ports, scope Scope) *table {
	return &table{rows: r, ports: ports, scope: scope, cells: map[string]*cell{}}
}

// table collects the rows of an answer.
type table struct {
	rows        *clusterRows
	ports       reachability.Ports
	scope       Scope
	publishedOf map[model.EndpointKey][]publishedAt
	asserts     bool // see assertion.go: nothing is entered between two endpoints, and clients outside need no way in
	cells       map[string]*cell
	order       []*cell
	some        bool // something is allowed
	less        bool // something is not
}

// cell is one answer, with all between whom it holds.
type cell struct {
	row   Row
	froms []string
	to    map[string][]string // by from
}

func (t *table) fill(from, to side) error {
	n := len(from.endpoints)*(len(to.endpoints)+len(to.outside)+len(to.services)) + len(from.outside)*(len(to.endpoints)+len(to.services))
	services := to.services
	if to.one && len(to.outside) > 0 {
		services = append(services, to.use[to.outside[0].Addr()].services...)
	}
	switch {
	case n > maxPairs:
		return tooMany(n)
	case len(from.endpoints)+len(to.endpoints)+len(services) == 0:
		return model.Errorf(model.ErrInvalid, "from and to: one side has to be endpoints, or to a service")
	}
	if paired := t.paired(from, to); len(paired) > 0 {
		for _, a := range paired {
			t.fromEndpoint(a, from, to)
		}
		return nil
	}
	for _, a := range from.endpoints {
		t.fromEndpoint(a, from, to)
	}
	for _, s := range services {
		t.serviceOutside(from, s)
	}
	for _, b := range to.endpoints {
		met := from.addressed && slices.ContainsFunc(from.endpoints, func(a *desired.Port) bool { return t.means(from, a, b) })
		if from.one && met {
			continue
		}
		for _, p := range from.outside {
			if to.has(p.Addr().Is6()) {
				t.fromClients(p, b, from, met || t.isMet(from))
			}
		}
	}
	return nil
}

// paired are the endpoints that have one address and reach an endpoint that has another: of two
// addresses, these are meant, and no clients outside.
func (t *table) paired(from, to side) (out []*desired.Port) {
	if !from.addressed || !to.addressed || !from.one || !to.one {
		return nil
	}
	for _, a := range from.endpoints {
		if slices.ContainsFunc(to.endpoints, func(b *desired.Port) bool { return t.means(to, b, a) && t.means(from, a, b) }) {
			out = append(out, a)
		}
	}
	return out
}

// fromEndpoint adds answers for connections of an endpoint.
func (t *table) fromEndpoint(a *desired.Port, from, to side) {
	met := false
	for _, b := range to.endpoints {
		if !t.means(to, b, a) || !t.means(from, a, b) {
			continue
		}
		met = true
		switch {
		case a != b && t.asserts:
		case a != b:
			t.between(a, b, from.has(false) && to.has(false), from.has(true) && to.has(true))
		case from.one && to.one:
			all := []reachability.Part{{Ports: t.ports, Allowed: true}}
			t.put(a.Endpoint.String(), a.Endpoint.String(), Row{IPv4: a.IPv4.IsValid(), IPv6: a.IPv6.IsValid(), Answer: reachability.Answer{Route: RouteLocal, Parts: all}})
		}
	}
	for _, p := range to.outside {
		if from.has(p.Addr().Is6()) && (!to.one || !met) {
			t.toAddresses(a, p, from, to, met || t.isMet(to))
		}
	}
	for _, s := range to.services {
		if !from.addressed || t.inDomain(a, s) {
			t.service(a, s, from)
		}
	}
}

// isMet reports whether endpoints of a side have some of its addresses.
func (t *table) isMet(s side) bool {
	return !s.addressed && (len(s.endpoints) > 0 || t.asserts && s.name == "")
}

func tooMany(pairs int) error {
	return model.Errorf(model.ErrInvalid, "from and to: these are %d pairs of endpoints, and at most %d are answered at once; ask about fewer", pairs, maxPairs)
}

func (t *table) between(a, b *desired.Port, v4, v6 bool) {
	from, to := a.Endpoint.String(), b.Endpoint.String()
	four, six := t.rows.cluster.Between(a, b, false), t.rows.cluster.Between(a, b, true)
	switch {
	case !v6 || v4 && six.Gap == reachability.GapFamily:
		t.add(from, to, Row{IPv4: true, Answer: four})
	case !v4 || four.Gap == reachability.GapFamily:
		t.add(from, to, Row{IPv6: true, Answer: six})
	case four.Key() == six.Key():
		t.add(from, to, Row{IPv4: true, IPv6: true, Answer: four})
	default:
		t.add(from, to, Row{IPv4: true, Answer: four})
		t.add(from, to, Row{IPv6: true, Answer: six})
	}
}

// outside adds an answer for prefixes of a side. It says nothing of a family that the endpoint
// does not have, if both were asked about or endpoints have some of the addresses (met), nor then
// of addresses that lead nowhere.
func (t *table) outside(dir model.Direction, end *desired.Port, o reachability.Outside, of side, met bool) {
	if o.Gap == reachability.GapFamily && (met || len(of.outside) > 1) || o.Gap == reachability.GapAddress && met {
		return
	}
	row := Row{IPv4: o.Prefixes[0].Addr().Is4(), IPv6: o.Prefixes[0].Addr().Is6(), Answer: o.Answer}
	for _, x := range o.Prefixes {
		from, to := end.Endpoint.String(), of.nameOf(x)
		if dir == model.In {
			from, to = to, from
		}
		t.add(from, to, row)
	}
}

// service adds answers for an endpoint that asks a service, and returns all ports at which the
// service answers it.
func (t *table) service(a *desired.Port, s serviceParts, from side) (answers reachability.Ports) {
	otherFamily := false // it answers by a family that the endpoint does not have
	for _, key := range s.parts {
		for _, v6 := range []bool{false, true} {
			if !from.has(v6) {
				continue
			}
			all := t.rows.cluster.ToService(a, key, v6)
			if all == nil {
				all = t.rows.cluster.ToServiceByHost(a, key, v6)
			}
			if !a.Addr(v6).IsValid() {
				otherFamily = otherFamily || len(all) > 0
				continue
			}
			for _, p := range all {
				if !s.answersAt(p.Addr) {
					continue
				}
				if answers = answers.Or(reachability.OnePort(p.Protocol, p.Port)); !t.ports.Has(p.Protocol, p.Port) {
					continue
				}
				asked := &ServiceAsked{Key: s.key, At: netip.AddrPortFrom(p.Addr, p.Port), NoBackend: len(p.Backends) == 0}
				row := Row{IPv4: !v6, IPv6: v6, Service: asked, Answer: reachability.Answer{Route: reachability.RouteNone}}
				if asked.NoBackend {
					t.add(a.Endpoint.String(), p.Addr.String(), row)
				}
				for _, b := range p.Backends {
					row.Answer = reachability.Answer{Route: b.Route, Gap: b.Gap}
					if b.Route != reachability.RouteNone && b.Gap == "" {
						row.Parts = []reachability.Part{b.Part}
					}
					t.put(a.Endpoint.String(), t.backend(b.Key, b.Addr), row)
				}
			}
		}
	}
	switch {
	case !answers.IsEmpty() || s.at.IsValid():
	case otherFamily:
		t.put(a.Endpoint.String(), s.key.String(), Row{IPv4: !a.IPv4.IsValid(), IPv6: !a.IPv6.IsValid(), Answer: reachability.Answer{Route: reachability.RouteNone, Gap: reachability.GapFamily}})
	default:
		t.notExposed(a.Endpoint.String(), s.key)
	}
	return answers
}

// serviceOutside adds answers for clients outside. An address of an endpoint of the service's
// domain is no client's outside.
func (t *table) serviceOutside(from side, s serviceParts) {
	known := false
	met := from.addressed && slices.ContainsFunc(from.endpoints, func(a *desired.Port) bool { return t.inDomain(a, s) })
	if from.one && met {
		return
	}
	for _, client := range from.outside {
		for _, key := range s.parts {
			for _, p := range t.rows.cluster.OutsideToService(client, key) {
				if !s.answersAt(p.Addr) {
					continue
				}
				if known = true; !t.ports.Has(p.Protocol, p.Port) {
					continue
				}
				asked := &ServiceAsked{Key: s.key, At: netip.AddrPortFrom(p.Addr, p.Port), NoBackend: len(p.Backends) == 0}
				row := Row{IPv4: client.Addr().Is4(), IPv6: client.Addr().Is6(), Service: asked, Answer: reachability.Answer{Route: reachability.RouteNone}}
				if asked.NoBackend {
					t.put(client.String(), p.Addr.String(), row)
				}
				for _, b := range p.Backends {
					for _, o := range b.Clients {
						if row.Answer = o.Answer; o.Gap == reachability.GapAddress && met {
							continue
						}
						for _, x := range o.Prefixes {
							t.put(x.String(), t.backend(b.Key, b.Addr), row)
						}
					}
				}
			}
		}
	}
	if !known && len(from.outside) > 0 && !s.at.IsValid() && !met {
		t.notExposed(from.outside[0].String(), s.key)
	}
}

// notExposed adds that a service has no address for a client.
func (t *table) notExposed(from string, key model.ServiceKey) {
	t.put(from, key.String(), Row{IPv4: true, IPv6: true, Answer: reachability.Answer{Route: reachability.RouteNone, Gap: GapService}})
}

// backend names a service's backend.
func (t *table) backend(key model.EndpointKey, at netip.Addr) string {
	if _, is := t.rows.cluster.Port(key); !is || !t.scope.Has(key.Network.Tenant) {
		return at.String()
	}
	return key.String()
}

// add adds what is asked about of a row, and put a row as it is.
func (t *table) add(from, to string, row Row) {
	row.Answer = row.Of(t.ports)
	t.put(from, to, row)
}

func (t *table) put(from, to string, row Row) {
	t.less = t.less || row.Route == reachability.RouteNone || row.Gap != ""
	for _, p := range row.Parts {
		t.some = t.some || p.Allowed
		t.less = t.less || !p.Allowed
	}
	key := fmt.Sprint(row.IPv4, row.IPv6, row.Opening, row.Published, " ", row.Key())
	if row.Service != nil {
		key += fmt.Sprint(*row.Service)
	}
	c := t.cells[key]
	if c == nil {
		c = &cell{row: row, to: map[string][]string{}}
		t.cells[key], t.order = c, append(t.order, c)
	}
	if _, has := c.to[from]; !has {
		c.froms = append(c.froms, from)
	}
	if n := len(c.to[from]); n == 0 || c.to[from][n-1] != to { // hosts and tenants have one name for several
		c.to[from] = append(c.to[from], to)
	}
}

// list returns the rows: sources that have the same destinations are in one.
func (t *table) list() (out []Row) {
	for _, c := range t.order {
		at := map[string]int{}
		for _, from := range c.froms {
			key := strings.Join(c.to[from], " ")
			i, has := at[key]
			if !has {
				i = len(out)
				at[key], out = i, append(out, c.row)
				out[i].To = c.to[from]
			}
			out[i].From = append(out[i].From, from)
		}
	}
	return out
}
