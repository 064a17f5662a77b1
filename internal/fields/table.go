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
	tenant = Field{Description: "the tenant", Range: "must exist; " + name64, Required: true}
	owner  = Field{Description: "read-only: kubernetes if an object of Kubernetes owns it, and only that object changes it", Default: "the users'"}
	tag    = Field{Description: "name in other systems", Range: name128, Default: "none"}
)

// byType has the fields by the names of types of package api.
var byType = map[string]map[string]Field{
	"Global": {
		"name":             {Range: "global", Enum: []string{"global"}, Required: true},
		"networkInfraType": {Description: "infrastructure: default, aci or aci-opflex", Range: "empty = as it is; cannot change while there are networks", Enum: []string{"", "default", "aci", "aci-opflex"}},
		"fwdMode":          {Description: "forwarding mode: bridge, or routing, in which networks of a tenant reach each other", Range: "empty = as it is", Enum: []string{"", "bridge", "routing"}},
		"arpMode":          {Description: "who answers ARP: proxy (the hosts) or flood (the endpoints)", Range: "empty = as it is; cannot change while there are networks", Enum: []string{"", "proxy", "flood"}},
		"vlans":            {Description: "VLAN ids that networks may use, lo-hi", Range: "within 1-4094, around every VLAN in use; empty = as it is"},
		"vxlans":           {Description: "VNIs that networks may use, lo-hi", Range: "within 1-16777215, around every VNI in use; empty = as it is"},
		"pvtSubnet":        {Description: "IPv4 /16 for the hosts' access to containers; a cluster starts with 172.19.0.0/16", Range: "empty = as it is; cannot change while there are networks"},
		"tenantPrefixes":   {Description: "prefixes of which BGP announces addresses, and in which tenant admins of default may create networks with host routes; without any, all of cluster admins", Range: `at most 256; ["none"] empties the list; absent = as it is`},
		"generatedLabels":  {Description: `labels that policies cannot select by: names, and prefixes that end in "." or "/"; default = the built-in list`, Range: "at most 256; none that a policy selects by; absent = as it is, in an answer default"},
	},
	"Tenant": {
		"owner":          owner,
		"tenantName":     {Description: "name of the tenant", Range: name64, Required: true},
		"defaultNetwork": {Description: "a network of the tenant", Range: "must exist", Default: "none"},
		"sharedNetworks": {Description: "networks TENANT:NETWORK that the tenant reaches in forwarding mode routing, as rules there allow", Range: "at most 16 existing ones; no overlap among tenants that share networks; absent = as it is, empty = none"},
	},
	"Network": {
		"owner":       owner,
		"tenantName":  tenant,
		"networkName": {Description: "name of the network in its tenant", Range: name64 + "; no group of the tenant has it", Required: true},
		"nwType":      {Description: "data (default), or infra: each host has an interface of the network's name, and an address, on it", Enum: []string{"", "data", "infra"}},
		"encap":       {Description: "how hosts exchange packets: vlan or vxlan", Enum: []string{"vlan", "vxlan"}, Required: true},
		"pktTag":      {Description: "VLAN id or VNI", Range: "a free VLAN id (1-4094) or VNI (1-16777215) within the range that global sets", Default: "the next free one", Max: 1<<24 - 1},
		"subnet":      {Description: "IPv4 subnet such as 10.1.1.0/24, or a range to allocate from such as 10.1.1.10-10.1.1.50/24", Range: "no overlap with networks of the tenant, the private subnet, and loopback, link-local, multicast and reserved addresses; empty only with ipv6Subnet"},
		"gateway":     {Description: "IPv4 gateway, an address of the subnet", Range: "other than its network and broadcast address", Default: "none"},
		"ipv6Subnet":  {Description: "IPv6 subnet such as 2001:db8:1::/64", Range: "must overlap no other network of the tenant, no reserved block and not fd6d:809b:d5b4::/96, in which hosts know containers", Default: "none"},
		"ipv6Gateway": {Description: "IPv6 gateway, an address of the IPv6 subnet", Range: "on a VXLAN network containers get a default route by it", Default: "none"},
		"cfgdTag":     tag,
		"native":      {Description: "hosts and containers of the network reach each other by the containers' own addresses, as Kubernetes requires", Range: "only in tenant default with encap vxlan, if the subnets overlap no addresses of hosts and services"},
	},
	"EndpointGroup": {
		"owner":            owner,
		"tenantName":       tenant,
		"groupName":        {Description: "name of the group in its tenant", Range: name64 + "; no network of the tenant has it", Required: true},
		"networkName":      {Description: "a network of the tenant", Range: "must exist; cannot change", Required: true},
		"policies":         {Description: "group policies of the tenant to apply to the group's endpoints", Range: "at most 8, which must exist"},
		"netProfile":       {Description: "a network profile of the tenant, which limits and marks what the group's endpoints send and receive", Range: "must exist", Default: "none"},
		"ipPool":           {Description: "addresses for the group's endpoints, first-last, such as 10.36.0.1-10.36.0.10", Range: "in the network's range, without gateway, other pools and addresses in use; cannot change", Default: "none"},
		"extContractsGrps": {Description: "groups of external contracts of the tenant, for ACI", Range: "must exist; together with policies at most 10"},
		"cfgdTag":          tag,
	},
	"Policy": {
		"owner":      owner,
		"tenantName": tenant,
		"policyName": {Description: "name of the policy in its tenant", Range: name64, Required: true},
	},
	"Rule": {
		"tenantName":        tenant,
		"policyName":        {Description: "a policy of the tenant", Range: "must exist", Required: true},
		"ruleId":            {Description: "name of the rule in its policy", Range: name64, Required: true},
		"direction":         {Description: "in (towards the group's endpoints) or out (from them)", Enum: []string{"in", "out"}, Required: true},
		"priority":          {Description: "the highest that matches decides; on a tie deny wins", Range: "1-100", Default: "1", Max: 100},
		"action":            {Description: "what to do with new connections that match: allow or deny", Enum: []string{"allow", "deny"}, Required: true},
		"protocol":          {Description: "tcp, udp, icmp or a number", Range: "0-255", Default: "any"},
		"port":              {Description: "destination port, with protocol tcp, udp or 132 (sctp)", Range: "1-65535", Default: "any", Max: 65535},
		"fromEndpointGroup": {Description: "peers of this group, with direction in", Range: peerOf},
		"fromNetwork":       {Description: "peers on this network, with direction in", Range: peerOf},
		"fromIpAddress":     {Description: "peers at this IPv4 or IPv6 address or in this CIDR, with direction in", Range: onePeer},
		"toEndpointGroup":   {Description: "peers of this group, with direction out", Range: peerOf},
		"toNetwork":         {Description: "peers on this network, with direction out", Range: peerOf},
		"toIpAddress":       {Description: "peers at this IPv4 or IPv6 address or in this CIDR, with direction out", Range: onePeer},
	},
	"NetworkPolicy": {
		"tenantName":        tenant,
		"networkPolicyName": {Description: "name of the policy in its tenant", Range: name64 + "; no group policy of the tenant has it", Required: true},
		"tier":              {Description: "order of tiers: admin, contiv (with group policies), kubernetes, baseline", Range: "admin, contiv or baseline", Default: "contiv", Enum: []string{"", "admin", "contiv", "baseline"}},
		"order":             {Description: "within the tier the lowest decides first; group policies have 100", Range: "1-200", Default: "100", Max: 200},
		"mode":              {Description: "enforce, or audit: report what the policy would do, without effect on traffic; an enforced one is so no longer", Default: "enforce", Enum: []string{"", "enforce", "audit"}},
		"applies":           {Description: "endpoints of the tenant that match all of network, group, matchLabels and matchExpressions", Range: "labels with the syntax of Kubernetes, none of generatedLabels; absent = all endpoints of the tenant"},
		"defaultIn":         {Description: "action for connections to the endpoints that no rule of the tier matches: allow, deny or pass (to the next tier)", Range: "of several policies deny wins over allow, and allow over pass", Default: "nothing", Enum: []string{"", "allow", "deny", "pass"}},
		"defaultOut":        {Description: "action for connections from the endpoints, as defaultIn", Enum: []string{"", "allow", "deny", "pass"}},
		"rules":             {Description: "the highest priority decides first", Range: "at most 20000; each with ruleId, direction, action, priority 1-100 (0 = 50), log, 64 peers (selector as applies, cidr with except, or network; none = any) and ports (protocol, ports; none = any)"},
		"owner":             {Description: "read-only: user, or kubernetes for one that only Kubernetes may change"},
	},
	"NetProfile": {
		"owner":            owner,
		"tenantName":       tenant,
		"profileName":      {Description: "name of the profile in its tenant", Range: name64, Required: true},
		"bandwidth":        {Description: "limit of what each endpoint sends, such as 10 kbps, 100mbps or 2g", Range: "a number and a unit (k, m or g, with b or bps behind it or not, in any case), of at most 10000g", Default: "no limit"},
		"DSCP":             {Description: "mark of the packets", Range: "0-63", Default: "packets are not marked", Max: 63},
		"burst":            {Description: "kilobytes that may be sent at once", Range: "2-10486", Default: "chosen from the bandwidth", Max: maxBurst},
		"receiveBandwidth": {Description: "limit of what each endpoint receives, written as bandwidth", Default: "no limit"},
		"receiveBurst":     {Description: "kilobytes that may be received at once", Range: "2-10486", Default: "chosen from the bandwidth", Max: maxBurst},
	},
	"AppProfile": {
		"tenantName":     tenant,
		"appProfileName": {Description: "name of the profile in its tenant", Range: name64, Required: true},
		"endpointGroups": {Description: "groups of the application", Range: "at most 500 of the tenant, which must exist, each once"},
	},
	"ServiceLB": {
		"tenantName":  tenant,
		"serviceName": {Description: "name of the service in its tenant", Range: name256, Required: true},
		"networkName": {Description: "network of the service's address and of its providers", Range: "must exist in the tenant; cannot change", Required: true},
		"ipAddress":   {Description: "address of the service", Range: "a free address of the network, of either family, outside of groups' pools; empty = any, or, when ipv6Address is empty too, as it is"},
		"ipv6Address": {Description: "IPv6 address of the service, if the network has IPv6", Range: "a free IPv6 address of the network; empty = any, or, when ipAddress is empty too, as it is"},
		"affinity":    {Description: "how long a client stays with its provider after its last new connection: 1s to 24h, or off", Range: "in whole seconds such as 10m", Default: "3h"},
		"selectors":   {Description: "labels key=value that a provider must have", Range: "1 to 32, each key once", Required: true},
		"ports":       {Description: "service port:provider port:protocol (tcp, udp, sctp); :name may follow", Range: "1 to 64, each port and protocol once; a name has 1 to 15 lower-case letters, digits and hyphens", Required: true},
	},
	"Bgp": {
		"hostname":     {Description: "a host", Range: "must exist; " + name256, Required: true},
		"routerip":     {Description: "IPv4 address of the host on the router's network, with prefix length, such as 50.1.1.2/24", Range: "not the network or broadcast address", Required: true},
		"as":           {Description: "AS number of the host", Range: "1-4294967295", Required: true},
		"neighbor-as":  {Description: "AS number of the router", Range: "1-4294967295", Required: true},
		"neighbor":     {Description: "IPv4 address of the router", Range: "other than the host's own", Default: "none"},
		"routerip6":    {Description: "IPv6 address of the host on the router's network, with prefix length, such as fd50::2/64", Range: "not link-local nor the network's own", Default: "no routes of IPv6"},
		"neighbors":    {Description: "more routers, comma-separated ADDRESS@AS such as 50.1.1.201@500,fd50::201@500", Range: "each once; with neighbor at most 16; of IPv6 only with routerip6"},
		"password":     {Description: "password of the sessions (TCP MD5 signatures); ******** keeps the one that is there", Range: "at most 80 printable characters without spaces; an answer has ******** for any", Default: "none"},
		"maxPrefixes":  {Description: "how many prefixes of each family a router may tell of; one more closes its session", Default: "10000", Max: 1_000_000},
		"defaultRoute": {Description: "learn the default route too"},
		"bfd":          {Description: "on: find failures of routers by BFD too; off: by BGP alone", Default: "on", Enum: []string{"", "on", "off"}},
	},
	"AciGw": {
		"name":                {Range: "aciGw", Enum: []string{"aciGw"}, Required: true},
		"physicalDomain":      {Description: "the fabric's physical domain", Range: "at most 128 letters, digits or any of _.:-"},
		"pathBindings":        {Description: "paths separated by commas, such as topology/pod-1/paths-101/pathep-[eth1/14]", Range: "each once", Default: "none"},
		"nodeBindings":        {Description: "nodes separated by commas, such as topology/pod-1/node-101", Range: "each once", Default: "none"},
		"enforcePolicies":     {Description: "whether the fabric enforces security policies: yes (default) or no", Enum: []string{"", "yes", "no"}},
		"includeCommonTenant": {Description: "whether objects of the tenant common are looked up too: yes or no (default)", Enum: []string{"", "yes", "no"}},
	},
	"Assertion": {
		"tenantName":    tenant,
		"assertionName": {Description: "name of the assertion in its tenant", Range: name64, Required: true},
		"verdict":       {Description: "never: nothing of it is allowed, or always: all of it is", Enum: []string{"never", "always"}, Required: true},
		"from":          {Description: "who opens connections, as for 'netctl can': group:NAME, network:NAME, KEY=VALUE of labels, an address range, internet, any, and others", Range: "of the assertion's tenant, unless clusterWide", Required: true},
		"to":            {Description: "to whom, as from", Range: "as from", Required: true},
		"ports":         {Description: "protocols and ports, such as tcp/443, udp/8000-8100 or icmp", Range: "at most 32", Default: "all"},
		"clusterWide":   {Description: "it is about the endpoints of all tenants; cluster admins write it"},
		"owner":         {Description: "who answers for it, which refusals name", Range: "at most 256 printable characters", Default: "none"},
		"reason":        {Description: "why it is, which refusals name", Range: "at most 256 printable characters", Default: "none"},
		"overridden":    {Description: "read-only: why a cluster administrator made a change that broke it", Default: "none"},
	},
	"ExtContractsGroup": {
		"tenantName":         tenant,
		"contractsGroupName": {Description: "name of the contracts in their tenant", Range: name64, Required: true},
		"contractsType":      {Description: "whether groups provide the contracts or consume them: provided or consumed", Enum: []string{"provided", "consumed"}, Required: true},
		"contracts":          {Description: "distinguished names of contracts", Range: "at most 256 texts of 1 to 512 printable characters without spaces and commas, each once"},
	},
}
