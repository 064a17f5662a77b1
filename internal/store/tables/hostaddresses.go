package tables

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// HostAddressesKey names a host whose addresses are enrolled.
type HostAddressesKey struct{ Host model.HostName }

// HostAddresses are the addresses that count as a host's for the rest of the cluster.
// A host that authenticates itself may report no others as its own.
type HostAddresses struct {
	Host model.HostName `json:"host"`
	// Enrolled came with the host's certificate, or from its authenticated connections. They
	// are the addresses that the host uses, and its last IPv6 address while it has none.
	Enrolled []netip.Addr `json:"enrolled,omitempty"`
	// Certified: the addresses of the host's certificate have counted once, and count by
	// themselves no more.
	Certified bool `json:"certified,omitempty"`
	// Added are those of an administrator.
	Added []netip.Addr `json:"added,omitempty"`
}

// Has reports whether an address counts as the host's.
func (h HostAddresses) Has(a netip.Addr) bool {
	return slices.Contains(h.Enrolled, a) || slices.Contains(h.Added, a)
}

// HostAddressesScope holds the enrolled addresses of all hosts.
const HostAddressesScope = AllocPrefix + "hostAddresses/"

// HostAddressRows holds the enrolled addresses, for netmasters alone.
var HostAddressRows = declare(TableSpec[HostAddressesKey, HostAddresses]{
	Noun: "addresses of host", Version: 1,
	Path:  "state/alloc/hostAddresses/*",
	Parse: func(n []string) (HostAddressesKey, bool) { return HostAddressesKey{model.HostName(n[0])}, true },
	KeyOf: func(h HostAddresses) HostAddressesKey { return HostAddressesKey{h.Host} },
	Show:  func(k HostAddressesKey) string { return string(k.Host) },
	Scope: func(HostAddressesKey) string { return HostAddressesScope },
	Name:  func(k HostAddressesKey) string { return hostSegment(k.Host) },
})
