package apiserver

import "github.com/contiv/netplugin/v2/internal/effecttest"

var _ = tested("policys", kindCases{
	object: `{"tenantName":"blue","policyName":"x"}`, key: []string{"tenantName", "policyName"},
	fields: map[string]cases{"tenantName": tenantCases(), "policyName": nameCases("policyName")},
	effects: map[string]effecttest.Effect{
		"tenantName": effecttest.By("TestMatrix"),
		"policyName": effecttest.By("TestMatrix"),
	},
})
