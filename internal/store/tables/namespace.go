package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Namespaces holds what policies can ask of namespaces.
var Namespaces = declare(TableSpec[model.NamespaceName, model.Namespace]{
	Noun: "namespace", Version: 1,
	Path:  "state/global/namespaces/*",
	Parse: func(n []string) (model.NamespaceName, bool) { return model.NamespaceName(n[0]), true },
	KeyOf: func(n model.Namespace) model.NamespaceName { return n.Name },
	Scope: func(model.NamespaceName) string { return GlobalPrefix + "namespaces/" },
	Name:  func(k model.NamespaceName) string { return store.Segment(string(k)) },
})
