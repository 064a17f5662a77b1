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
	Classify         Stage = iota // which network, by port, tunnel key or VLAN tag
	Spoof                         // frames of local ports: are they in the port's own name
	SpoofND                       // and their neighbour discovery
	Border                        // frames from tunnel and uplink: are they of another network of the domain
	Across                        // who sent frames of another network
	Sender                        // frames from the tunnel: did their sender's host send them
	Source                        // frames from tunnel, uplink and host: who sent them
	Neighbour                     // ARP and neighbour discovery
	Advertise                     // second step of answering a neighbour solicitation
	Answer                        // back to where the question came from
	Destination                   // where a MAC is, and who is there
	Flood                         // copies for every port and host of the network
	Address                       // who an address beyond the uplink is
	Router                        // what the virtual router takes: to another network, or outside
	Hops                          // may it go on to another network
	Next                          // who has the address there
	Route                         // what goes outside
	Serve                         // what goes to a service: may its sender ask there
	Translate                     // is it of a translation
	Served                        // what became of it
	Retranslate                   // a request of a connection that is known: may its backend have new ones
	Affine                        // with whom a client stays; these flows the switch learns
	Pick                          // a backend for a new connection
	Backend                       // translated: who is the backend
	Hairpin                       // to the client itself
	SelfBackend                   // what a client answers itself
	SelfBackendSeen               // and behind its own address
	SelfBackendReply              // and in the service's name
	Track                         // connection tracking
	State                         // turn replies round to their connection's direction
	Out0                          // policy of the connection's source, a table per tier
	In0              Stage = Out0 + TiersPerDirection
	Commit           Stage = In0 + TiersPerDirection // remember a connection that was let through
	Output           Stage = Commit + 1              // encapsulate and send
	Back             Stage = Output + 1              // what goes back to a client of a service

	// Beside the way of packets, see AuditEvent.
	Logged       Stage = Back + 1                      // a rule with Log: tell of a new connection
	Audit        Stage = Logged + 1                    // which sets are audited beside the one that decided
	AuditOut0    Stage = Audit + 1                     // policy of an audited set, as Out0
	AuditIn0     Stage = AuditOut0 + TiersPerDirection // as In0
	WouldAllow   Stage = AuditIn0 + TiersPerDirection  // an audited set lets through
	WouldDeny    Stage = WouldAllow + 1                // a rule of it denies
	WouldDefault Stage = WouldDeny + 1                 // a tier of it denies
	Owner        Stage = WouldDefault + 1              // the port whose share of reports a packet uses

	// Clients outside of all networks.
	Routers      Stage = Owner + 1    // frames of other hosts' routers: are they such hosts
	Relayed      Stage = Routers + 1  // and whose packets are they
	Returned     Stage = Relayed + 1  // of backends: are they such
	Outside      Stage = Returned + 1 // is the sender outside
	Relabel      Stage = Outside + 1  // a known connection's client comes by another host
	ToTunnelHost Stage = Relabel + 1  // answers, to the host that the client came by

	// Beside the way of packets of services, see Service.counted.
	CountBegun   Stage = ToTunnelHost + 1 // connections that have been let through
	CountReplies Stage = CountBegun + 1   // packets

	// RoutedNet networks.
	RoutedNet  Stage = CountReplies + 1 // what the host's stack sends to one: to which
	RoutedTo   Stage = RoutedNet + 1    // and who has the address there
	ToExternal Stage = RoutedTo + 1     // what goes beyond: to the host's stack, or another host's
	ToNode     Stage = ToExternal + 1   // what endpoints elsewhere send here: is it for this very host

	// Between destination and serve, of what goes to an address that services share.
	NodeFrontends Stage = ToNode + 1        // whose its port is
	LearnAffinity Stage = NodeFrontends + 1 // beside commit: whose client stays, where commit translates too
	Groups        Stage = LearnAffinity + 1 // after destination: copies for members of a multicast group, and every host
	Stations      Stage = Groups + 1        // after destination: ARP and neighbour discovery, where the MAC alone says to whom
	NumStages     Stage = Stations + 1
)

var stageNames = map[Stage]string{
	Classify: "classify", Spoof: "spoof", SpoofND: "spoof-nd", Border: "border", Across: "across", Sender: "sender", Source: "source", Neighbour: "neighbour",
	Advertise: "advertise", Answer: "answer", Destination: "destination", Flood: "flood", Address: "address",
	Router: "router", Hops: "hops", Next: "next", Route: "route",
	Serve: "serve", Translate: "translate", Served: "served", Retranslate: "again", Affine: "affine", Pick: "pick", Backend: "backend",
	Hairpin: "hairpin", SelfBackend: "itself", SelfBackendSeen: "itself-seen", SelfBackendReply: "itself-back", Back: "back",
	Track: "track", State: "state", Commit: "commit", Output: "output",
	Logged: "logged", Audit: "audit", WouldAllow: "would-allow", WouldDeny: "would-deny", WouldDefault: "would-deny-default", Owner: "owner",
	Routers: "routers", Relayed: "relayed", Returned: "returned", Outside: "outside", Relabel: "relabel", ToTunnelHost: "homeward",
	CountBegun: "begun", CountReplies: "counted",
	RoutedNet: "native", RoutedTo: "native-to", ToExternal: "leave", ToNode: "to-node", NodeFrontends: "faced", LearnAffinity: "stays", Groups: "groups", Stations: "stations",
}

func (s Stage) String() string {
	switch {
	case s >= Out0 && s < In0:
		return "out-tier-" + strconv.Itoa(int(s-Out0))
	case s >= In0 && s < Commit:
		return "in-tier-" + strconv.Itoa(int(s-In0))
	case s >= AuditOut0 && s < AuditIn0:
		return "audit-out-tier-" + strconv.Itoa(int(s-AuditOut0))
	case s >= AuditIn0 && s < WouldAllow:
		return "audit-in-tier-" + strconv.Itoa(int(s-AuditIn0))
	}
	if n, ok := stageNames[s]; ok {
		return n
	}
	return "table-" + strconv.Itoa(int(s))
}

// Registers.
const (
	regDomain  = of.Metadata // desired.Domain; its lower 16 bits are the connection tracking zone
	regNetwork = of.Reg0     // model.NetworkID
	regSrc     = of.Reg1     // identity of the source; after State: of the connection's source
	regDst     = of.Reg2     // identity of the destination, likewise
	regOut     = of.Reg3     // policy set of the source when it is a local port; after State: of the connection's source
	regIn      = of.Reg4     // policy set of the destination when it is a local port, likewise
	regPort    = of.Reg5     // port number to send to, or toVTEPs
	regOrigin  = of.Reg6     // where the frame came from
	regChunk   = of.Reg7     // place in the chain of Flood's copies
	regSwap    = of.Reg8     // scratch; in the stages of asides the port that owns a connection
	regWay     = of.Reg9     // egress of a local port through the host
	regService = regChunk    // of what goes to a service: its number, which has serviceBit
	regZone    = regSwap     // the zone of a domain's translations, before State and behind Output
)

// Values of regOrigin.
const (
	fromPort   = 1
	fromTunnel = 2
	fromUplink = 3
	fromHost   = 4
	fromRouter = 5 // of a client outside, by the router of another host
	fromStack  = 6 // of a client outside, by this host's own stack
	fromBehind = 7 // of a backend elsewhere, to a client outside that asked by this host
	fromNode   = 8 // by this host's own stack, to an endpoint of a native network
	fromPod    = 9 // of an endpoint elsewhere, on a native network, to this very host
)

// Values of regWay, beside wayAnswers; 0 = none. The port may have private addresses of both families.
const (
	wayOpen     = 1  // the port has a private address of IPv4
	wayDiverted = 2  // the packet was on its way to the physical router
	wayOpen6    = 4  // the port has a private address of IPv6
	wayOwn      = 16 // a socket of the host has sent it
)

// toVTEPs in regPort means a copy to every other host of the network.
const toVTEPs = 0xfffd0000

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
