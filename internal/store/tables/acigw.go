package tables

import "github.com/contiv/netplugin/v2/internal/model"

// AciGwKey is the key of the only row of AciGws.
type AciGwKey struct{}

// AciGws holds the settings of the ACI fabric.
var AciGws = declare(TableSpec[AciGwKey, model.AciGw]{
	Kinds: []string{"aciGw"},
	Noun:  "aciGw", Version: 1, Unlisted: true,
	Path:  "state/global/config/aciGw",
	Parse: func([]string) (AciGwKey, bool) { return AciGwKey{}, true },
	KeyOf: func(model.AciGw) AciGwKey { return AciGwKey{} },
	Show:  func(AciGwKey) string { return "aciGw" },
	Scope: func(AciGwKey) string { return configScope },
	Name:  func(AciGwKey) string { return "aciGw" },
})
