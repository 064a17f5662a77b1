package ebpf

import "github.com/contiv/netplugin/v2/internal/desired"

// The layouts of bpf/services.h, and of translations of bpf/maps.h.

const (
	scanned       = 32 // so many backends are compared; of more there is a table
	ownersInRow   = 64
	rows          = desired.ServiceSlots / ownersInRow
	choices       = 6 // whom is chosen among: by clients inside, outside, by the host's own address; of each for IPv4 and IPv6
	choicesInside = 2
)

type service struct {
	Generation, Seed uint64
	Affinity         uint64          // ns; 0 = none
	Among            [choices]uint32 // which of IDs are chosen among, a bit each
	Table            [choices]uint32 // where the owners of slots are; 0 = IDs are compared
	IDs              [scanned]uint64
	At               [scanned]uint16 // their places in backends
}

type servicePortKey struct {
	Service    uint32
	Port       uint16
	Proto, Pad uint8
}

type backendKey struct{ Service, Index uint32 }

type backendEntry struct {
	ID    uint64
	IP    [2]addr // IPv4 and IPv6
	State uint8
	Among uint8 // may be chosen, a bit for each of choices
	Pad   [6]uint8
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
	frontKey        = 1
	frontOutsideKey = 2 // the client is outside
)

// translation is a connection to a service.
type translation struct {
	Front                   connKey // Hi is the virtual address
	Index                   uint32
	Backend                 addr
	BehindPort, BackendPort uint16
	Space                   uint32 // domain of the connection's key
	Seed, ID                uint64
}
