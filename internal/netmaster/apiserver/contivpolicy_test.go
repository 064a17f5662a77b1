package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("policys", kindCases{
	object: `{"tenantName":"blue","policyName":"x"}`, key: []string{"tenantName", "policyName"},
	fields: map[string]cases{"owner": ownerCases(), "tenantName": tenantCases(), "policyName": nameCases("policyName")},
	effects: map[string]archtest.Effect{
		"owner":      archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
		"tenantName": archtest.By("TestMatrix"),
		"policyName": archtest.By("TestMatrix"),
	},
})
