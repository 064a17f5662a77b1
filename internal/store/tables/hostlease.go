package tables

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// HostLease says who has a host's name, at lock/netplugin/HOST. It lasts until
// the agent leaves, or the netmaster that leads has heard nothing of it for a
// while.
type HostLease struct {
	Host         model.HostName `json:"host"`
	Installation string         `json:"installation"`    // as in model.Host
	Boot         string         `json:"boot,omitempty"`  // of the agent's kernel
	Control      netip.Addr     `json:"control"`         // as in model.Host
	VTEP         netip.Addr     `json:"vtep"`            // as in model.Host
	Since        string         `json:"since,omitempty"` // RFC 3339, by the host's clock
	// VXLANPort and Listening (ip:port, separated by commas) are where the host is
	// registered beside it.
	VXLANPort int    `json:"vxlanPort,omitempty"`
	Listening string `json:"listening,omitempty"`
	// Kept: netmasters keep the claim, which has no lease; false in claims of agents
	// that wrote theirs themselves, with one.
	Kept bool `json:"kept,omitempty"`
}

// HostLeasesScope holds the claims of all agents that live.
const HostLeasesScope = store.Root + "lock/netplugin/"

// HostLeases holds who has the hosts' names now.
var HostLeases = declare(TableSpec[model.HostName, HostLease]{
	Noun: "claim to host", Version: 1, Unlisted: true,
	Path:  "lock/netplugin/*",
	Parse: parseHost,
	KeyOf: func(c HostLease) model.HostName { return c.Host },
	Scope: func(model.HostName) string { return HostLeasesScope },
	Name:  hostSegment,
})
