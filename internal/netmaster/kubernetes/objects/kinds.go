package objects

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv/netplugin/v2/api"
)

// Kind is a kind of objects.
type Kind struct {
	Kind, Plural, Singular, Short string
	Model                         string // name of the kind in package model
	New                           func() Object
	NewList                       func() runtime.Object

	text    string
	spec    props    // properties of the spec
	needs   []string // that must be there
	checks  []check  // of the spec
	whole   []check  // of the object
	columns []column // beside the columns of all kinds
}

// The resources, as an API server names them.
const (
	Tenants        = "tenants"
	Networks       = "networks"
	EndpointGroups = "endpointgroups"
	Policies       = "policies"
	NetProfiles    = "netprofiles"
)

// Kinds returns the kinds in the order in which one needs another.
func Kinds() []Kind {
	return []Kind{tenants(), netProfiles(), networks(), policies(), groups()}
}

func kindOf[S any](k Kind) Kind {
	k.New = func() Object { return &Of[S]{} }
	k.NewList = func() runtime.Object { return &List[S]{} }
	return k
}

func tenants() Kind {
	return kindOf[api.Tenant](Kind{
		Kind: "Tenant", Plural: Tenants, Singular: "tenant", Short: "ctenant", Model: "tenant",
		text: "A name space for networks, groups and policies.",
		spec: describe(api.Tenant{}, props{
			"tenantName":     named("the object's own where it is not given"),
			"defaultNetwork": named(""),
			"sharedNetworks": set(pattern(129, keyPattern, "TENANT:NETWORK"), 16),
		}),
		checks: []check{fixed("tenantName")},
		whole: []check{
			nameRule("tenantName"),
			{"!has(self.spec.sharedNetworks) || !self.spec.sharedNetworks.exists(n, n.split(':')[0] == " + effectiveName("tenantName") + ")", "sharedNetworks are other tenants': a tenant reaches its own networks"},
		},
		columns: []column{count("networks"), count("groups"), count("endpoints")},
	})
}

func networks() Kind {
	return kindOf[api.Network](Kind{
		Kind: "Network", Plural: Networks, Singular: "network", Short: "cnet", Model: "network",
		text: "A layer 2 segment with its subnets. It cannot change: delete it and create it again.",
		spec: describe(api.Network{}, props{
			"tenantName":  tenantName(),
			"networkName": named("the object's own where it is not given"),
			"nwType":      choice("data", "data", "infra"),
			"encap":       choice("vxlan", "vlan", "vxlan"),
			"pktTag":      number(1, 16777215),
			"subnet":      pattern(48, `^`+ipv4+`(-`+ipv4+`)?/(3[0-2]|[12]?[0-9])$`),
			"gateway":     pattern(15, `^`+ipv4+`$`),
			"ipv6Subnet":  pattern(49, `^`+ipv6+`/`+length6+`$`),
			"ipv6Gateway": pattern(45, `^`+ipv6+`$`),
			"cfgdTag":     tag(),
			"native":      boolean(),
		}),
		checks: []check{
			{"self == oldSelf", "a network cannot change: delete it and create it again"},
			{"has(self.subnet) || has(self.ipv6Subnet)", "must have subnet, ipv6Subnet, or both"},
			{"!has(self.gateway) || has(self.subnet)", "gateway needs subnet"},
			{"!has(self.ipv6Gateway) || has(self.ipv6Subnet)", "ipv6Gateway needs ipv6Subnet"},
			{"!has(self.pktTag) || self.encap != 'vlan' || self.pktTag <= 4094", "pktTag must be at most 4094 with encap vlan"},
			{"!has(self.native) || !self.native || self.tenantName == 'default' && self.encap == 'vxlan' && self.nwType == 'data'", "native is for networks of tenant default with encap vxlan and nwType data"},
		},
		whole:   []check{nameRule("networkName")},
		columns: []column{{"Encap", "string", ".spec.encap"}, {"Tag", "integer", ".status.pktTag"}, {"Subnet", "string", ".spec.subnet"}, {"IPv6Subnet", "string", ".spec.ipv6Subnet"}, count("groups"), count("endpoints")},
	})
}

func groups() Kind {
	return kindOf[api.EndpointGroup](Kind{
		Kind: "EndpointGroup", Plural: EndpointGroups, Singular: "endpointgroup", Short: "cgroup", Model: "endpointGroup",
		text: "A set of endpoints of one network that share policies. Network and pool cannot change.",
		spec: describe(api.EndpointGroup{}, props{
			"tenantName":       tenantName(),
			"groupName":        named("the object's own where it is not given"),
			"networkName":      named(""),
			"policies":         set(named("a policy of the tenant"), 8),
			"netProfile":       named(""),
			"ipPool":           pattern(31, `^`+ipv4+`-`+ipv4+`$`),
			"extContractsGrps": set(named("a group of external contracts of the tenant"), 10),
			"cfgdTag":          tag(),
		}),
		needs: []string{"networkName"},
		checks: []check{
			fixed("tenantName"), fixed("groupName"), fixed("networkName"), fixed("ipPool"),
			{"(has(self.policies) ? self.policies.size() : 0) + (has(self.extContractsGrps) ? self.extContractsGrps.size() : 0) <= 10", "policies and extContractsGrps together must be at most 10"},
		},
		whole: []check{
			nameRule("groupName"),
			{effectiveName("groupName") + " != self.spec.networkName", "a group cannot have the name of its network: networks and groups of a tenant share one name space"},
		},
		columns: []column{{"Network", "string", ".spec.networkName"}, {"Policies", "string", ".spec.policies"}, count("endpoints")},
	})
}

func policies() Kind {
	rule := object(describe(api.Rule{}, props{
		"ruleId":            named(""),
		"direction":         enum("in", "out"),
		"action":            enum("allow", "deny"),
		"priority":          number(1, 100),
		"protocol":          pattern(4, `^(tcp|udp|icmp|25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$`),
		"port":              number(1, 65535),
		"fromEndpointGroup": named(missingPeer),
		"fromNetwork":       named(missingPeer),
		"fromIpAddress":     peerAddress(),
		"toEndpointGroup":   named(missingPeer),
		"toNetwork":         named(missingPeer),
		"toIpAddress":       peerAddress(),
	}), []string{"ruleId", "direction", "action"}, []check{
		{"self.direction == 'in' || !has(self.fromEndpointGroup) && !has(self.fromNetwork) && !has(self.fromIpAddress)", "a rule of direction out has no from fields"},
		{"self.direction == 'out' || !has(self.toEndpointGroup) && !has(self.toNetwork) && !has(self.toIpAddress)", "a rule of direction in has no to fields"},
		{"[has(self.fromEndpointGroup), has(self.fromNetwork), has(self.fromIpAddress), has(self.toEndpointGroup), has(self.toNetwork), has(self.toIpAddress)].filter(x, x).size() <= 1", "a rule names one kind of peer at most"},
		{"!has(self.port) || has(self.protocol) && self.protocol in ['tcp', 'udp', '6', '17', '132']", "port needs protocol tcp, udp or 132 (sctp)"},
	})
	return kindOf[PolicySpec](Kind{
		Kind: "Policy", Plural: Policies, Singular: "policy", Short: "cpolicy", Model: "policy",
		text: "A named list of rules that groups have.",
		spec: describe(api.Policy{}, props{
			"tenantName": tenantName(),
			"policyName": named("the object's own where it is not given"),
			"rules":      described(byKey(described(rule, "a rule"), "ruleId", 1024), "what the policy allows and denies; all are replaced at once"),
		}),
		checks: []check{fixed("tenantName"), fixed("policyName")},
		whole: []check{
			nameRule("policyName"),
			{"!" + effectiveName("policyName") + ".matches('^kubernetes(-cluster|-long)?[.]')", "names that begin so are reserved for NetworkPolicies and ClusterNetworkPolicies"},
		},
		columns: []column{count("rules"), count("groups"), count("endpoints")},
	})
}

func netProfiles() Kind {
	return kindOf[api.NetProfile](Kind{
		Kind: "NetProfile", Plural: NetProfiles, Singular: "netprofile", Short: "cprofile", Model: "netprofile",
		text: "Limits what each endpoint of the groups that name it sends and receives, and marks what it sends.",
		spec: describe(api.NetProfile{}, props{
			"tenantName":  tenantName(),
			"profileName": named("the object's own where it is not given"),
			"bandwidth":   pattern(20, `^[1-9][0-9]{0,10} *[kmgKMG]([bB]([pP][sS])?)?$`),
			"DSCP":        number(1, 63),
			"burst":       number(2, 10486),

			"receiveBandwidth": pattern(20, `^[1-9][0-9]{0,10} *[kmgKMG]([bB]([pP][sS])?)?$`),
			"receiveBurst":     number(2, 10486),
		}),
		checks:  []check{fixed("tenantName"), fixed("profileName")},
		whole:   []check{nameRule("profileName")},
		columns: []column{{"Bandwidth", "string", ".spec.bandwidth"}, {"DSCP", "integer", ".spec.DSCP"}, count("groups")},
	})
}
