package store

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Allocations are create-only rows, each with its owner: two writers that want
// the same address, tag, number or name meet at one key. Under state/alloc/:
//
//	address/T/N/4HEX or 6HEX   Address: who has an address of a network
//	mac/T/N/HEX                MACOwner: who has a MAC that its runtime has chosen
//	pools/T/N                  Pools: the groups' pools of a network
//	name/T/NAME                Name: networks and groups share one name space
//	subnet/T/...               SubnetBucket: subnets of a tenant, for overlap checks
//	number/KIND/HEX            Number: VLANs, VNIs, network ids, identity numbers
//	cursor/KIND                Cursor: where the search for a free number goes on
//	identity/T/HASH            Interned: contents of an identity -> its number
//	ref/KIND/T/NAME/...        Reference: who refers to a group, network, policy ...

// AddressKey names an address of a network.
type AddressKey struct {
	Network model.NetworkKey `json:"network"`
	Addr    netip.Addr       `json:"addr"`
}

// Address says who owns an address: an endpoint, a load-balanced service (as its
// virtual address), or else a reservation.
type Address struct {
	AddressKey
	Endpoint    model.EndpointID `json:"endpoint,omitempty"`
	Group       model.GroupName  `json:"group,omitempty"` // of the endpoint, or asked for by the reservation
	Service     string           `json:"service,omitempty"`
	Reservation *Reservation     `json:"reservation,omitempty"`
}

// Reservation keeps an address for an endpoint that does not exist yet.
type Reservation struct {
	Host      model.HostName `json:"host,omitempty"`      // only an endpoint on it may take the address; empty = any
	Requester string         `json:"requester,omitempty"` // for people
	Expires   time.Time      `json:"expires"`
}

// AddressesOf is the scope of a network's addresses.
func AddressesOf(n model.NetworkKey) string {
	return AllocPrefix + "address/" + Segment(string(n.Tenant)) + "/" + Segment(string(n.Name)) + "/"
}

// AddrName returns an address's name under AddressesOf; names sort like
// addresses of one family.
func AddrName(a netip.Addr) string {
	family := "6"
	if a.Is4() {
		family = "4"
	}
	return family + hex.EncodeToString(a.AsSlice())
}

func parseAddrName(s string) (netip.Addr, bool) {
	if s == "" {
		return netip.Addr{}, false
	}
	b, err := hex.DecodeString(s[1:])
	if err != nil {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(b)
	return a, ok && AddrName(a) == s
}

// Addresses holds the allocated addresses by network.
var Addresses = NewTable(TableSpec[AddressKey, Address]{
	Noun: "address", Version: 1,
	KeyOf: func(a Address) AddressKey { return a.AddressKey },
	Show:  func(k AddressKey) string { return k.Addr.String() + " of network " + k.Network.String() },
	Scope: func(k AddressKey) string { return AddressesOf(k.Network) },
	Name:  func(k AddressKey) string { return AddrName(k.Addr) },
})

// MACKey names a MAC of a network.
type MACKey struct {
	Network model.NetworkKey `json:"network"`
	MAC     model.MAC        `json:"mac"`
}

// MACOwner says which endpoint has a MAC that its runtime has chosen. MACs made
// of addresses have no row: they are unique as addresses are.
type MACOwner struct {
	MACKey
	Endpoint model.EndpointID `json:"endpoint"`
}

// ChosenMACs holds the MACs that runtimes have chosen, by network.
var ChosenMACs = NewTable(TableSpec[MACKey, MACOwner]{
	Noun: "MAC", Version: 1, Unlisted: true,
	KeyOf: func(o MACOwner) MACKey { return o.MACKey },
	Show:  func(k MACKey) string { return k.MAC.String() + " of network " + k.Network.String() },
	Scope: func(k MACKey) string {
		return AllocPrefix + "mac/" + Segment(string(k.Network.Tenant)) + "/" + Segment(string(k.Network.Name)) + "/"
	},
	Name: func(k MACKey) string { return hex.EncodeToString(k.MAC[:]) },
})

// PoolsKey names a network's row of pools.
type PoolsKey struct{ Network model.NetworkKey }

// Pools are the address pools of a network's groups. Who allocates an address
// has this row in its read set.
type Pools struct {
	Network model.NetworkKey                    `json:"network"`
	Groups  map[model.GroupName]model.AddrRange `json:"groups"`
}

// GroupPools holds one row per network that has pools.
var GroupPools = NewTable(TableSpec[PoolsKey, Pools]{
	Noun: "address pools", Version: 1, Unlisted: true,
	KeyOf: func(p Pools) PoolsKey { return PoolsKey{p.Network} },
	Show:  func(k PoolsKey) string { return k.Network.String() },
	Scope: func(k PoolsKey) string { return AllocPrefix + "pools/" + Segment(string(k.Network.Tenant)) + "/" },
	Name:  func(k PoolsKey) string { return Segment(string(k.Network.Name)) },
})

// NameKey is a name of a tenant that a network or a group has.
type NameKey struct {
	Tenant model.TenantName `json:"tenant"`
	Name   string           `json:"name"`
}

// Name says what has the name.
type Name struct {
	NameKey
	Kind string `json:"kind"` // "network" or "endpoint group"
}

// Names holds the names of networks and groups by tenant.
var Names = NewTable(TableSpec[NameKey, Name]{
	Noun: "name", Version: 1, Unlisted: true,
	KeyOf: func(n Name) NameKey { return n.NameKey },
	Show:  func(k NameKey) string { return string(k.Tenant) + ":" + k.Name },
	Scope: func(k NameKey) string { return AllocPrefix + "name/" + Segment(string(k.Tenant)) + "/" },
	Name:  func(k NameKey) string { return Segment(k.Name) },
})

// BucketKey names a block of a tenant's address space; the zero Block stands
// for the wide subnets, which contain whole blocks.
type BucketKey struct {
	Tenant model.TenantName `json:"tenant"`
	Block  netip.Prefix     `json:"block,omitzero"`
}

// SubnetBucket holds the subnets that lie in a block, or are wide.
type SubnetBucket struct {
	BucketKey
	Subnets map[string]model.NetworkName `json:"subnets"` // prefix -> whose
}

// SubnetBlocksOf is the scope of a tenant's blocks (not of its wide subnets).
func SubnetBlocksOf(t model.TenantName) string {
	return AllocPrefix + "subnet/" + Segment(string(t)) + "/block/"
}

// Subnets holds the subnets of networks by tenant and block.
var Subnets = NewTable(TableSpec[BucketKey, SubnetBucket]{
	Noun: "subnet block", Version: 1,
	KeyOf: func(b SubnetBucket) BucketKey { return b.BucketKey },
	Scope: func(k BucketKey) string {
		if !k.Block.IsValid() {
			return AllocPrefix + "subnet/" + Segment(string(k.Tenant)) + "/wide/"
		}
		return SubnetBlocksOf(k.Tenant)
	},
	Name: func(k BucketKey) string {
		if !k.Block.IsValid() {
			return "all"
		}
		return AddrName(k.Block.Addr()) + "-" + strconv.Itoa(k.Block.Bits())
	},
})

// NumberKind says what is numbered.
type NumberKind string

// The kinds of numbers.
const (
	NumberVLAN     NumberKind = "vlan"
	NumberVNI      NumberKind = "vni"
	NumberNetwork  NumberKind = "network"
	NumberIdentity NumberKind = "identity"
)

// NumberKey is one number of a kind.
type NumberKey struct {
	Kind   NumberKind `json:"kind"`
	Number uint32     `json:"number"`
}

// Number says who has a number.
type Number struct {
	NumberKey
	Owner string `json:"owner"` // for people: a network's key, or an identity's contents
}

// NumbersOf is the scope of all numbers of a kind.
func NumbersOf(kind NumberKind) string { return AllocPrefix + "number/" + string(kind) + "/" }

// Numbers holds the numbers in use.
var Numbers = NewTable(TableSpec[NumberKey, Number]{
	Noun: "number", Version: 1,
	KeyOf: func(n Number) NumberKey { return n.NumberKey },
	Show:  func(k NumberKey) string { return string(k.Kind) + " " + strconv.FormatUint(uint64(k.Number), 10) },
	Scope: func(k NumberKey) string { return NumbersOf(k.Kind) },
	Name:  func(k NumberKey) string { return fmt.Sprintf("%08x", k.Number) },
})

// Cursor is the last number handed out of a kind: the search goes on after it,
// also in another process, so that freed numbers are not used again soon.
type Cursor struct {
	Kind NumberKind `json:"kind"`
	Last uint32     `json:"last"`
}

// CursorKey names a cursor.
type CursorKey struct{ Kind NumberKind }

// CursorStoreKey is where a cursor lies. Cursors are put blindly, by Tx.Put of
// EncodeCursor: they are hints, and the last writer wins.
func CursorStoreKey(kind NumberKind) string { return AllocPrefix + "cursor/" + string(kind) }

// EncodeCursor returns the stored form of a cursor.
func EncodeCursor(c Cursor) ([]byte, error) { return EncodeRecord(1, c) }

// InternKey is the content hash of an identity.
type InternKey struct {
	Tenant model.TenantName `json:"tenant"`
	Hash   string           `json:"hash"`
}

// Interned is the number of an identity with given contents. Draining is the
// mark of garbage collection: who uses the identity takes it off.
type Interned struct {
	InternKey
	ID       model.Identity `json:"id"`
	Draining bool           `json:"draining,omitempty"`
}

// InternedIdentities holds identities by their contents.
var InternedIdentities = NewTable(TableSpec[InternKey, Interned]{
	Noun: "interned identity", Version: 1, Unlisted: true,
	KeyOf: func(i Interned) InternKey { return i.InternKey },
	Scope: func(k InternKey) string { return AllocPrefix + "identity/" + Segment(string(k.Tenant)) + "/" },
	Name:  func(k InternKey) string { return Segment(k.Hash) },
})

// Target is what a reference points at.
type Target struct {
	Kind   string           `json:"kind"` // "group", "network", "policy", "netprofile" or "extcontracts"
	Tenant model.TenantName `json:"tenant"`
	Name   string           `json:"name"`
}

// TargetGroup is a group as the target of references.
func TargetGroup(k model.GroupKey) Target { return Target{"group", k.Tenant, string(k.Name)} }

// TargetNetwork is a network as the target of references.
func TargetNetwork(k model.NetworkKey) Target { return Target{"network", k.Tenant, string(k.Name)} }

// TargetPolicy is a policy as the target of references.
func TargetPolicy(k model.PolicyKey) Target { return Target{"policy", k.Tenant, string(k.Name)} }

// Scope is the scope of the target's references.
func (t Target) Scope() string {
	return AllocPrefix + "ref/" + t.Kind + "/" + Segment(string(t.Tenant)) + "/" + Segment(t.Name) + "/"
}

// RefKey says that From, of kind Kind, refers to Target.
type RefKey struct {
	Target Target `json:"target"`
	Kind   string `json:"kind"` // "endpoint", "rule", "group", "service" or "appprofile"
	From   string `json:"from"` // its key as text
}

// Reference is the row of a RefKey.
type Reference struct{ RefKey }

// References holds who refers to what, so that in-use checks are O(1).
var References = NewTable(TableSpec[RefKey, Reference]{
	Noun: "reference", Version: 1,
	KeyOf: func(r Reference) RefKey { return r.RefKey },
	Scope: func(k RefKey) string { return k.Target.Scope() },
	Name:  func(k RefKey) string { return k.Kind + "/" + Segment(k.From) },
})

func decodeAlloc(ev Event, seg []string) (Change, error) {
	tenant := func(i int) model.TenantName { return model.TenantName(seg[i]) }
	switch n := len(seg); {
	case n == 4 && seg[0] == "address":
		if a, ok := parseAddrName(seg[3]); ok {
			k := AddressKey{model.NetworkKey{Tenant: tenant(1), Name: model.NetworkName(seg[2])}, a}
			return decodeRow(Addresses, k, ev)
		}
	case n == 4 && seg[0] == "mac":
		if b, err := hex.DecodeString(seg[3]); err == nil && len(b) == len(model.MAC{}) {
			k := MACKey{model.NetworkKey{Tenant: tenant(1), Name: model.NetworkName(seg[2])}, model.MAC(b)}
			return decodeRow(ChosenMACs, k, ev)
		}
	case n == 3 && seg[0] == "pools":
		return decodeRow(GroupPools, PoolsKey{model.NetworkKey{Tenant: tenant(1), Name: model.NetworkName(seg[2])}}, ev)
	case n == 3 && seg[0] == "name":
		return decodeRow(Names, NameKey{tenant(1), seg[2]}, ev)
	case n == 4 && seg[0] == "subnet" && seg[2] == "wide":
		return decodeRow(Subnets, BucketKey{Tenant: tenant(1)}, ev)
	case n == 4 && seg[0] == "subnet" && seg[2] == "block":
		if p, ok := parseBlock(seg[3]); ok {
			return decodeRow(Subnets, BucketKey{tenant(1), p}, ev)
		}
	case n == 3 && seg[0] == "number":
		if v, err := strconv.ParseUint(seg[2], 16, 32); err == nil {
			return decodeRow(Numbers, NumberKey{NumberKind(seg[1]), uint32(v)}, ev)
		}
	case n == 2 && seg[0] == "cursor":
		return decodeCursor(ev, NumberKind(seg[1]))
	case n == 3 && seg[0] == "identity":
		return decodeRow(InternedIdentities, InternKey{tenant(1), seg[2]}, ev)
	case n == 6 && seg[0] == "ref":
		return decodeRow(References, RefKey{Target{seg[1], tenant(2), seg[3]}, seg[4], seg[5]}, ev)
	}
	return Change{}, nil
}

func parseBlock(s string) (netip.Prefix, bool) {
	name, bits, ok := strings.Cut(s, "-")
	a, ok2 := parseAddrName(name)
	n, err := strconv.Atoi(bits)
	if !ok || !ok2 || err != nil {
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(a, n)
	return p, p.IsValid()
}

func decodeCursor(ev Event, kind NumberKind) (Change, error) {
	c := Change{Key: CursorKey{kind}, Create: ev.KV.Create, Mod: ev.KV.Mod}
	if ev.Deleted() {
		return c, nil
	}
	v, _, err := DecodeRecord[Cursor](ev.KV.Value)
	if err != nil {
		return c, err
	}
	c.Value = v
	return c, nil
}
