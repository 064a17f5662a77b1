package apiserver

import "github.com/contiv/netplugin/v2/internal/model"

// field says what a field of an object may hold: in words, and as far as JSON
// Schema can say it. The words are those of the API's description and of
// docs/user/fields.md; a test holds model's parsers to them.
type field struct {
	text     string
	enum     []string
	min, max int // of an integer; both zero = none
	required bool
}

const (
	nameText = "letters, digits and inner hyphens, in labels joined by dots, at most 64 characters"
	longText = "letters, digits and inner hyphens, in labels joined by dots, at most 256 characters"
	tagText  = "letters, digits and inner hyphens, in labels joined by dots, at most 128 characters; empty = none"
)

func tenantField() field {
	return field{text: "a tenant that exists: " + nameText, required: true}
}

// storageFields are those of volumes and volume profiles.
func storageFields(name string) map[string]field {
	const t = "at most 256 printable characters"
	return map[string]field{
		"tenantName": tenantField(), name: {text: nameText, required: true},
		"datastoreType": {text: t}, "mountPoint": {text: t}, "poolName": {text: t}, "size": {text: t},
	}
}

// fields are the fields that clients set, by collection and JSON name.
var fields = map[string]map[string]field{
	"globals": {
		"name":             {text: "global", enum: []string{"global"}, required: true},
		"networkInfraType": {text: "default, aci or aci-opflex; empty = as it is; cannot change while there are networks", enum: []string{"", "default", "aci", "aci-opflex"}},
		"fwdMode":          {text: "bridge or routing; empty = as it is; cannot change while there are networks", enum: []string{"", "bridge", "routing"}},
		"arpMode":          {text: "proxy or flood; empty = as it is; cannot change while there are networks", enum: []string{"", "proxy", "flood"}},
		"vlans":            {text: "lo-hi within 1-4094, around every VLAN in use; empty = as it is"},
		"vxlans":           {text: "lo-hi within 1-16777215, around every VNI in use; empty = as it is"},
		"pvtSubnet":        {text: "an IPv4 subnet of length 16; empty = as it is; cannot change while there are networks"},
	},
	"tenants": {
		"tenantName":     {text: nameText, required: true},
		"defaultNetwork": {text: "a network of the tenant that exists, or empty"},
	},
	"networks": {
		"tenantName":  tenantField(),
		"networkName": {text: nameText + "; no group of the tenant has it", required: true},
		"nwType":      {text: "data (default) or infra", enum: []string{"", "data", "infra"}},
		"encap":       {text: "vlan or vxlan", enum: []string{"vlan", "vxlan"}, required: true},
		"pktTag":      {text: "a free VLAN id (1-4094) or VNI (1-16777215) within the range that global sets; 0 = allocate one", min: 0, max: model.MaxVNI},
		"subnet":      {text: "an IPv4 subnet such as 10.1.1.0/24, or a range in one such as 10.1.1.10-10.1.1.50/24, that overlaps no other network of the tenant, no reserved block and not the private subnet; empty only with ipv6Subnet"},
		"gateway":     {text: "an address of the subnet other than its network and broadcast address; empty = none"},
		"ipv6Subnet":  {text: "an IPv6 subnet that overlaps no other network of the tenant and no reserved block; empty = none"},
		"ipv6Gateway": {text: "an address of the IPv6 subnet; on a VXLAN network containers get no default route by it, as IPv6 has no way out yet; empty = none"},
		"cfgdTag":     {text: tagText},
	},
	"endpointGroups": {
		"tenantName":       tenantField(),
		"groupName":        {text: nameText + "; no network of the tenant has it", required: true},
		"networkName":      {text: "a network of the tenant that exists; cannot change", required: true},
		"policies":         {text: "at most 8 policies of the tenant that exist"},
		"netProfile":       {text: "a net profile of the tenant that exists; empty = none"},
		"ipPool":           {text: "first-last inside the subnet and range of the network, without gateway, other pools and addresses in use; cannot change; empty = none"},
		"extContractsGrps": {text: "groups of external contracts of the tenant that exist; together with policies at most 10"},
		"cfgdTag":          {text: tagText},
	},
	"policys": {
		"tenantName": tenantField(), "policyName": {text: nameText, required: true},
	},
	"rules": {
		"tenantName":        tenantField(),
		"policyName":        {text: "a policy of the tenant that exists", required: true},
		"ruleId":            {text: nameText, required: true},
		"direction":         {text: "in (towards the group's endpoints) or out (from them)", enum: []string{"in", "out"}, required: true},
		"priority":          {text: "1-100, higher wins; 0 = 1", min: 0, max: 100},
		"action":            {text: "allow or deny", enum: []string{"allow", "deny"}, required: true},
		"protocol":          {text: "tcp, udp, icmp or a number 0-255; empty = any"},
		"port":              {text: "1-65535, only with protocol tcp, udp or 132 (sctp); 0 = any", min: 0, max: 65535},
		"fromEndpointGroup": {text: "a group of the tenant that exists; in rules of direction in only, as the only kind of peer"},
		"fromNetwork":       {text: "a network of the tenant that exists; in rules of direction in only, as the only kind of peer"},
		"fromIpAddress":     {text: "an IPv4 or IPv6 address or CIDR; in rules of direction in only, as the only kind of peer"},
		"toEndpointGroup":   {text: "a group of the tenant that exists; in rules of direction out only, as the only kind of peer"},
		"toNetwork":         {text: "a network of the tenant that exists; in rules of direction out only, as the only kind of peer"},
		"toIpAddress":       {text: "an IPv4 or IPv6 address or CIDR; in rules of direction out only, as the only kind of peer"},
	},
	"netprofiles": {
		"tenantName":  tenantField(),
		"profileName": {text: nameText, required: true},
		"bandwidth":   {text: "a number and a unit (k, m or g, with b or bps behind it or not, in any case), such as 10 kbps, 100mbps, 5Mb or 2g, of at most 10000g; empty = no limit"},
		"DSCP":        {text: "0-63; 0 = packets are not marked", min: 0, max: model.MaxDSCP},
		"burst":       {text: "kilobytes, 2-10486; 0 = chosen from the bandwidth", min: 0, max: model.MaxBurst},
	},
	"serviceLBs": {
		"tenantName":  tenantField(),
		"serviceName": {text: longText, required: true},
		"networkName": {text: "a network of the tenant that exists; cannot change", required: true},
		"ipAddress":   {text: "a free address of the network, outside of groups' pools; empty = any, or as it is"},
		"selectors":   {text: "1 to 32 labels key=value that a provider must have, each key once", required: true},
		"ports":       {text: "1 to 64 times service port:provider port:protocol, ports 1-65535, protocol tcp or udp in any case, each service port and protocol once", required: true},
	},
	"appProfiles": {
		"tenantName":     tenantField(),
		"appProfileName": {text: nameText, required: true},
		"endpointGroups": {text: "at most 500 groups of the tenant that exist, each once"},
	},
	"Bgps": {
		"hostname":    {text: "a host that exists: " + longText, required: true},
		"routerip":    {text: "an IPv4 address with prefix length such as 50.1.1.2/24, not the network or broadcast address", required: true},
		"as":          {text: "an AS number, 1-4294967295", required: true},
		"neighbor-as": {text: "an AS number, 1-4294967295", required: true},
		"neighbor":    {text: "an IPv4 address other than the host's own; empty = none"},
	},
	"extContractsGroups": {
		"tenantName":         tenantField(),
		"contractsGroupName": {text: nameText, required: true},
		"contractsType":      {text: "provided or consumed", enum: []string{"provided", "consumed"}, required: true},
		"contracts":          {text: "at most 256 texts of 1 to 512 printable characters without spaces and commas, each once"},
	},
	"aciGws": {
		"name":                {text: "aciGw", enum: []string{"aciGw"}, required: true},
		"physicalDomain":      {text: "at most 128 letters, digits or any of _.:-"},
		"pathBindings":        {text: "comma-separated topology/pod-N/paths-N/pathep-[ethN/N], each once; empty = none"},
		"nodeBindings":        {text: "comma-separated topology/pod-N/node-N, each once; empty = none"},
		"enforcePolicies":     {text: "yes (default) or no", enum: []string{"", "yes", "no"}},
		"includeCommonTenant": {text: "yes or no (default)", enum: []string{"", "yes", "no"}},
	},
	"volumes":        storageFields("volumeName"),
	"volumeProfiles": storageFields("volumeProfileName"),
}
