package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Host is all that one host's data plane has to be. Values reached through it
// are never changed; a new desired state shares what stayed the same.
type Host struct {
	Name     model.HostName
	Revision int64 // store revision that the desired state was compiled from
	VTEP     netip.Addr
	FwdMode  model.FwdMode
	ArpMode  model.ArpMode
	HostNAT  *HostNAT // egress through the host's stack; nil = none

	// Router is an interface that the host's stack is to have on the untagged segment of
	// the uplinks; empty = none. Only drivers that take the uplinks from the stack
	// (driver.Capabilities.TakesUplinks) make it.
	Router string

	// Tunnels are the other hosts' tunnel endpoints, whose clients outside of all
	// networks are believed to be such.
	Tunnels Map[netip.Addr, model.HostName]

	// Nodes are the addresses of the cluster's machines, this one's too, each with the
	// tunnel endpoint of its machine: who speaks to native networks by them.
	Nodes Map[netip.Addr, netip.Addr]

	Networks   Map[model.NetworkID, *Network]
	Ports      Map[string, *Port]           // local endpoints, by Port.IfName
	Remotes    Map[RemoteKey, *Remote]      // endpoints on other hosts, of the networks above
	PolicySets Map[PolicySetID, *PolicySet] // only sets that a local port refers to

	// Parts that a driver makes true if its Capabilities say so, and does not look at
	// otherwise: the host's problems then say that they have no effect.
	Services  Map[model.ServiceKey, *Service]
	Bandwidth Map[string, *Rate] // by Port.IfName
	Groups    Map[GroupKey, *Group]

	// NodeAddrs are the addresses of nodes, this one's among them, at which services
	// may have frontends (Frontend.Addr); who else is asked there is not the services' affair.
	NodeAddrs Map[netip.Addr, struct{}]

	// ServiceRanges are the prefixes that addresses of an orchestrator's services come
	// from, for the host's stack; drivers ignore them.
	ServiceRanges []netip.Prefix

	DNS DNS // for the host's name server; drivers ignore it
}

// Network is a segment that has endpoints on this host or exposed services, is native,
// or is joined by routing to such a network.
type Network struct {
	ID       model.NetworkID
	Key      model.NetworkKey
	Group    model.GroupName // the owner of the VLAN among the groups of the network named Key; empty = the network's own tag
	Encap    model.Encap
	Tag      uint32 // VLAN id or VNI
	Subnet   netip.Prefix
	Subnet6  netip.Prefix
	Gateway  netip.Addr
	Gateway6 netip.Addr
	VTEPs    []netip.Addr   // VXLAN: other hosts with endpoints on the network, sorted; where flooding goes
	Routed   bool           // VXLAN: hosts' stacks know its endpoints by their own addresses (docs/design/native.md)
	ByTenant bool           // no cluster administrator created it: see model.Network
	Joined   model.RouterID // whose networks reach each other: its tenant's router; 0 = it is routed to none
}

// Port is a local endpoint.
type Port struct {
	IfName   string // host side of the veth pair; derived from the endpoint's key, at most 15 bytes
	Endpoint model.EndpointKey
	Network  model.NetworkID
	MAC      model.MAC
	IPv4     netip.Addr
	IPv6     netip.Addr
	Identity model.Identity
	Private  netip.Addr  // the endpoint's address in Host.HostNAT; zero = its IPv4 has no egress
	Private6 netip.Addr  // the same for IPv6; its last 32 bits are unique too
	Policies PolicySetID // 0 = none applies: everything passes
	OnHost   bool        // the other side of the pair is the host's own interface, in the host's namespace
}

// RemoteKey finds a remote endpoint by its MAC, unique within a network.
type RemoteKey struct {
	Network model.NetworkID
	MAC     model.MAC
}

// Remote is an endpoint on another host.
type Remote struct {
	Network  model.NetworkID
	MAC      model.MAC
	IPv4     netip.Addr
	IPv6     netip.Addr
	Identity model.Identity
	VTEP     netip.Addr // invalid (zero) while its host is unknown, and on VLAN networks that are not joined
}

// PolicySetID numbers a PolicySet on this host; ports with equal policy share one.
type PolicySetID uint32

// PolicySet is the whole policy of the ports that refer to it.
type PolicySet struct {
	ID   PolicySetID
	Name string // canonical list of the policies in it, for people
	In   []Tier // in order; beyond the last tier everything passes
	Out  []Tier
	// Audited is the policy under audit that this set has as if it were enforced.
	// Such a set decides nothing; empty in a set that decides.
	Audited string
	// Audits are such sets: this one, once for each policy under audit that applies,
	// with that policy. Drivers tell what they would have decided.
	Audits []PolicySetID
}

// Tier is one stage of decision: the first rule in deciding order (CompareRules)
// that matches decides, else Default.
type Tier struct {
	Tier    model.Tier
	Rules   Rules
	Default model.Action // Pass = go to the next tier
	// DefaultOf lists the policies whose default that is, for people: tenant:policy, separated
	// by commas; empty = it is no policy's.
	DefaultOf string
}

// Rules are the rules of one tier and direction by ID. They are a Map so that
// one rule's change costs the same among ten and among ten thousand.
type Rules = Map[string, *Rule]

// Rule matches the peer of a connection (its source for In, its destination
// for Out), the protocol and the destination port.
type Rule struct {
	ID       string // unique within tier and direction
	Priority int    // 0 to MaxPriority, made of its policy's order and its own priority; the higher decides
	Action   model.Action
	Log      bool // tell of each connection that it decides about
	// The peer matches when AnyPeer is set, when its identity is one of Identities,
	// or when its address is in one of CIDRs: with none of these, never.
	AnyPeer    bool
	Identities Identities
	CIDRs      []CIDR
	Ports      []model.PortMatch // empty = any protocol
}

// CIDR is a prefix with exceptions. Network, when not zero, limits it to peers on
// that network: addresses of a VLAN network's subnet that no endpoint has.
type CIDR struct {
	Prefix  netip.Prefix
	Except  []netip.Prefix
	Network model.NetworkID
}
