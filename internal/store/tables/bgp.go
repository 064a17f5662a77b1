package tables

import "github.com/contiv/netplugin/v2/internal/model"

// BgpsScope is the scope of all hosts' BGP settings.
const BgpsScope = GlobalPrefix + "bgp/"

// BgpKey names a host's BGP settings.
type BgpKey struct{ Host model.HostName }

// Bgps holds BGP settings by host.
var Bgps = declare(TableSpec[BgpKey, model.Bgp]{
	Kinds: []string{"Bgp"},
	Noun:  "Bgp", Version: 1,
	Path:  "state/global/bgp/*",
	Parse: func(n []string) (BgpKey, bool) { return BgpKey{model.HostName(n[0])}, true },
	KeyOf: func(b model.Bgp) BgpKey { return BgpKey{b.Host} },
	Show:  func(k BgpKey) string { return string(k.Host) },
	Scope: func(BgpKey) string { return BgpsScope },
	Name:  func(k BgpKey) string { return hostSegment(k.Host) },
})
