package tables

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Answerer says for which load balancer addresses a host answers ARP and neighbour
// discovery. Its row is written with each heartbeat (Run and Seq). Hosts that see the same
// row for long enough may take its addresses over.
type Answerer struct {
	Host         model.HostName `json:"host"`
	Installation string         `json:"installation"`
	Run          int64          `json:"run"` // of its agent; later runs have higher ones
	Seq          uint64         `json:"seq"` // of the run's report that was kept last
	Addrs        []netip.Addr   `json:"addrs"`
}

// Answerers holds them.
var Answerers = declare(TableSpec[AnswererKey, Answerer]{
	Noun: "answering host", Version: 1, Unlisted: true,
	Path:  "state/alloc/answerers/*",
	Parse: func(n []string) (AnswererKey, bool) { return AnswererKey{model.HostName(n[0])}, true },
	KeyOf: func(a Answerer) AnswererKey { return AnswererKey{a.Host} },
	Show:  func(k AnswererKey) string { return string(k.Host) },
	Scope: func(AnswererKey) string { return AllocPrefix + "answerers/" },
	Name:  func(k AnswererKey) string { return store.Segment(string(k.Host)) },
})

// AnswererKey is the key of a row of Answerers.
type AnswererKey struct{ Host model.HostName }

// Answered says which host took an address last. It has it while its row of Answerers
// says so too.
type Answered struct {
	Addr netip.Addr     `json:"addr"`
	Host model.HostName `json:"host"`
}

// AnsweredKey is the key of a row of AnsweredAddrs.
type AnsweredKey struct{ Addr netip.Addr }

// AnsweredAddrs holds them.
var AnsweredAddrs = declare(TableSpec[AnsweredKey, Answered]{
	Noun: "answered address", Version: 1, Unlisted: true,
	Path: "state/alloc/answered/*",
	Parse: func(n []string) (AnsweredKey, bool) {
		a, ok := parseAddrName(n[0])
		return AnsweredKey{a}, ok
	},
	KeyOf: func(a Answered) AnsweredKey { return AnsweredKey{a.Addr} },
	Show:  func(k AnsweredKey) string { return k.Addr.String() },
	Scope: func(AnsweredKey) string { return AllocPrefix + "answered/" },
	Name:  func(k AnsweredKey) string { return AddrName(k.Addr) },
})
