package tables

import "github.com/contiv/netplugin/v2/internal/model"

// HostDrainKey names a host that drains.
type HostDrainKey struct{ Host model.HostName }

// HostDrain says that services send the providers on a host no new connections, as
// an operator said. It holds until that is taken back, or the host is removed.
type HostDrain struct {
	Host model.HostName `json:"host"`
}

// HostDrains holds the hosts that drain.
var HostDrains = declare(TableSpec[HostDrainKey, HostDrain]{
	Noun: "drain of host", Version: 1,
	Path:  "state/global/drains/*",
	Parse: func(n []string) (HostDrainKey, bool) { return HostDrainKey{model.HostName(n[0])}, true },
	KeyOf: func(d HostDrain) HostDrainKey { return HostDrainKey(d) },
	Show:  func(k HostDrainKey) string { return string(k.Host) },
	Scope: func(HostDrainKey) string { return GlobalPrefix + "drains/" },
	Name:  func(k HostDrainKey) string { return hostSegment(k.Host) },
})

// AwayTimeKey names a host that is away.
type AwayTimeKey struct{ Host model.HostName }

// AwayTime says that no netmaster hears of a host's agent. The netmaster that
// leads writes it; it goes when the agent is heard of again.
type AwayTime struct {
	Host  model.HostName `json:"host"`
	Since string         `json:"since"` // RFC 3339, by the clock of a netmaster: for people
	// Seconds is for how long netmasters have listened to it in vain. No clock is
	// compared: each leader adds what it has waited itself.
	Seconds int64 `json:"seconds,omitempty"`
	// Evicted: the endpoints that were there are given up.
	Evicted bool `json:"evicted,omitempty"`
}

// AwayTimes holds the hosts that are away.
var AwayTimes = declare(TableSpec[AwayTimeKey, AwayTime]{
	Noun: "absence of host", Version: 1,
	Path:  "state/global/absences/*",
	Parse: func(n []string) (AwayTimeKey, bool) { return AwayTimeKey{model.HostName(n[0])}, true },
	KeyOf: func(a AwayTime) AwayTimeKey { return AwayTimeKey{a.Host} },
	Show:  func(k AwayTimeKey) string { return string(k.Host) },
	Scope: func(AwayTimeKey) string { return GlobalPrefix + "absences/" },
	Name:  func(k AwayTimeKey) string { return hostSegment(k.Host) },
})

// TooManyAway reports whether so many of the known hosts fell silent that it says more
// about who listens than about them: more than half. Nothing is concluded then.
func TooManyAway(away, known int) bool { return 2*away > known }
