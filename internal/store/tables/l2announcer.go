package tables

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// L2Announcer says for which load balancer addresses a host answers ARP and neighbour
// discovery. Its row is written with each heartbeat (Run and Seq). Hosts that see the same
// row for long enough may take its addresses over.
type L2Announcer struct {
	Host         model.HostName `json:"host"`
	Installation string         `json:"installation"`
	Run          int64          `json:"run"` // of its agent; later runs have higher ones
	Seq          uint64         `json:"seq"` // of the run's report that was kept last
	Addrs        []netip.Addr   `json:"addrs"`
}

// L2Announcers holds them.
var L2Announcers = declare(TableSpec[L2AnnouncerKey, L2Announcer]{
	Noun: "answering host", Version: 1, Unlisted: true,
	Path:  "state/alloc/answerers/*",
	Parse: func(n []string) (L2AnnouncerKey, bool) { return L2AnnouncerKey{model.HostName(n[0])}, true },
	KeyOf: func(a L2Announcer) L2AnnouncerKey { return L2AnnouncerKey{a.Host} },
	Show:  func(k L2AnnouncerKey) string { return string(k.Host) },
	Scope: func(L2AnnouncerKey) string { return AllocPrefix + "answerers/" },
	Name:  func(k L2AnnouncerKey) string { return store.Segment(string(k.Host)) },
})

// L2AnnouncerKey is the key of a row of L2Announcers.
type L2AnnouncerKey struct{ Host model.HostName }

// AnnouncedAddr says which host took an address last. It has it while its row of L2Announcers
// says so too.
type AnnouncedAddr struct {
	Addr netip.Addr     `json:"addr"`
	Host model.HostName `json:"host"`
}

// AnnouncedAddrKey is the key of a row of AnnouncedAddrs.
type AnnouncedAddrKey struct{ Addr netip.Addr }

// AnnouncedAddrs holds them.
var AnnouncedAddrs = declare(TableSpec[AnnouncedAddrKey, AnnouncedAddr]{
	Noun: "answered address", Version: 1, Unlisted: true,
	Path: "state/alloc/answered/*",
	Parse: func(n []string) (AnnouncedAddrKey, bool) {
		a, ok := parseAddrName(n[0])
		return AnnouncedAddrKey{a}, ok
	},
	KeyOf: func(a AnnouncedAddr) AnnouncedAddrKey { return AnnouncedAddrKey{a.Addr} },
	Show:  func(k AnnouncedAddrKey) string { return k.Addr.String() },
	Scope: func(AnnouncedAddrKey) string { return AllocPrefix + "answered/" },
	Name:  func(k AnnouncedAddrKey) string { return AddrName(k.Addr) },
})
