package pipeline

import (
	"slices"
	"strconv"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Stage is a flow table. The numbers follow the order in which packets meet the tables.
type Stage uint8

// TiersPerDirection is how many tiers of policy a set may have in each direction:
// admin, Contiv, Kubernetes, baseline, and before them the control plane's.
const TiersPerDirection = 5

// The stages.
const (
	Classify           Stage = iota // network, by port, tunnel key or VLAN tag
	PortSecurity                    // source MAC and address of local ports
	PortSecurityND                  // and their neighbour discovery
	CrossNetwork                    // frames from tunnel and uplink: is the sender on another network of the domain
	CrossNetworkSource              // identity of such a sender
	TunnelSource                    // frames from the tunnel: does the sending host have the source MAC
	SourceIdentity                  // identity of the sender of frames from tunnel, uplink and host
	ARPResponder                    // ARP and neighbour discovery
	NDAdvertise                     // second step of a neighbour advertisement
	ReplyToPort                     // output to the port that asked
	Destination                     // endpoint of a MAC and address
	Flood                           // copies for all ports and hosts of the network
	UplinkIdentity                  // identity of an address beyond the uplink
	Router                          // packets to the virtual router: to another network, or egress
	TTLCheck                        // sender and TTL of packets to another network
	NextHop                         // endpoint of the destination there
	HostEgress                      // packets that leave through the host's stack
	ServiceSource                   // packets to a service: may the sender use it
	ServiceConntrack                // conntrack in the zone of translations
	ServiceState                    // its state: known, new or invalid connection
	BackendCheck                    // a request of a known connection: does its backend take new ones
	SessionAffinity                 // backend that a client stays with; the switch learns these flows
	SelectBackend                   // load balancing: a backend for a new connection
	Backend                         // endpoint of the backend
	Hairpin                         // the client is its own backend
	HairpinReply                    // its reply to itself
	HairpinUnSNAT                   // with the client's own address as destination
	HairpinUnDNAT                   // and the service's as source
	Conntrack                       // conntrack in the zone of the domain
	ConntrackState                  // its state; replies get their connection's source and destination
	EgressPolicy0                   // policy of the connection's source, a table per tier
	IngressPolicy0     Stage = EgressPolicy0 + TiersPerDirection
	ConntrackCommit    Stage = IngressPolicy0 + TiersPerDirection // commits allowed connections
	Output             Stage = ConntrackCommit + 1                // encapsulates and sends
	ServiceReply       Stage = Output + 1                         // replies of a service, after translation

	// Beside the packet's path, see AuditEvent.
	PolicyLog     Stage = ServiceReply + 1                  // a rule with Log: event of a new connection
	Audit         Stage = PolicyLog + 1                     // sets that are audited beside the one that decided
	AuditEgress0  Stage = Audit + 1                         // policy of an audited set, as EgressPolicy0
	AuditIngress0 Stage = AuditEgress0 + TiersPerDirection  // as IngressPolicy0
	WouldAllow    Stage = AuditIngress0 + TiersPerDirection // an audited set allows
	WouldDeny     Stage = WouldAllow + 1                    // a rule of it denies
	WouldDefault  Stage = WouldDeny + 1                     // a tier of it denies
	EventOwner    Stage = WouldDefault + 1                  // port whose share of events a packet uses

	// Clients outside of all networks.
	RemoteRouter   Stage = EventOwner + 1     // frames of other hosts' routers: is the sender such a host
	ExternalClient Stage = RemoteRouter + 1   // and the packet of a client outside, or of a backend
	BackendReply   Stage = ExternalClient + 1 // replies of backends on other hosts
	ExternalSource Stage = BackendReply + 1   // is the source outside of the domain
	Relabel        Stage = ExternalSource + 1 // a known connection's client may come by another host now
	ToIngressHost  Stage = Relabel + 1        // replies, to the host that the client came by

	// Beside the path of packets of services, see Service.counted.
	CountConnections Stage = ToIngressHost + 1    // allowed connections
	CountPackets     Stage = CountConnections + 1 // packets in both directions

	// Routed networks.
	RoutedNetwork  Stage = CountPackets + 1   // packets of the host's stack: which network
	RoutedEndpoint Stage = RoutedNetwork + 1  // and which endpoint
	ToExternal     Stage = RoutedEndpoint + 1 // packets that leave such a network: to the host's stack, or another host's
	ToNode         Stage = ToExternal + 1     // packets of remote endpoints: for this host itself or not

	// Between Destination and ServiceSource, for addresses that services share.
	SharedFrontends Stage = ToNode + 1          // service that has the port
	LearnAffinity   Stage = SharedFrontends + 1 // beside ConntrackCommit: learns affinity where that also translates
	MulticastGroups Stage = LearnAffinity + 1   // after Destination: copies for members of a multicast group, and other hosts
	MACLookup       Stage = MulticastGroups + 1 // after Destination: ARP and neighbour discovery in unicast frames, by MAC alone

	// Clients outside of services whose backend is no endpoint.
	Relay      Stage = MACLookup + 1 // their packets, tracked by the relay address
	RelayReply Stage = Relay + 1     // answers to that address: domain
	NumStages  Stage = RelayReply + 1
)

var stageNames = map[Stage]string{
	Classify: "classify", PortSecurity: "port-security", PortSecurityND: "port-security-nd",
	CrossNetwork: "cross-network", CrossNetworkSource: "cross-network-source", TunnelSource: "tunnel-source", SourceIdentity: "source-identity",
	ARPResponder: "arp-responder", NDAdvertise: "nd-advertise", ReplyToPort: "reply-to-port",
	Destination: "destination", Flood: "flood", UplinkIdentity: "uplink-identity",
	Router: "router", TTLCheck: "ttl-check", NextHop: "next-hop", HostEgress: "host-egress",
	ServiceSource: "service-source", ServiceConntrack: "service-conntrack", ServiceState: "service-state", BackendCheck: "backend-check",
	SessionAffinity: "session-affinity", SelectBackend: "select-backend", Backend: "backend", ServiceReply: "service-reply",
	Hairpin: "hairpin", HairpinReply: "hairpin-reply", HairpinUnSNAT: "hairpin-un-snat", HairpinUnDNAT: "hairpin-un-dnat",
	Conntrack: "conntrack", ConntrackState: "conntrack-state", ConntrackCommit: "conntrack-commit", Output: "output",
	PolicyLog: "policy-log", Audit: "audit", WouldAllow: "would-allow", WouldDeny: "would-deny", WouldDefault: "would-deny-default", EventOwner: "event-owner",
	RemoteRouter: "remote-router", ExternalClient: "external-client", BackendReply: "backend-reply", ExternalSource: "external-source",
	Relabel: "relabel", ToIngressHost: "to-ingress-host", CountConnections: "count-connections", CountPackets: "count-packets",
	RoutedNetwork: "routed-network", RoutedEndpoint: "routed-endpoint", ToExternal: "to-external", ToNode: "to-node",
	SharedFrontends: "shared-frontends", LearnAffinity: "learn-affinity", MulticastGroups: "multicast-groups", MACLookup: "mac-lookup",
	Relay: "relay", RelayReply: "relay-reply",
}

func (s Stage) String() string {
	switch {
	case s >= EgressPolicy0 && s < IngressPolicy0:
		return "egress-policy-" + strconv.Itoa(int(s-EgressPolicy0))
	case s >= IngressPolicy0 && s < ConntrackCommit:
		return "ingress-policy-" + strconv.Itoa(int(s-IngressPolicy0))
	case s >= AuditEgress0 && s < AuditIngress0:
		return "audit-egress-policy-" + strconv.Itoa(int(s-AuditEgress0))
	case s >= AuditIngress0 && s < WouldAllow:
		return "audit-ingress-policy-" + strconv.Itoa(int(s-AuditIngress0))
	}
	if n, ok := stageNames[s]; ok {
		return n
	}
	return "table-" + strconv.Itoa(int(s))
}

// Registers.
const (
	regDomain     = of.Metadata // desired.Domain; its lower 16 bits are the connection tracking zone
	regNetwork    = of.Reg0     // model.NetworkID
	regSrc        = of.Reg1     // identity of the source; after ConntrackState: of the connection's source
	regDst        = of.Reg2     // identity of the destination, likewise
	regEgressSet  = of.Reg3     // policy set of the source if it is a local port; after ConntrackState: of the connection's source
	regIngressSet = of.Reg4     // policy set of the destination if it is a local port, likewise
	regPort       = of.Reg5     // output port number, or toOtherHosts, toIngressHost
	regOrigin     = of.Reg6     // where the frame came from
	regChunk      = of.Reg7     // place in the chain of Flood's copies
	regScratch    = of.Reg8     // scratch; in the stages of audits the port that owns a connection
	regFlags      = of.Reg9     // flags of egress and of the sender
	regService    = regChunk    // number of a packet's service, with serviceBit
	regZone       = regScratch  // zone of a domain's translations, before ConntrackState and after Output
)

// Values of regOrigin.
const (
	fromPort           = 1
	fromTunnel         = 2
	fromUplink         = 3
	fromHost           = 4
	fromExternalRemote = 5  // a client outside, through another host
	fromExternalLocal  = 6  // a client outside, through this host's stack
	fromRemoteBackend  = 7  // a remote backend, to a client outside that came through this host
	fromHostRouted     = 8  // this host's stack, to a routed network
	fromRemoteRouted   = 9  // a remote endpoint of a routed network, to this host itself
	fromRelay          = 10 // this host's stack, to the relay address
)

// Values of regFlags, beside flagReplyOnly; 0 = none. The port may have host-local NAT addresses of both families.
const (
	flagEgress4    = 1  // the port has one of IPv4
	flagDiverted   = 2  // the packet was on its way to the physical router
	flagEgress6    = 4  // the port has one of IPv6
	flagHostSocket = 16 // a socket of the host sent it
)

// toOtherHosts in regPort means a copy to every other host of the network.
const toOtherHosts = 0xfffd0000

// Cookies: the upper 16 bits say that a flow is ours, the next 8 what it stands
// for; the lower 32 bits number the object.
const (
	CookieMagic uint64 = 0xc0f2 << 48
	MagicMask   uint64 = 0xffff << 48
	KindMask    uint64 = 0xff << 40
	LogBit      uint64 = 1 << 32 // of a rule with Log
	AnswerBit   uint64 = 1 << 33 // the packet goes to the driver, which answers
	NumberMask  uint64 = 1<<32 - 1
)

// Kind is what a flow stands for.
type Kind uint8

// The kinds. Those from KindAllow on count packets that were decided.
const (
	KindBase    Kind = 1
	KindNetwork Kind = 2
	KindPort    Kind = 3
	KindRemote  Kind = 4
	KindRule    Kind = 5    // owner of a rule's flows; in cookies: what the rule does
	KindAudit   Kind = 6    // tells, and decides nothing
	KindService Kind = 7    // in cookies of flows that lead to a group: GroupNumber
	KindCount   Kind = 8    // counts what goes to a service, see CountOf
	KindGroup   Kind = 9    // owner of a multicast group's flows
	KindAllow   Kind = 0x11 // a rule, by RuleNumber
	KindDeny    Kind = 0x12 // a rule
	KindPass    Kind = 0x13 // a rule
	KindDefault Kind = 0x14 // the default of a tier that lets through or on, by policy set
	KindDrop    Kind = 0x15 // by reason
)

const deciding = 0x10

type ruleKind struct {
	kind   Kind
	action model.Action
}

// ruleKinds are the kinds of flows of rules, by what the rules do. regWhat holds an index
// of it.
var ruleKinds = [model.Actions]ruleKind{{KindAllow, model.Allow}, {KindDeny, model.Deny}, {KindPass, model.Pass}}

func (k Kind) ruleIndex() int {
	return slices.IndexFunc(ruleKinds[:], func(r ruleKind) bool { return r.kind == k })
}

// IsRule reports whether a flow of the kind is a rule's, with its RuleNumber.
func (k Kind) IsRule() bool { return k.ruleIndex() >= 0 }

// Denies reports whether a flow of the kind is of a rule that denies.
func (k Kind) Denies() bool {
	i := k.ruleIndex()
	return i >= 0 && ruleKinds[i].action.Denies()
}

// DomainOf returns the domain that a flow puts packets into, 0 if it puts them into
// none.
func DomainOf(f of.Flow) desired.Domain {
	for _, a := range f.Actions {
		if s, ok := a.(of.SetField); ok && s.Field == regDomain {
			return desired.Domain(s.Value.Lo)
		}
	}
	return 0
}

func cookie(k Kind, n uint32) uint64 { return CookieMagic | uint64(k)<<40 | uint64(n) }

// KindOf splits a cookie; ours is false when the flow belongs to somebody else.
func KindOf(c uint64) (k Kind, number uint32, ours bool) {
	return Kind(c >> 40), uint32(c), c&MagicMask == CookieMagic
}

// DecidingCookies selects the flows whose kind is KindAllow or higher.
func DecidingCookies() (value, mask uint64) {
	return CookieMagic | deciding<<40, MagicMask | deciding<<40
}
