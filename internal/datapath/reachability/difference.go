package reachability

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// GapEndpoint: a side is not there.
const GapEndpoint Gap = "not-attached"

// Difference is connections that only one of two clusters allows, from each of From to each of
// To, but of no endpoint to itself. One of the sides may be addresses outside.
type Difference struct {
	Opens         bool // the second cluster allows them
	IPv4, IPv6    bool
	From, To      Side
	Ports         Ports
	Before, After Decision // of the first cluster, and of the second
}

// Side is one side of a Difference.
type Side struct {
	Endpoints []model.EndpointKey // in order
	Prefixes  []netip.Prefix      // in ascending order
}

// Decision is why connections are allowed, or are not.
type Decision struct {
	Route   Route
	Gap     Gap     // with RouteNone
	Out, In *Ruling // as a Part's; nil also without a route
}

// Clone returns a Cluster that answers the same, and is updated by itself.
func (c *Cluster) Clone() *Cluster {
	out := *c
	out.byAddress, out.byKey, out.routed, out.sets = maps.Clone(c.byAddress), maps.Clone(c.byKey), maps.Clone(c.routed), maps.Clone(c.sets)
	out.joined = map[desired.Domain]map[model.NetworkID]*desired.Network{}
	for d, all := range c.joined {
		out.joined[d] = maps.Clone(all)
	}
	return &out
}

// piece is a set of ports that one of two answers allows.
type piece struct {
	opens         bool
	ports         Ports
	before, after Decision
}

// pieces are the ports about which two answers differ, those about which the same rules decide
// together.
func pieces(before, after Answer) (out []piece) {
	for _, b := range wholeParts(before) {
		for _, a := range wholeParts(after) {
			ports := b.Ports.And(a.Ports)
			if b.Allowed == a.Allowed || ports.IsEmpty() {
				continue
			}
			p := piece{a.Allowed, ports, Decision{before.Route, before.Gap, b.Out, b.In}, Decision{after.Route, after.Gap, a.Out, a.In}}
			if i := slices.IndexFunc(out, func(o piece) bool { return o.why() == p.why() }); i >= 0 {
				out[i].ports = out[i].ports.Or(ports)
			} else {
				out = append(out, p)
			}
		}
	}
	return out
}

// wholeParts are an answer's parts; without a route nothing is allowed.
func wholeParts(a Answer) []Part {
	if a.Route == RouteNone {
		return []Part{{Ports: AllPorts()}}
	}
	return a.Parts
}

// why says by which rules answers differ.
type why struct {
	opens         bool
	before, after reason
}

type reason struct {
	route   Route
	gap     Gap
	out, in rulingKey
}

// rulingKey is a Ruling with its rule's name: other policy sets have copies of a rule.
type rulingKey struct {
	there, pass, missing bool
	rule                 string
	tier                 model.Tier
	defaultOf            string
}

func (p piece) why() why { return why{p.opens, p.before.reason(), p.after.reason()} }

func (d Decision) reason() reason { return reason{d.Route, d.Gap, d.Out.key(), d.In.key()} }

func (r *Ruling) key() (k rulingKey) {
	if r == nil {
		return k
	}
	k = rulingKey{there: true, pass: r.Pass, missing: r.Missing, tier: r.Tier, defaultOf: r.DefaultOf}
	if r.Rule != nil {
		k.rule = r.Rule.ID
	}
	return k
}
