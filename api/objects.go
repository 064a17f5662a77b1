package api

// Link names another object.
type Link struct {
	Type string `json:"type,omitempty"` // object type, such as "network"
	Key  string `json:"key,omitempty"`
}

// LinkSet names many objects of one type by their keys.
type LinkSet map[string]Link

// Object is any configuration object.
type Object interface {
	// ObjectKey builds the key from the object's own fields.
	ObjectKey() string
}

// Global holds the settings of the cluster; its key is "global".
type Global struct {
	Key              string `json:"key,omitempty"`
	ArpMode          string `json:"arpMode,omitempty"` // proxy, flood
	FwdMode          string `json:"fwdMode,omitempty"` // bridge, routing
	Name             string `json:"name,omitempty"`    // always "global"
	NetworkInfraType string `json:"networkInfraType,omitempty"`
	PvtSubnet        string `json:"pvtSubnet,omitempty"` // IPv4 /16
	Vlans            string `json:"vlans,omitempty"`     // lo-hi
	Vxlans           string `json:"vxlans,omitempty"`    // lo-hi
}

// ObjectKey returns "global".
func (o Global) ObjectKey() string { return o.Name }

// Tenant is a name space for networks, groups and policies.
type Tenant struct {
	Key            string         `json:"key,omitempty"`
	DefaultNetwork string         `json:"defaultNetwork,omitempty"`
	TenantName     string         `json:"tenantName,omitempty"`
	LinkSets       TenantLinkSets `json:"link-sets"`
}

// TenantLinkSets are what a tenant holds.
type TenantLinkSets struct {
	AppProfiles    LinkSet `json:"AppProfiles,omitempty"`
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	NetProfiles    LinkSet `json:"NetProfiles,omitempty"`
	Networks       LinkSet `json:"Networks,omitempty"`
	Policies       LinkSet `json:"Policies,omitempty"`
	Servicelbs     LinkSet `json:"Servicelbs,omitempty"`
	VolumeProfiles LinkSet `json:"VolumeProfiles,omitempty"`
	Volumes        LinkSet `json:"Volumes,omitempty"`
}

// ObjectKey returns the tenant's name.
func (o Tenant) ObjectKey() string { return o.TenantName }

// Network is a layer 2 segment with its subnets.
type Network struct {
	Key         string          `json:"key,omitempty"`
	CfgdTag     string          `json:"cfgdTag,omitempty"`
	Encap       string          `json:"encap,omitempty"` // vlan, vxlan
	Gateway     string          `json:"gateway,omitempty"`
	IPv6Gateway string          `json:"ipv6Gateway,omitempty"`
	IPv6Subnet  string          `json:"ipv6Subnet,omitempty"`
	NetworkName string          `json:"networkName,omitempty"`
	NwType      string          `json:"nwType,omitempty"` // data (default), infra
	PktTag      int             `json:"pktTag,omitempty"` // as asked for; 0 = allocate
	Subnet      string          `json:"subnet,omitempty"` // CIDR, or first-last/len
	TenantName  string          `json:"tenantName,omitempty"`
	LinkSets    NetworkLinkSets `json:"link-sets"`
	Links       NetworkLinks    `json:"links"`
}

// NetworkLinkSets are what refers to a network.
type NetworkLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	Servicelbs     LinkSet `json:"Servicelbs,omitempty"`
	Services       LinkSet `json:"Services,omitempty"`
}

// NetworkLinks are what a network refers to.
type NetworkLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:network".
func (o Network) ObjectKey() string { return o.TenantName + ":" + o.NetworkName }

// EndpointGroup is a set of endpoints of one network that share policies.
type EndpointGroup struct {
	Key              string                `json:"key,omitempty"`
	CfgdTag          string                `json:"cfgdTag,omitempty"`
	ExtContractsGrps []string              `json:"extContractsGrps,omitempty"`
	GroupName        string                `json:"groupName,omitempty"`
	IPPool           string                `json:"ipPool,omitempty"` // first-last, inside the subnet
	NetProfile       string                `json:"netProfile,omitempty"`
	NetworkName      string                `json:"networkName,omitempty"`
	Policies         []string              `json:"policies,omitempty"`
	TenantName       string                `json:"tenantName,omitempty"`
	LinkSets         EndpointGroupLinkSets `json:"link-sets"`
	Links            EndpointGroupLinks    `json:"links"`
}

// EndpointGroupLinkSets are the many objects that a group is tied to.
type EndpointGroupLinkSets struct {
	ExtContractsGrps LinkSet `json:"ExtContractsGrps,omitempty"`
	MatchRules       LinkSet `json:"MatchRules,omitempty"` // rules that name the group
	Policies         LinkSet `json:"Policies,omitempty"`
	Services         LinkSet `json:"Services,omitempty"`
}

// EndpointGroupLinks are the single objects that a group is tied to.
type EndpointGroupLinks struct {
	AppProfile Link `json:"AppProfile"`
	NetProfile Link `json:"NetProfile"`
	Network    Link `json:"Network"`
	Tenant     Link `json:"Tenant"`
}

// ObjectKey returns "tenant:group".
func (o EndpointGroup) ObjectKey() string { return o.TenantName + ":" + o.GroupName }

// Policy is a named list of rules.
type Policy struct {
	Key        string         `json:"key,omitempty"`
	PolicyName string         `json:"policyName,omitempty"`
	TenantName string         `json:"tenantName,omitempty"`
	LinkSets   PolicyLinkSets `json:"link-sets"`
	Links      PolicyLinks    `json:"links"`
}

// PolicyLinkSets are a policy's rules and the groups that it is attached to.
type PolicyLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	Rules          LinkSet `json:"Rules,omitempty"`
}

// PolicyLinks are what a policy refers to.
type PolicyLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:policy".
func (o Policy) ObjectKey() string { return o.TenantName + ":" + o.PolicyName }

// Rule is one rule of a policy.
type Rule struct {
	Key               string       `json:"key,omitempty"`
	Action            string       `json:"action,omitempty"`            // allow, deny
	Direction         string       `json:"direction,omitempty"`         // in, out
	FromEndpointGroup string       `json:"fromEndpointGroup,omitempty"` // direction in only
	FromIPAddress     string       `json:"fromIpAddress,omitempty"`     // direction in only; address or CIDR
	FromNetwork       string       `json:"fromNetwork,omitempty"`       // direction in only
	PolicyName        string       `json:"policyName,omitempty"`
	Port              int          `json:"port,omitempty"`     // 0 = any
	Priority          int          `json:"priority,omitempty"` // 1-100, higher wins
	Protocol          string       `json:"protocol,omitempty"` // tcp, udp, icmp, a number, empty = any
	RuleID            string       `json:"ruleId,omitempty"`
	TenantName        string       `json:"tenantName,omitempty"`
	ToEndpointGroup   string       `json:"toEndpointGroup,omitempty"` // direction out only
	ToIPAddress       string       `json:"toIpAddress,omitempty"`     // direction out only; address or CIDR
	ToNetwork         string       `json:"toNetwork,omitempty"`       // direction out only
	LinkSets          RuleLinkSets `json:"link-sets"`
	Links             RuleLinks    `json:"links"`
}

// RuleLinkSets are the policies that a rule belongs to: one.
type RuleLinkSets struct {
	Policies LinkSet `json:"Policies,omitempty"`
}

// RuleLinks names the group that a rule names as its peer.
type RuleLinks struct {
	MatchEndpointGroup Link `json:"MatchEndpointGroup"`
}

// ObjectKey returns "tenant:policy:rule".
func (o Rule) ObjectKey() string { return o.TenantName + ":" + o.PolicyName + ":" + o.RuleID }
