package model

import "net/netip"

// Global holds the cluster's settings; there is exactly one.
type Global struct {
	Infra     InfraType    `json:"infra"`
	FwdMode   FwdMode      `json:"fwdMode"`
	ArpMode   ArpMode      `json:"arpMode"`
	VLANs     TagRange     `json:"vlans"`     // within 1-4094
	VXLANs    TagRange     `json:"vxlans"`    // within 1-16777215
	PvtSubnet netip.Prefix `json:"pvtSubnet"` // IPv4 /16, masked
}

// Tenant is a name space for networks, groups and policies; addresses of
// different tenants may overlap.
type Tenant struct {
	Name           TenantName  `json:"name"`
	DefaultNetwork NetworkName `json:"defaultNetwork,omitempty"`
}

// NetworkID numbers a network within the cluster, 1-65535; zero is "none".
// Data planes use it wherever a network must fit 16 bits (conntrack zones, map
// keys, registers), since VLAN ids and VNIs may coincide and VNIs are wider.
type NetworkID uint16

// Network is a layer 2 segment with its subnets.
type Network struct {
	Key       NetworkKey   `json:"key"`
	Type      NetworkType  `json:"type"`
	Encap     Encap        `json:"encap"`
	ReqTag    uint32       `json:"reqTag,omitempty"` // as asked for; 0 = allocate
	Tag       uint32       `json:"tag"`              // allocated VLAN id or VNI
	ID        NetworkID    `json:"id"`               // allocated
	Subnet    netip.Prefix `json:"subnet"`           // IPv4, masked; invalid (zero) on an IPv6-only network
	Range     AddrRange    `json:"range,omitzero"`   // IPv4 addresses that automatic allocation may use; zero = all of Subnet
	Gateway   netip.Addr   `json:"gateway,omitzero"` // inside Subnet, neither its first nor last address; zero = none
	Subnet6   netip.Prefix `json:"subnet6,omitzero"`
	Gateway6  netip.Addr   `json:"gateway6,omitzero"`
	CfgdTag   string       `json:"cfgdTag,omitempty"`
	RawSubnet string       `json:"rawSubnet,omitempty"` // the subnet as the user wrote it, echoed by the API

	RawSubnet6 string   `json:"rawSubnet6,omitempty"` // likewise ipv6Subnet
	Identity   Identity `json:"identity,omitempty"`   // allocated: identity of the endpoints without group and labels
}

// Group is a set of endpoints of one network that share policies.
type Group struct {
	Key          GroupKey     `json:"key"`
	Network      NetworkName  `json:"network"`
	Policies     []PolicyName `json:"policies,omitempty"`
	Pool         AddrRange    `json:"pool,omitzero"` // inside the network's subnet; zero = none
	NetProfile   string       `json:"netProfile,omitempty"`
	ExtContracts []string     `json:"extContracts,omitempty"`
	CfgdTag      string       `json:"cfgdTag,omitempty"`
	ID           Identity     `json:"id"` // identity of the group's endpoints without labels; shown as endpointGroupId
}

// NetworkKey returns the key of the group's network.
func (g Group) NetworkKey() NetworkKey { return NetworkKey{g.Key.Tenant, g.Network} }

// ContivPolicy is a named list of rules (kept apart, as Rule) that groups refer to.
type ContivPolicy struct {
	Key PolicyKey `json:"key"`
}

// Rule is one rule of a ContivPolicy. At most one of Group, Network and Addr
// is set; none of them means any peer.
type Rule struct {
	Key       RuleKey      `json:"key"`
	Direction Direction    `json:"direction"`
	Priority  int          `json:"priority"` // 1-100, higher wins
	Action    Action       `json:"action"`   // Allow or Deny
	Protocol  Protocol     `json:"protocol"`
	Port      uint16       `json:"port,omitempty"` // 0 = any; only with tcp, udp, sctp
	Group     GroupName    `json:"group,omitempty"`
	Network   NetworkName  `json:"network,omitempty"`
	Addr      netip.Prefix `json:"addr,omitzero"`     // IPv4 or IPv6
	RawAddr   string       `json:"rawAddr,omitempty"` // as the user wrote it
}

// Endpoint is a container's interface on a network.
type Endpoint struct {
	Key       EndpointKey       `json:"key"`
	Group     GroupName         `json:"group,omitempty"`
	Identity  Identity          `json:"identity"`
	Host      HostName          `json:"host,omitempty"`
	IPv4      netip.Addr        `json:"ipv4,omitzero"`
	IPv6      netip.Addr        `json:"ipv6,omitzero"`
	MAC       MAC               `json:"mac"`
	Name      string            `json:"name,omitempty"`      // common name (container name)
	Container string            `json:"container,omitempty"` // container id, when the runtime told it
	Labels    map[string]string `json:"labels,omitempty"`
}

// Host is what the cluster must know of a host to reach its endpoints. It is
// written by the host's agent and outlives it: a dead agent must not take its
// containers off the network (known fault 38).
type Host struct {
	Name    HostName   `json:"name"`
	Control netip.Addr `json:"control"`
	VTEP    netip.Addr `json:"vtep"`
	Driver  string     `json:"driver,omitempty"`
	// Installation is the UUID of the agent's state directory: who has the name.
	Installation string `json:"installation,omitempty"`
	// Store names the store that the host follows and that has all of its
	// attachments; see store.Incarnation.Mark.
	Store string `json:"store,omitempty"`
	// Format is the HostFormat of the agent that wrote this; 0 = from before there
	// was one.
	Format int `json:"format,omitempty"`
}

// HostFormat is the format of what this version's agents keep on hosts and say to
// each other: raised when an earlier agent would misread it, or be misread, so
// that it refuses to begin where a later one has been.
const HostFormat = 1

// Identity is the number that data planes match on instead of addresses:
// interned from tenant, network, group and filtered labels, never re-used while
// an endpoint has it.
type Identity uint32

const (
	// IdentityUnknown: no endpoint is known at the address. On a VXLAN network such a source is dropped.
	IdentityUnknown Identity = 0
	// IdentityExternal: an address on a VLAN network, or beyond a gateway, that is no endpoint of ours.
	IdentityExternal Identity = 1
	// IdentityHost: the host that the container runs on.
	IdentityHost Identity = 2
	// IdentityFirst is the first number handed out to endpoints.
	IdentityFirst Identity = 256
	// IdentityLast is the last one: data planes give identities 20 bits.
	IdentityLast Identity = 1<<20 - 1
)

// IdentityRecord is what an Identity stands for.
type IdentityRecord struct {
	ID      Identity          `json:"id"`
	Network NetworkKey        `json:"network"`
	Group   GroupName         `json:"group,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}
