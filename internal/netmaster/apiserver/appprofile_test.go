package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("appProfiles", kindCases{
	object: `{"tenantName":"blue","appProfileName":"x"}`, key: []string{"tenantName", "appProfileName"},
	fields: map[string]cases{
		"tenantName":     tenantCases(),
		"appProfileName": nameCases("appProfileName"),
		"endpointGroups": {
			[]string{`{"endpointGroups":[]}`, `{"endpointGroups":["web"]}`, `{"endpointGroups":["web","db"]}`},
			[]string{`{"endpointGroups":["none"]}`, `{"endpointGroups":["web","none"]}`, `{"endpointGroups":["web","web"]}`, `{"endpointGroups":[""]}`, `{"endpointGroups":["a_b"]}`, `{"endpointGroups":"web"}`},
		},
	},
	effects: map[string]archtest.Effect{
		"tenantName":     archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"appProfileName": archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"endpointGroups": archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
	},
})
