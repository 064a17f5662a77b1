package apiserver

import "github.com/contiv/netplugin/v2/internal/testcluster/optioncoverage"

var _ = tested("policys", kindCases{
	object: `{"tenantName":"blue","policyName":"x"}`, key: []string{"tenantName", "policyName"},
	fields: map[string]cases{"owner": ownerCases(), "tenantName": tenantCases(), "policyName": nameCases("policyName")},
	effects: map[string]optioncoverage.Effect{
		"owner":      optioncoverage.By("TestOwner"),
		"tenantName": optioncoverage.By("TestMatrix"),
		"policyName": optioncoverage.By("TestMatrix"),
	},
})
