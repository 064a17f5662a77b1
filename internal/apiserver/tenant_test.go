package apiserver

import "github.com/contiv/netplugin/v2/internal/effecttest"

var _ = tested("tenants", kindCases{
	object: `{"tenantName":"t"}`, key: []string{"tenantName"},
	fields: map[string]cases{
		"tenantName":     nameCases("tenantName"),
		"defaultNetwork": {[]string{`{"defaultNetwork":""}`}, []string{`{"defaultNetwork":"none"}`, `{"defaultNetwork":"a_b"}`}},
	},
	effects: map[string]effecttest.Effect{
		"tenantName":     effecttest.By("TestMatrix"),
		"defaultNetwork": effecttest.By("TestAttachDetach"),
	},
})
