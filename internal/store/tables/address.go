package tables

import (
	"encoding/hex"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

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
	Host      model.HostName `json:"host,omitempty"`      // whose it is; empty = any host's
	AnyHost   bool           `json:"anyHost,omitempty"`   // an endpoint of any host may take the address, not only of Host
	Requester string         `json:"requester,omitempty"` // for people
	// Pod is the only pod of Kubernetes, NAMESPACE/NAME, that may take the address; empty =
	// not only one.
	Pod     string    `json:"pod,omitempty"`
	Expires time.Time `json:"expires"`
}

// AddressesOf is the scope of a network's addresses.
func AddressesOf(n model.NetworkKey) string {
	return allocOf("address", n.Tenant) + store.Segment(string(n.Name)) + "/"
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

// Addresses holds who has the addresses of networks, by network.
var Addresses = declare(TableSpec[AddressKey, Address]{
	Noun: "address", Version: 1,
	Path: "state/alloc/address/*/*/*",
	Parse: func(n []string) (AddressKey, bool) {
		a, ok := parseAddrName(n[2])
		return AddressKey{networkKey(n), a}, ok
	},
	KeyOf: func(a Address) AddressKey { return a.AddressKey },
	Show:  func(k AddressKey) string { return k.Addr.String() + " of network " + k.Network.String() },
	Scope: func(k AddressKey) string { return AddressesOf(k.Network) },
	Name:  func(k AddressKey) string { return AddrName(k.Addr) },
})
