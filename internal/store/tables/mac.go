package tables

import (
	"encoding/hex"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

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
var ChosenMACs = declare(TableSpec[MACKey, MACOwner]{
	Noun: "MAC", Version: 1, Unlisted: true,
	Path: "state/alloc/mac/*/*/*",
	Parse: func(n []string) (MACKey, bool) {
		b, err := hex.DecodeString(n[2])
		if err != nil || len(b) != len(model.MAC{}) {
			return MACKey{}, false
		}
		return MACKey{networkKey(n), model.MAC(b)}, true
	},
	KeyOf: func(o MACOwner) MACKey { return o.MACKey },
	Show:  func(k MACKey) string { return k.MAC.String() + " of network " + k.Network.String() },
	Scope: func(k MACKey) string {
		return allocOf("mac", k.Network.Tenant) + store.Segment(string(k.Network.Name)) + "/"
	},
	Name: func(k MACKey) string { return hex.EncodeToString(k.MAC[:]) },
})
