package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

type set[K comparable] map[K]struct{}

func (s set[K]) add(k K) { s[k] = struct{}{} }

// reset empties a set. A set that was big is replaced: clearing and iterating a
// map cost what it once held, and the next change must not pay for the first.
func reset[K comparable](s *set[K]) {
	if len(*s) > 64 {
		*s = set[K]{}
	} else {
		clear(*s)
	}
}

// network is what is known about one network key: its record (nil while
// unknown), its endpoints on all hosts, and what was compiled of it.
type network struct {
	key    model.NetworkKey
	tenant *tenant
	rec    *model.Network
	eps    map[model.EndpointID]*endpoint
	byHost map[model.HostName]set[*endpoint]
	macs   map[model.MAC][]*endpoint // who claims a MAC; nearly always one

	services *serviceIndex // nil = it has none
	cluster  bool          // an orchestrator's services are in its domain

	placed   int                          // endpoints of this host that are at home on it, not on a segment
	segments map[model.GroupName]*network // of its groups that have a VLAN; nil = none
	// Of a segment alone, whose tables of endpoints are empty:
	base    *network // the network that it is of; nil = this is one itself
	group   model.GroupName
	segment segmentOf
	gone    bool // no longer in segments

	id      model.NetworkID // in the picture under this number; 0 = not in it
	claimed model.NetworkID // number claimed by it, whether or not it won
}

func (n *network) empty() bool {
	return n.rec == nil && len(n.eps) == 0 && n.id == 0 && n.claimed == 0 && n.services == nil && !n.cluster && len(n.segments) == 0
}

// endpoint is one endpoint and what was compiled of it.
type endpoint struct {
	model.Endpoint
	net    *network
	seg    *network // where it is at home instead; nil = on net
	ifName string
	gone   bool // deleted; to be retracted

	services set[*service] // that its labels provide

	isPort   bool
	subject  *subject            // of the port
	isRemote bool                // on net
	remote   desired.RemoteKey   // under which it was put, when isRemote
	beside   []desired.RemoteKey // under which it was put on segments
}

// identity is the number that the picture shows for the endpoint; what is not
// an endpoint's number counts as unknown.
func (e *endpoint) identity() model.Identity {
	if e.Identity < model.IdentityFirst || e.Identity > model.IdentityLast {
		return model.IdentityUnknown
	}
	return e.Identity
}

// group is what is known about one group key, and what follows for its ports on
// this host.
type group struct {
	key      model.GroupKey
	rec      *model.Group
	subjects set[*subject]

	active []*policy // that its record names, and that are known; sorted by name
	shut   string    // why its ports deny everything; empty = they do not
	fabric bool      // it has a segment: the fabric enforces the policies that its record names
}

// subject is whom the same policies apply to: the ports with one identity of one
// group on one network, this host's own apart from containers'.
type subject struct {
	key   subjectKey
	net   *network
	group *group // nil = they are in none
	ports set[*endpoint]
	set   *policySet // nil while no policy applies
}

type subjectKey struct {
	network  model.NetworkKey
	group    model.GroupName // empty = none
	identity model.Identity
	host     bool // the host's own endpoint (model.Endpoint.OfHost)
}

// String names the subject in problems.
func (k subjectKey) String() string {
	out := "endpoints of network " + k.network.String()
	if k.host {
		out = "this host on network " + k.network.String()
	}
	if k.group != "" {
		out = fmt.Sprintf("endpoints of group %s:%s on network %s", k.network.Tenant, k.group, k.network.Name)
	}
	return out
}

// policy is what is known about one policy key, and its rules as compiled while
// a set has it.
type policy struct {
	key       model.PolicyKey
	rec       *model.Policy
	malformed string // what rec has that this version does not know; empty = nothing
	rules     map[model.RuleID]*rule
	refs      set[model.GroupKey] // groups whose record names it
	applies   *selection          // nil while it is unknown, or attached
	sets      set[*policySet]

	compiled bool
	named    int // rules for what comes in that name ports
	in, out  desired.Rules
}

// rule is one rule and, while its policy is compiled, what was compiled of it.
type rule struct {
	key    model.RuleKey
	rec    *model.PolicyRule // nil = deleted, to be taken out
	policy *policy

	bound   *model.PolicyRule // whose selections are held
	peers   []*selection      // of bound: one for each of its peers that is no CIDR, in order
	seen    []desired.Identities
	union   desired.Identities // of all that was seen of peers
	in, out []*desired.Rule    // with different IDs
	problem bool
}

// peerRef is what a selector can name: a group or a network.
type peerRef struct {
	tenant  model.TenantName
	group   model.GroupName
	network model.NetworkName
}

// tenant holds a tenant's networks and identities, and who is selected among them.
type tenant struct {
	records  map[model.Identity]*model.IdentityRecord
	postings map[term]set[model.Identity] // records by what they have
	uses     map[model.Identity]int       // endpoints that have it, on any network of the tenant
	orphans  set[model.Identity]          // used without a record
	later    set[model.Identity]          // of records: labels are told later
	asking   int                          // policies and rules that ask for labels
	subjects map[model.Identity]set[*subject]
	named    set[*rule] // compiled ones for what goes out that name ports

	selections map[string]*selection // by their text
	byTerm     map[term]set[*selection]

	networks set[*network]
	local    int // endpoints on this host, on any network
	exposing int // networks with exposed services, and native ones

	name            model.TenantName
	compiledOrphans []model.Identity // sorted
	compiledLater   []model.Identity // sorted
}

func (t *tenant) empty() bool {
	return len(t.records) == 0 && len(t.uses) == 0 && t.asking == 0 && len(t.selections) == 0 && len(t.subjects) == 0 && len(t.networks) == 0 && len(t.named) == 0
}

// lookup returns the entry of m at k, made by mk when absent.
func lookup[K comparable, V any](m map[K]*V, k K, mk func() *V) *V {
	v := m[k]
	if v == nil {
		v = mk()
		m[k] = v
	}
	return v
}
