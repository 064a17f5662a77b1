package fields

const (
	name64   = "letters, digits and inner hyphens, in labels joined by dots, at most 64 characters"
	name128  = "letters, digits and inner hyphens, in labels joined by dots, at most 128 characters"
	name256  = "letters, digits and inner hyphens, in labels joined by dots, at most 256 characters"
	peerOf   = "must exist in the tenant; " + onePeer
	onePeer  = "the only kind of peer of the rule"
	maxBurst = 10486
)

var (
	tenant = Field{Means: "the tenant", Allows: "must exist; " + name64, Required: true}
	owner  = Field{Means: "read-only: kubernetes for one that belongs to an object of Kubernetes and is changed only there", Unset: "the users'"}
	tag    = Field{Means: "name in other systems", Allows: name128, Unset: "none"}
)

// byType has the fields by the names of types of package api.
var byType = map[string]map[string]Field{
	"Global": {
		"name":             {Allows: "global", Enum: []string{"global"}, Required: true},
		"networkInfraType": {Means: "infrastructure: default, aci or aci-opflex", Allows: "empty = as it is; cannot change while there are networks", Enum: []string{"", "default", "aci", "aci-opflex"}},
		"fwdMode":          {Means: "forwarding mode: bridge, or routing, in which networks of a tenant reach each other", Allows: "empty = as it is", Enum: []string{"", "bridge", "routing"}},
		"arpMode":          {Means: "who answers ARP: proxy (the hosts) or flood (the endpoints)", Allows: "empty = as it is; cannot change while there are networks", Enum: []string{"", "proxy", "flood"}},
		"vlans":            {Means: "VLAN ids that networks may use, lo-hi", Allows: "within 1-4094, around every VLAN in use; empty = as it is"},
		"vxlans":           {Means: "VNIs that networks may use, lo-hi", Allows: "within 1-16777215, around every VNI in use; empty = as it is"},
		"pvtSubnet":        {Means: "IPv4 /16 for the hosts' access to containers; a cluster starts with 172.19.0.0/16", Allows: "empty = as it is; cannot change while there are networks"},
		"tenantPrefixes":   {Means: "prefixes in which networks of tenant admins may have routes on hosts, and to which BGP announcements are limited", Allows: `without any, BGP announces addresses of networks that cluster admins created; at most 256; ["none"] empties the list; absent = as it is`},
		"generatedLabels":  {Means: `labels of containers that are no part of their identity, so that no policy can select by them: names, and prefixes that end in "." or "/"; default stands for the list that a new cluster has`, Allows: "at most 256; absent = as it is, and in an answer the default list; 409 for one that takes out a label which policies select by"},
	},
	"Tenant": {
		"owner":          owner,
		"tenantName":     {Means: "name of the tenant", Allows: name64, Required: true},
		"defaultNetwork": {Means: "a network of the tenant", Allows: "must exist", Unset: "none"},
		"sharedNetworks": {Means: "networks of other tenants, each TENANT:NETWORK, that the tenant's containers reach in forwarding mode routing, by rules there that allow it", Allows: "at most 16, which must exist; no network of all tenants that share networks overlaps another; absent = as it is, empty = none"},
	},
	"Network": {
		"owner":       owner,
		"tenantName":  tenant,
		"networkName": {Means: "name of the network in its tenant", Allows: name64 + "; no group of the tenant has it", Required: true},
		"nwType":      {Means: "data (default), or infra: each host has an interface of the network's name, and an address, on it", Enum: []string{"", "data", "infra"}},
		"encap":       {Means: "how hosts exchange packets: vlan or vxlan", Enum: []string{"vlan", "vxlan"}, Required: true},
		"pktTag":      {Means: "VLAN id or VNI", Allows: "a free VLAN id (1-4094) or VNI (1-16777215) within the range that global sets", Unset: "the next free one", Max: 1<<24 - 1},
		"subnet":      {Means: "IPv4 subnet such as 10.1.1.0/24, or a range of it to allocate from such as 10.1.1.10-10.1.1.50/24", Allows: "must overlap no other network of the tenant, no reserved block and not the private subnet; empty only with ipv6Subnet"},
		"gateway":     {Means: "IPv4 gateway, an address of the subnet", Allows: "other than its network and broadcast address", Unset: "none"},
		"ipv6Subnet":  {Means: "IPv6 subnet such as 2001:db8:1::/64", Allows: "must overlap no other network of the tenant, no reserved block and not fd6d:809b:d5b4::/96, in which hosts know containers", Unset: "none"},
		"ipv6Gateway": {Means: "IPv6 gateway, an address of the IPv6 subnet", Allows: "on a VXLAN network containers get a default route by it", Unset: "none"},
		"cfgdTag":     tag,
		"native":      {Means: "every host itself reaches each container of the network by the container's own address, as Kubernetes asks for nodes and pods, and they reach every host; only in tenant default, with encap vxlan", Allows: "only where the subnets hold no host's address and overlap no range of service addresses"},
	},
	"EndpointGroup": {
		"owner":            owner,
		"tenantName":       tenant,
		"groupName":        {Means: "name of the group in its tenant", Allows: name64 + "; no network of the tenant has it", Required: true},
		"networkName":      {Means: "a network of the tenant", Allows: "must exist; cannot change", Required: true},
		"policies":         {Means: "policies of the tenant to apply to the group's endpoints", Allows: "at most 8, which must exist"},
		"netProfile":       {Means: "a network profile of the tenant, which limits and marks what the group's endpoints send and receive", Allows: "must exist", Unset: "none"},
		"ipPool":           {Means: "addresses for the group's endpoints, first-last, such as 10.36.0.1-10.36.0.10", Allows: "inside the subnet and range of the network, without gateway, other pools and addresses in use; cannot change", Unset: "none"},
		"extContractsGrps": {Means: "groups of external contracts of the tenant, for ACI", Allows: "must exist; together with policies at most 10"},
		"cfgdTag":          tag,
	},
	"Policy": {
		"owner":      owner,
		"tenantName": tenant,
		"policyName": {Means: "name of the policy in its tenant", Allows: name64, Required: true},
	},
	"Rule": {
		"tenantName":        tenant,
		"policyName":        {Means: "a policy of the tenant", Allows: "must exist", Required: true},
		"ruleId":            {Means: "name of the rule in its policy", Allows: name64, Required: true},
		"direction":         {Means: "in (towards the group's endpoints) or out (from them)", Enum: []string{"in", "out"}, Required: true},
		"priority":          {Means: "the highest that matches decides; on a tie deny wins", Allows: "1-100", Unset: "1", Max: 100},
		"action":            {Means: "what to do with new connections that match: allow or deny", Enum: []string{"allow", "deny"}, Required: true},
		"protocol":          {Means: "tcp, udp, icmp or a number", Allows: "0-255", Unset: "any"},
		"port":              {Means: "destination port, with protocol tcp, udp or 132 (sctp)", Allows: "1-65535", Unset: "any", Max: 65535},
		"fromEndpointGroup": {Means: "peers of this group, with direction in", Allows: peerOf},
		"fromNetwork":       {Means: "peers on this network, with direction in", Allows: peerOf},
		"fromIpAddress":     {Means: "peers at this IPv4 or IPv6 address or in this CIDR, with direction in", Allows: onePeer},
		"toEndpointGroup":   {Means: "peers of this group, with direction out", Allows: peerOf},
		"toNetwork":         {Means: "peers on this network, with direction out", Allows: peerOf},
		"toIpAddress":       {Means: "peers at this IPv4 or IPv6 address or in this CIDR, with direction out", Allows: onePeer},
	},
	"NetworkPolicy": {
		"tenantName":        tenant,
		"networkPolicyName": {Means: "name of the policy in its tenant", Allows: name64 + "; no policy of the tenant has it", Required: true},
		"tier":              {Means: "what decides first: admin before contiv (with Contiv's policies) before kubernetes before baseline", Allows: "admin, contiv or baseline", Unset: "contiv", Enum: []string{"", "admin", "contiv", "baseline"}},
		"order":             {Means: "within the tier the lower decides first; Contiv's policies have 100", Allows: "1-200", Unset: "100", Max: 200},
		"mode":              {Means: "enforce, or audit: tell what the policy would do, and do nothing", Unset: "enforce", Enum: []string{"", "enforce", "audit"}},
		"applies":           {Means: "endpoints of the tenant by network, group, matchLabels and matchExpressions, all of them required", Allows: "labels have the syntax of Kubernetes, those that the cluster takes for generated by runtimes (generatedLabels of the settings) are no part of identities and are refused; absent = all endpoints of the tenant"},
		"defaultIn":         {Means: "what becomes of connections to the endpoints that no rule of the tier matches: allow, deny or pass (to the next tier)", Allows: "of several policies deny wins over allow, and allow over pass", Unset: "nothing", Enum: []string{"", "allow", "deny", "pass"}},
		"defaultOut":        {Means: "likewise of connections from the endpoints", Enum: []string{"", "allow", "deny", "pass"}},
		"rules":             {Allows: "at most 20000; each with ruleId, direction in or out, priority 1-100 (the higher decides first; 0 = 50), action allow, deny or pass, log, at most 64 peers (each one of selector, cidr with except, network; none = anybody) and ports (protocol tcp, udp, icmp or 0-255, with ports such as 80,443,8000-8080; none = any)"},
		"owner":             {Means: "read-only: user, or kubernetes for one that only Kubernetes may change"},
	},
	"NetProfile": {
		"owner":            owner,
		"tenantName":       tenant,
		"profileName":      {Means: "name of the profile in its tenant", Allows: name64, Required: true},
		"bandwidth":        {Means: "limit of what each endpoint sends, such as 10 kbps, 100mbps or 2g", Allows: "a number and a unit (k, m or g, with b or bps behind it or not, in any case), of at most 10000g", Unset: "no limit"},
		"DSCP":             {Means: "mark of the packets", Allows: "0-63", Unset: "packets are not marked", Max: 63},
		"burst":            {Means: "kilobytes that may be sent at once", Allows: "2-10486", Unset: "chosen from the bandwidth", Max: maxBurst},
		"receiveBandwidth": {Means: "limit of what each endpoint receives, written as bandwidth", Unset: "no limit"},
		"receiveBurst":     {Means: "kilobytes that may be received at once", Allows: "2-10486", Unset: "chosen from the bandwidth", Max: maxBurst},
	},
	"AppProfile": {
		"tenantName":     tenant,
		"appProfileName": {Means: "name of the profile in its tenant", Allows: name64, Required: true},
		"endpointGroups": {Means: "groups of the application", Allows: "at most 500 of the tenant, which must exist, each once"},
	},
	"ServiceLB": {
		"tenantName":  tenant,
		"serviceName": {Means: "name of the service in its tenant", Allows: name256, Required: true},
		"networkName": {Means: "network of the service's address and of its providers", Allows: "must exist in the tenant; cannot change", Required: true},
		"ipAddress":   {Means: "address of the service", Allows: "a free address of the network, of either family, outside of groups' pools; empty = any, or, when ipv6Address is empty too, as it is"},
		"ipv6Address": {Means: "IPv6 address of the service, if the network has IPv6", Allows: "a free IPv6 address of the network; empty = any, or, when ipAddress is empty too, as it is"},
		"affinity":    {Means: "how long a client stays with its provider after its last new connection: 1s to 24h, or off", Allows: "in whole seconds such as 10m", Unset: "3h"},
		"selectors":   {Means: "labels key=value that a provider must have", Allows: "1 to 32, each key once", Required: true},
		"ports":       {Means: "service port:provider port:protocol (tcp, udp, sctp); :name may follow", Allows: "1 to 64, ports 1-65535, the protocol (132 too) in any case, each service port and protocol once; a name has 1 to 15 lower-case letters, digits and hyphens, each once for a protocol", Required: true},
	},
	"Bgp": {
		"hostname":     {Means: "a host", Allows: "must exist; " + name256, Required: true},
		"routerip":     {Means: "IPv4 address of the host on the router's network, with prefix length, such as 50.1.1.2/24", Allows: "not the network or broadcast address", Required: true},
		"as":           {Means: "AS number of the host", Allows: "1-4294967295", Required: true},
		"neighbor-as":  {Means: "AS number of the router", Allows: "1-4294967295", Required: true},
		"neighbor":     {Means: "IPv4 address of the router", Allows: "other than the host's own", Unset: "none"},
		"routerip6":    {Means: "IPv6 address of the host on the router's network, with prefix length, such as fd50::2/64", Allows: "not link-local nor the network's own", Unset: "no routes of IPv6"},
		"neighbors":    {Means: "more routers, comma-separated ADDRESS@AS such as 50.1.1.201@500,fd50::201@500", Allows: "each once; with neighbor at most 16; of IPv6 only with routerip6"},
		"password":     {Means: "password of the sessions (TCP MD5 signatures); ******** keeps the one that is there", Allows: "at most 80 printable characters without spaces; an answer has ******** for any", Unset: "none"},
		"maxPrefixes":  {Means: "how many prefixes of each family a router may tell of; one more closes its session", Unset: "10000", Max: 1_000_000},
		"defaultRoute": {Means: "learn the default route too"},
		"bfd":          {Means: "on: find failures of routers by BFD too; off: by BGP alone", Unset: "on", Enum: []string{"", "on", "off"}},
	},
	"AciGw": {
		"name":                {Allows: "aciGw", Enum: []string{"aciGw"}, Required: true},
		"physicalDomain":      {Means: "the fabric's physical domain", Allows: "at most 128 letters, digits or any of _.:-"},
		"pathBindings":        {Means: "paths separated by commas, such as topology/pod-1/paths-101/pathep-[eth1/14]", Allows: "each once", Unset: "none"},
		"nodeBindings":        {Means: "nodes separated by commas, such as topology/pod-1/node-101", Allows: "each once", Unset: "none"},
		"enforcePolicies":     {Means: "whether the fabric enforces security policies: yes (default) or no", Enum: []string{"", "yes", "no"}},
		"includeCommonTenant": {Means: "whether objects of the tenant common are looked up too: yes or no (default)", Enum: []string{"", "yes", "no"}},
	},
	"ExtContractsGroup": {
		"tenantName":         tenant,
		"contractsGroupName": {Means: "name of the contracts in their tenant", Allows: name64, Required: true},
		"contractsType":      {Means: "whether groups provide the contracts or consume them: provided or consumed", Enum: []string{"provided", "consumed"}, Required: true},
		"contracts":          {Means: "distinguished names of contracts", Allows: "at most 256 texts of 1 to 512 printable characters without spaces and commas, each once"},
	},
}
