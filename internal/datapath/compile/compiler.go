package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Compiler holds the inputs of one host's desired state, in nodes by subject. Set and
// Delete enter the rows of the cluster, at a cost that does not depend on how much else
// there is; the exported nodes take what is no row, and answer questions. Compile brings
// the desired state up to date. Values handed in are not changed afterwards, neither by
// the Compiler nor by the caller. A Compiler is used by one goroutine at a time; the states
// that it returned may be read by any.
type Compiler struct {
	Hosts      *Hosts
	Interest   *Interest
	Control    *ControlPlane
	Identities *Identities
	Services   *Services
	Egress     *Egress

	settings  *settings
	routing   *routing
	networks  *networks
	groups    *groups
	endpoints *endpoints
	policies  *policies
	profiles  *profiles
	nodePorts *nodePorts

	order    []node
	marks    []interface{ reset() } // all
	out      *output
	problems *problems
}

// node is a part of the compilation: it owns some state, takes rows and what other nodes
// give, and gives its part of the desired state, problems, and marks for the nodes that
// depend on it. It holds the nodes that it takes from or gives to, never the Compiler, and
// these hold it neither directly nor indirectly. A node is a function of the present rows:
// it keeps nothing for the case that its input goes away.
type node interface {
	compile() // brings what is marked up to date
}

// New returns a Compiler for one host that has no rows yet.
func New(host model.HostName) *Compiler {
	var (
		dirtyNetworks   = newMarks[*network]()
		dirtyEps        = newMarks[*endpoint]()
		dirtyProviders  = newMarks[*endpoint]()
		dirtyTenants    = newMarks[*tenant]()
		dirtyGroups     = newMarks[*group]()
		dirtySubjects   = newMarks[*subject]()
		dirtyPolicies   = newMarks[*policy]()
		dirtyRules      = newMarks[*rule]()
		dirtySelections = newMarks[*selection]()
		dirtySets       = newMarks[*policySet]()
		dirtyServices   = newMarks[*service]()
		dirtyTunnels    = newMarks[netip.Addr]()
		dirtyNodes      = newMarks[netip.Addr]()

		out      = &output{Host: desired.Host{Name: host}}
		problems = &problems{}
	)
	inv := &inventory{
		networks: map[model.NetworkKey]*network{}, groups: map[model.GroupKey]*group{},
		policies: map[model.PolicyKey]*policy{}, tenants: map[model.TenantName]*tenant{},
		dirtyNetworks: dirtyNetworks, dirtyGroups: dirtyGroups, dirtyTenants: dirtyTenants,
	}
	settings := &settings{dirty: true, out: out, problems: problems}
	hosts := &Hosts{
		self: host, rows: map[model.HostName]*model.Host{},
		byTunnel: map[netip.Addr]set[model.HostName]{}, byAddress: map[netip.Addr]set[model.HostName]{},
		drained: set[model.HostName]{}, unhealthy: set[model.HostName]{},
		dirtySelf: true, dirtyTunnels: dirtyTunnels, dirtyNodes: dirtyNodes,
		inv: inv, out: out, problems: problems,
		dirtyNetworks: dirtyNetworks, dirtyEps: dirtyEps, dirtyProviders: dirtyProviders,
	}
	routing := &routing{
		routers: map[model.TenantName]model.RouterID{}, routerIDs: map[model.RouterID]set[model.TenantName]{},
		shared: map[model.TenantName][]model.NetworkKey{}, clients: map[model.TenantName]set[model.TenantName]{},
		inv: inv, settings: settings, problems: problems,
		dirtyNetworks: dirtyNetworks, dirtyTenants: dirtyTenants, dirtySubjects: dirtySubjects,
	}
	interest := &Interest{all: true, inv: inv, routing: routing, dirtyNetworks: dirtyNetworks}
	control := &ControlPlane{infra: set[*network]{}}
	selections := &selections{
		selecting: map[peerRef]set[*selection]{}, inv: inv,
		dirtySelections: dirtySelections, dirtyRules: dirtyRules, dirtyTenants: dirtyTenants,
	}
	identities := &Identities{
		namespaces: map[model.NamespaceName]*model.Namespace{}, inNamespace: map[model.NamespaceName]set[identityOf]{},
		inv: inv, selections: selections, problems: problems,
		dirtyTenants: dirtyTenants, dirtySelections: dirtySelections, dirtyRules: dirtyRules, dirtySubjects: dirtySubjects,
	}
	networks := &networks{
		self: host, netIDs: map[model.NetworkID]set[*network]{},
		inv: inv, hosts: hosts, routing: routing, interest: interest, selections: selections, control: control,
		out: out, problems: problems, dirtyNetworks: dirtyNetworks, dirtyEps: dirtyEps,
	}
	profiles := &profiles{
		rows: map[model.NetProfileKey]*model.NetProfile{}, users: map[model.NetProfileKey]set[*group]{},
		out: out, problems: problems, dirtyGroups: dirtyGroups, dirtyEps: dirtyEps,
	}
	groups := &groups{
		inv: inv, settings: settings, networks: networks, selections: selections, profiles: profiles, problems: problems,
		dirtyGroups: dirtyGroups, dirtySubjects: dirtySubjects,
	}
	policies := &policies{
		inv: inv, identities: identities, selections: selections, problems: problems,
		dirtyPolicies: dirtyPolicies, dirtyRules: dirtyRules, dirtySets: dirtySets, dirtyGroups: dirtyGroups,
	}
	rules := &rules{
		inv: inv, selections: selections, problems: problems,
		dirtyRules: dirtyRules, dirtyPolicies: dirtyPolicies, dirtySets: dirtySets,
	}
	sets := &policySets{
		all: map[string]*policySet{}, hashes: map[desired.PolicySetID]int{}, unused: set[*policySet]{},
		rules: rules, out: out, dirtySets: dirtySets, dirtyEps: dirtyEps,
	}
	subjects := &subjects{
		all: map[subjectKey]*subject{}, inv: inv, sets: sets, problems: problems,
		dirtySubjects: dirtySubjects, dirtyGroups: dirtyGroups, dirtyTenants: dirtyTenants,
	}
	plans := &policyPlans{
		subjects: subjects, sets: sets, inv: inv, settings: settings, routing: routing, control: control, problems: problems,
		dirtySubjects: dirtySubjects, dirtySets: dirtySets,
	}
	nodePorts := &nodePorts{self: host, nodes: map[model.NodeName]model.ClusterNode{}, out: out}
	services := &Services{
		rows: map[model.ServiceKey]*service{}, slices: map[model.ServiceSliceKey]*serviceSlice{},
		byBackendName: map[backendName]set[*service]{}, at: map[netip.Addr]set[*service]{},
		dirty: dirtyServices, dirtyBackends: map[*service]set[*endpoint]{},
		inv: inv, routing: routing, exposure: &exposure{map[netip.Addr]set[*service]{}, dirtyServices}, nodePorts: nodePorts,
		backends: &serviceBackends{
			self: host, byName: map[backendName][]*endpoint{}, domains: map[*network][]netip.Prefix{},
			hosts: hosts, nodePorts: nodePorts, out: out,
		},
		out: out, problems: problems, dirtyNetworks: dirtyNetworks, dirtyEps: dirtyEps, dirtyProviders: dirtyProviders,
	}
	egress := &Egress{self: host, privates: map[model.EndpointKey]netip.Addr{}, inv: inv, out: out, dirtyEps: dirtyEps}
	endpoints := &endpoints{
		self: host, inv: inv, networks: networks, routing: routing, identities: identities, services: services,
		dirtyNetworks: dirtyNetworks, dirtyEps: dirtyEps,
	}
	return &Compiler{
		Hosts: hosts, Interest: interest, Control: control, Identities: identities,
		Services: services, Egress: egress,
		settings: settings, routing: routing, networks: networks, groups: groups, endpoints: endpoints,
		policies: policies, profiles: profiles, nodePorts: nodePorts,
		// Each step is settled before the next needs it. docs/design/compile.md draws this table.
		order: []node{
			settings,
			hosts,
			networks,
			&placement{self: host, inv: inv, subjects: subjects, out: out, problems: problems, dirtyEps: dirtyEps},
			routing,
			identities,
			subjects,
			groups,
			plans,
			sets,
			policies,
			selections,
			rules,
			&setOutput{sets: sets, routing: routing, control: control, out: out, dirtySets: dirtySets, dirtyEps: dirtyEps},
			&endpointOutput{hosts: hosts, routing: routing, egress: egress, profiles: profiles, out: out, dirtyEps: dirtyEps},
			nodePorts,
			services,
			&names{out: out, dirtyEps: dirtyEps, dirtyNetworks: dirtyNetworks},
			inv,
		},
		marks: []interface{ reset() }{
			dirtyNetworks, dirtyEps, dirtyProviders, dirtyTenants, dirtyGroups, dirtySubjects, dirtyPolicies,
			dirtyRules, dirtySelections, dirtySets, dirtyServices, dirtyTunnels, dirtyNodes,
		},
		out: out, problems: problems,
	}
}

// Compile brings the desired state up to date with all changes since the last call
// and returns it, with the problems of the present inputs sorted by object.
// revision is the store revision that the inputs stand for. The state shares
// what did not change with the one before; neither may be written to.
func (c *Compiler) Compile(revision int64) (desired.Host, []Problem) {
	c.out.before = c.out.Host
	for _, n := range c.order {
		n.compile()
	}
	for _, m := range c.marks {
		m.reset()
	}
	c.out.before = desired.Host{}
	c.out.Revision = revision
	return c.out.Host, c.problems.list()
}
