package model

import "net/netip"

// HostName names a host: at most 256 characters, otherwise as the other names.
type HostName string

// ParseHostName checks a host's name. The error is of kind ErrInvalid.
func ParseHostName(s string) (HostName, error) { return HostName(s), parseName("host", s, 256) }

// Host is what the cluster must know of a host to reach its endpoints. It is
// written by the host's agent and outlives it: a dead agent must not take its
// containers off the network (known fault 38).
type Host struct {
	Name    HostName   `json:"name"`
	Control netip.Addr `json:"control"`
	VTEP    netip.Addr `json:"vtep"`
	Driver  string     `json:"driver,omitempty"`
	// Installation is the UUID of the agent's state directory: who has the name.
	Installation string `json:"installation,omitempty"`
	// Store names the store that the host follows and that has all of its
	// attachments; see store.Incarnation.Mark.
	Store string `json:"store,omitempty"`
	// Format is the HostFormat of the agent that wrote this; 0 = from before there
	// was one.
	Format int `json:"format,omitempty"`
}

// HostFormat is the format of what this version's agents keep on hosts and say to
// each other: raised when an earlier agent would misread it, or be misread, so
// that it refuses to begin where a later one has been.
const HostFormat = 1
