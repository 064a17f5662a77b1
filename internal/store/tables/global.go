package tables

import "github.com/contiv/netplugin/v2/internal/model"

// GlobalKey is the key of the only row of Globals.
type GlobalKey struct{}

// Globals holds the cluster's settings.
var Globals = declare(TableSpec[GlobalKey, model.Global]{
	Kinds: []string{"global"},
	Noun:  "global", Version: 1, Unlisted: true,
	Path:  "state/global/config/global",
	Parse: func([]string) (GlobalKey, bool) { return GlobalKey{}, true },
	KeyOf: func(model.Global) GlobalKey { return GlobalKey{} },
	Show:  func(GlobalKey) string { return "global" },
	Scope: func(GlobalKey) string { return configScope },
	Name:  func(GlobalKey) string { return "global" },
})
