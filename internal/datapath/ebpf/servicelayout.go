package ebpf

import "github.com/contiv/netplugin/v2/internal/datapath/desired"

// The layouts of bpf/services.h, and of translations of bpf/maps.h.

const (
	maxCompared   = 32 // so many backends are compared; of more there is a table
	ownersInRow   = 64
	rows          = desired.ServiceSlots / ownersInRow
	backendTables = 6 // whom is chosen among: all, those here, the near ones; of each for IPv4 and IPv6
)

type service struct {
	Generation, Seed uint64
	Affinity         uint64                // ns; 0 = none
	Pools            uint64                // which of the choices are kept, a bit each
	Candidates       [backendTables]uint32 // which of IDs are chosen among, a bit each
	SlotTable        [backendTables]uint32 // where the owners of slots are; 0 = IDs are compared
	IDs              [maxCompared]uint64
	At               [maxCompared]uint16 // their places in backends
}

type vipPortKey struct {
	VIP        uint32 // what a virtual address leads to
	Port       uint16
	Proto, Pad uint8
}

// vipPortEntry is where a port of a virtual address leads: struct frontend.
type vipPortEntry struct {
	Service         uint32
	Port            uint16
	Inside, Outside uint8
	Sources         uint32 // number of the prefixes of clients that it takes; 0 = it takes all
	Exposed         uint8
	Pad             [3]uint8
}

const (
	vipShared = 1 << 31 // of the number that a node's address leads to
	vipOwn    = 1 << 30 // beside it: the address has a number of its own
	allNodes  = 1 << 31 // of the domain in which all nodes' number is found
	sources6  = 1 << 31 // of the number of prefixes, where they are of IPv6
)

type backendKey struct{ Service, Index uint32 }

type backendEntry struct {
	ID       uint64
	IP       [2]addr // IPv4 and IPv6
	State    uint8   // by IPv4
	InPools  uint8   // may be chosen, a bit for each of choices
	Port     uint16  // its own, by IPv4; 0 = the front's
	External uint8   // it is no endpoint
	State6   uint8
	Port6    uint16
}

// ownersRow is who has some slots next to each other: places in backends.
type ownersRow [ownersInRow]uint16

type affineKey struct {
	Seed   uint64
	Client addr
}

type affine struct {
	ID, Last   uint64
	Index, Pad uint32
}

// These mark a translation's key as what the client sends: Lo is the client.
const (
	clientSide         = 1
	clientSideExternal = 2 // the client is outside
)

// externalBackend in translation.Index says that the backend is no endpoint.
const externalBackend = 1 << 31

// translation is a connection to a service.
type translation struct {
	ClientKey            connKey // Hi is the virtual address
	Index                uint32  // of the backend, and the bit that says that it is no endpoint
	Backend              addr
	NATPort, BackendPort uint16
	ConnDomain           uint32 // domain of the connection's key
	Seed, ID             uint64
}
