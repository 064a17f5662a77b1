package model

import "net/netip"

// HostName names a host: at most 256 characters, otherwise with the syntax of names.
type HostName string

// ParseHostName checks a host's name. The error is of kind ErrInvalid.
func ParseHostName(s string) (HostName, error) { return HostName(s), parseName("host", s, 256) }

// Host is a host's record: what other hosts need to reach its endpoints. It tells of
// the host's agent and outlives it: a dead agent must not take its containers off
// the network (known fault 38).
type Host struct {
	Name    HostName   `json:"name"`
	Control netip.Addr `json:"control"`
	VTEP    netip.Addr `json:"vtep"`
	IPv6    netip.Addr `json:"ipv6,omitzero"` // that its own stack has towards others; zero = none
	Driver  string     `json:"driver,omitempty"`
	// Installation is the UUID of the agent's state directory, which owns the host's name.
	Installation string `json:"installation,omitempty"`
	// Store names the store that the host follows and that has all of its
	// attachments; see store.Incarnation.Mark.
	Store string `json:"store,omitempty"`
	// Format is the HostFormat of the agent that wrote this; 0 = from before there
	// was one.
	Format int `json:"format,omitempty"`
	// Confirms: the agent knows of changes that wait to be confirmed, and goes back by
	// itself.
	Confirms bool `json:"confirms,omitempty"`
	// AnswersProbes: the host's data plane answers tunnel probes.
	AnswersProbes bool `json:"answersProbes,omitempty"`
}

// HostFormat is the version of the formats that agents keep on hosts and use between
// hosts. It is raised when an earlier agent would misread them, or be misread; an
// agent refuses to start on a host where an agent of a later format has run.
const HostFormat = 1
