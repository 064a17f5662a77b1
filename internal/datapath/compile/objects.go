package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Of an object each node writes the fields that stand below its name; other nodes read
// them.

// network is what is known about one network key, or about a segment of it.
type network struct {
	key    model.NetworkKey
	tenant *tenant

	// networks:
	rec      *model.Network               // nil = unknown
	segments map[model.GroupName]*network // of its groups that have a VLAN; nil = none
	placed   int                          // endpoints of this host that are at home on it, not on a segment
	id       model.NetworkID              // in the desired state under this number; 0 = not in it
	claimed  model.NetworkID              // number claimed by it, whether or not it won
	// Of a segment alone, whose tables of endpoints are empty:
	base    *network // the network that it is of; nil = this is one itself
	group   model.GroupName
	segment segmentOf
	deleted bool // no longer in segments

	// endpoints:
	eps    map[model.EndpointID]*endpoint // on all hosts
	byHost map[model.HostName]set[*endpoint]
	macs   map[model.MAC][]*endpoint // who claims a MAC; nearly always one

	// Services:
	services *serviceIndex // nil = it has none
}

func (n *network) empty() bool {
	return n.rec == nil && len(n.eps) == 0 && n.id == 0 && n.claimed == 0 && n.services == nil && len(n.segments) == 0
}

// exposes reports whether services of a network are exposed (service.wantsExposure). On an
// infra network each host reaches them by its own interface there.
func (n *network) exposes() bool {
	return (n.rec == nil || n.rec.OnHosts() && n.rec.Type != model.NetworkInfra) && n.services != nil && n.services.exposing > 0
}

func eachEndpoint(n *network) func(func(*endpoint) bool) {
	return func(yield func(*endpoint) bool) {
		for _, e := range n.eps {
			if !yield(e) {
				return
			}
		}
	}
}

// here reports whether a network has endpoints on a host.
func (n *network) here(host model.HostName) bool { return len(n.byHost[host]) > 0 }

// endpoint is one endpoint and what was compiled of it.
type endpoint struct {
	// endpoints:
	model.Endpoint
	net     *network
	ifName  string
	deleted bool // deleted; to be retracted

	// networks, and endpoints when it comes:
	segment *network // where it is at home instead; nil = on net

	// Services:
	services set[*service] // that its labels provide

	// subjects:
	subject *subject // of the port

	// placement:
	isPort         bool
	isRemote       bool                // on net
	remote         desired.RemoteKey   // under which it was put, when isRemote
	segmentRemotes []desired.RemoteKey // under which it was put on segments
}

// identity is the number that the desired state shows for the endpoint; what is not
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
	key model.GroupKey

	// groups:
	rec        *model.Group
	active     []*policy // that its record names, and that are known; sorted by name
	denyReason string    // why its ports deny everything; empty = they do not
	fabric     bool      // it has a segment: the fabric enforces the policies that its record names

	// subjects:
	subjects set[*subject]
}

// subject is whom the same policies apply to: the ports with one identity of one
// group on one network, this host's own apart from containers'.
type subject struct {
	// subjects:
	key   subjectKey
	net   *network
	group *group // nil = they are in none
	ports set[*endpoint]

	// policySets:
	set *policySet // nil while no policy applies
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
	key model.PolicyKey

	// policies:
	rec       *model.Policy
	malformed string                 // what rec has that this version does not know; empty = nothing
	rules     map[model.RuleID]*rule // the node rules removes deleted ones
	named     int                    // rules for what comes in that name ports
	applies   *selection             // nil while it is unknown, or attached

	// groups:
	refs set[model.GroupKey] // groups whose record names it

	// policySets:
	sets set[*policySet]

	// rules:
	compiled bool
	in, out  desired.Rules
}

// rule is one rule and, while its policy is compiled, what was compiled of it.
type rule struct {
	// policies:
	key    model.RuleKey
	rec    *model.PolicyRule // nil = deleted, to be taken out
	policy *policy

	// rules:
	bound   *model.PolicyRule // whose selections are held
	peers   []*selection      // of bound: one for each of its peers that is no CIDR, in order
	seen    []desired.Identities
	merged  desired.Identities // of all that was seen of peers
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
	// inventory:
	name     model.TenantName
	networks set[*network]

	// routing:
	local    int // endpoints on this host, on any network
	exposing int // networks with exposed services, and routed ones
	serving  int // networks with exposed services

	// Identities:
	records         map[model.Identity]*model.IdentityRecord
	postings        map[term]set[model.Identity] // records by what they have
	uses            map[model.Identity]int       // endpoints that have it, on any network of the tenant
	orphans         set[model.Identity]          // used without a record
	later           set[model.Identity]          // of records: labels come later
	labelUsers      int                          // policies and rules that ask for labels
	compiledOrphans []model.Identity             // sorted
	compiledLater   []model.Identity             // sorted

	// selections:
	selections map[string]*selection // by their text
	byTerm     map[term]set[*selection]

	// subjects:
	subjects map[model.Identity]set[*subject]

	// rules:
	named set[*rule] // compiled ones for what goes out that name ports
}

func (t *tenant) empty() bool {
	return len(t.records) == 0 && len(t.uses) == 0 && t.labelUsers == 0 && len(t.selections) == 0 && len(t.subjects) == 0 && len(t.networks) == 0 && len(t.named) == 0
}
