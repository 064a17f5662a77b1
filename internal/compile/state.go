package compile

import (
	"github.com/contiv/netplugin/v2/internal/desired"
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
	rec    *model.Network
	eps    map[model.EndpointID]*endpoint
	byHost map[model.HostName]set[*endpoint]
	macs   map[model.MAC][]*endpoint // who claims a MAC; nearly always one

	id      model.NetworkID // in the picture under this number; 0 = not in it
	claimed model.NetworkID // number claimed by it, whether or not it won
}

func (n *network) empty() bool { return n.rec == nil && len(n.eps) == 0 && n.id == 0 && n.claimed == 0 }

// endpoint is one endpoint and what was compiled of it.
type endpoint struct {
	model.Endpoint
	net    *network
	ifName string
	gone   bool // deleted; to be retracted

	isPort   bool
	group    *group // of the port; nil when it has none
	isRemote bool
	remote   desired.RemoteKey // under which it was put, when isRemote
}

func (e *endpoint) groupKey() model.GroupKey {
	return model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}
}

// identity is the number that the picture shows for the endpoint; what is not
// an endpoint's number counts as unknown.
func (e *endpoint) identity() model.Identity {
	if e.Identity < model.IdentityFirst || e.Identity > model.IdentityLast {
		return model.IdentityUnknown
	}
	return e.Identity
}

// group is what is known about one group key, and the policy set compiled for
// it while local ports are in it.
type group struct {
	key   model.GroupKey
	rec   *model.Group
	ports set[*endpoint] // those in the picture that belong to the group

	active []*policy          // those it is counted in as a user
	set    *desired.PolicySet // nil while no policy applies, or no port is there
}

// policy is what is known about one policy key, and its rules as compiled
// while a group with local ports uses it.
type policy struct {
	key   model.PolicyKey
	known bool
	rules map[model.RuleID]*model.Rule
	refs  set[model.GroupKey] // groups whose record names it
	users set[*group]         // those of them that are compiled

	compiled bool
	in, out  []*desired.Rule
	problems []string // objects that it put into the problem list
}

// peerRef is a name that a rule's peer can have: a group or a network.
type peerRef struct {
	tenant  model.TenantName
	group   model.GroupName
	network model.NetworkName
}

// tenant holds a tenant's identities.
type tenant struct {
	records map[model.Identity]*model.IdentityRecord
	byPeer  map[peerRef]set[model.Identity]
	uses    map[model.Identity]int // endpoints that have it, on any network of the tenant
	orphans set[model.Identity]    // used without a record

	name            model.TenantName
	compiledOrphans []model.Identity // sorted
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
