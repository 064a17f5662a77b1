package apiserver

import "github.com/contiv/netplugin/v2/internal/effecttest"

var _ = tested("policys", kindCases{
	object: `{"tenantName":"blue","policyName":"x"}`, key: []string{"tenantName", "policyName"},
	fields: map[string]cases{"owner": ownerCases(), "tenantName": tenantCases(), "policyName": nameCases("policyName")},
	effects: map[string]effecttest.Effect{
		"owner":      effecttest.By("TestOwner"),
		"tenantName": effecttest.By("TestMatrix"),
		"policyName": effecttest.By("TestMatrix"),
	},
})
