package analysis

import (
	"cmp"
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
}

// Reachable is the answer to a Question.
type Reachable struct {
	Revision store.Revision
	Rows     []Row
	// Some: some of what was asked is allowed. All: nothing of it is not.
	Some, All bool
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
		from, err := r.resolve(q.From, scope)
		if err != nil {
			return err
		}
		to, err := r.resolve(q.To, scope)
		if err != nil {
			return err
		}
		if q.To.kind == "host" {
			to = side{outside: r.addressesOfHost(model.HostName(q.To.name)), name: q.To.text}
		}
		for _, s := range []struct {
			side
			of Subject
		}{{from, q.From}, {to, q.To}} {
			if s.isEmpty() {
				return s.of.selectsNothing()
			}
		}
		t := newTable(r, q.Ports, scope)
		if err := t.fill(r.sources(from), to); err != nil {
			return err
		}
		out = Reachable{Revision: r.rev, Rows: t.list(), Some: t.some, All: t.some && !t.less}
		return nil
	})
	return out, err
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
	return &table{cluster: r.cluster, ports: ports, scope: scope, cells: map[string]*cell{}}
}

// table collects the rows of an answer.
type table struct {
	cluster *reachability.Cluster
	ports   reachability.Ports
	scope   Scope
	cells   map[string]*cell
	order   []*cell
	some    bool // something is allowed
	less    bool // something is not
}

// cell is one answer, with all between whom it holds.
type cell struct {
	row   Row
	froms []string
	to    map[string][]string // by from
}

func (t *table) fill(from, to side) error {
	n := len(from.endpoints)*(len(to.endpoints)+len(to.outside)+len(to.services)) + len(from.outside)*(len(to.endpoints)+len(to.services))
	switch {
	case n > maxPairs:
		return tooMany(n)
	case len(from.endpoints)+len(to.endpoints)+len(to.services) == 0:
		return model.Errorf(model.ErrInvalid, "from and to: one side has to be endpoints, or to a service")
	}
	for _, a := range from.endpoints {
		for _, b := range to.endpoints {
			if a != b {
				t.between(a, b)
			}
		}
		for _, p := range to.outside {
			for _, o := range t.cluster.ToOutside(a, p) {
				t.outside(model.Out, a, o, to)
			}
		}
		for _, s := range to.services {
			t.service(a, s)
		}
	}
	for _, s := range to.services {
		t.serviceOutside(from.outside, s)
	}
	for _, p := range from.outside {
		for _, b := range to.endpoints {
			for _, o := range t.cluster.FromOutside(p, b) {
				t.outside(model.In, b, o, from)
			}
		}
	}
	return nil
}

func tooMany(pairs int) error {
	return model.Errorf(model.ErrInvalid, "from and to: these are %d pairs of endpoints, and at most %d are answered at once; ask about fewer", pairs, maxPairs)
}

func (t *table) between(a, b *desired.Port) {
	from, to := a.Endpoint.String(), b.Endpoint.String()
	four, six := t.cluster.Between(a, b, false), t.cluster.Between(a, b, true)
	switch {
	case six.Gap == reachability.GapFamily:
		t.add(from, to, Row{IPv4: true, Answer: four})
	case four.Gap == reachability.GapFamily:
		t.add(from, to, Row{IPv6: true, Answer: six})
	case four.Key() == six.Key():
		t.add(from, to, Row{IPv4: true, IPv6: true, Answer: four})
	default:
		t.add(from, to, Row{IPv4: true, Answer: four})
		t.add(from, to, Row{IPv6: true, Answer: six})
	}
}

// outside adds an answer for prefixes of a side. It says nothing of a family that the endpoint
// does not have, if both were asked about, nor of addresses that lead nowhere, beside endpoints.
func (t *table) outside(dir model.Direction, end *desired.Port, o reachability.Outside, of side) {
	if o.Gap == reachability.GapFamily && len(of.outside) > 1 || o.Gap == reachability.GapAddress && len(of.endpoints) > 0 {
		return
	}
	row := Row{IPv4: o.Prefixes[0].Addr().Is4(), IPv6: o.Prefixes[0].Addr().Is6(), Answer: o.Answer}
	for _, x := range o.Prefixes {
		from, to := end.Endpoint.String(), cmp.Or(of.name, x.String())
		if dir == model.In {
			from, to = to, from
		}
		t.add(from, to, row)
	}
}

func (t *table) service(a *desired.Port, s serviceParts) {
	known := false
	for _, key := range s.parts {
		for _, v6 := range []bool{false, true} {
			all := t.cluster.ToService(a, key, v6)
			if all == nil {
				all = t.cluster.ToServiceByHost(a, key, v6)
			}
			known = known || all != nil
			for _, p := range all {
				if !t.ports.Has(p.Protocol, p.Port) {
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
	if !known {
		t.notExposed(a.Endpoint.String(), s.key)
	}
}

// serviceOutside adds answers for clients outside.
func (t *table) serviceOutside(from []netip.Prefix, s serviceParts) {
	known := false
	for _, client := range from {
		for _, key := range s.parts {
			for _, p := range t.cluster.OutsideToService(client, key) {
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
						row.Answer = o.Answer
						for _, x := range o.Prefixes {
							t.put(x.String(), t.backend(b.Key, b.Addr), row)
						}
					}
				}
			}
		}
	}
	if !known && len(from) > 0 {
		t.notExposed(from[0].String(), s.key)
	}
}

// notExposed adds that a service has no address for a client.
func (t *table) notExposed(from string, key model.ServiceKey) {
	t.put(from, key.String(), Row{IPv4: true, IPv6: true, Answer: reachability.Answer{Route: reachability.RouteNone, Gap: GapService}})
}

// backend names a service's backend.
func (t *table) backend(key model.EndpointKey, at netip.Addr) string {
	if _, is := t.cluster.Port(key); !is || !t.scope.Has(key.Network.Tenant) {
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
