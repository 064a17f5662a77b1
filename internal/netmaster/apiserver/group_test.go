package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("endpointGroups", kindCases{
	object: `{"tenantName":"blue","groupName":"x","networkName":"n"}`, key: []string{"tenantName", "groupName"},
	fields: map[string]cases{
		"owner":       ownerCases(),
		"tenantName":  tenantCases(),
		"groupName":   nameCases("groupName").and(nil, []string{`{"groupName":"n"}`}),
		"networkName": refCases("networkName", "n", false),
		"policies": {
			[]string{`{"policies":[]}`, `{"policies":null}`, `{"policies":["p"]}`, `{"policies":["p","p"]}`},
			[]string{`{"policies":["none"]}`, `{"policies":["p","none"]}`, `{"policies":[""]}`, `{"policies":["a_b"]}`, `{"policies":"p"}`, `{"policies":["q1","q2","q3","q4","q5","q6","q7","q8","q9"]}`},
		},
		"netProfile": refCases("netProfile", "np", true),
		"ipPool": {
			[]string{`{"ipPool":""}`, `{"ipPool":"10.1.1.50-10.1.1.60"}`, `{"ipPool":"10.1.1.50-10.1.1.50"}`},
			[]string{`{"ipPool":"10.1.1.50"}`, `{"ipPool":"10.1.1.60-10.1.1.50"}`, `{"ipPool":"10.1.2.1-10.1.2.9"}`, `{"ipPool":"10.1.1.250-10.1.1.254"}`, `{"ipPool":"10.1.1.0-10.1.1.4"}`, `{"ipPool":"10.1.1.9-10.1.1.12"}`, `{"ipPool":"10.1.1.5-10.1.1.6"}`, `{"ipPool":"10.1.1.99-10.1.1.100"}`, `{"ipPool":"x-y"}`},
		},
		"extContractsGrps": {
			[]string{`{"extContractsGrps":[]}`, `{"extContractsGrps":["ec"]}`},
			[]string{`{"extContractsGrps":["none"]}`, `{"extContractsGrps":["a_b"]}`, `{"extContractsGrps":["e1","e2","e3","e4","e5","e6","e7","e8","e9","e10","e11"]}`},
		},
		"cfgdTag": tagCases(),
	},
	effects: map[string]archtest.Effect{
		"owner":            archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
		"tenantName":       archtest.By("TestMatrix"),
		"groupName":        archtest.By("TestMatrix"),
		"networkName":      archtest.By("TestGroupDecidesTheNetwork"),
		"extContractsGrps": archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"policies":         archtest.By("TestGroupChangesWhileItHasEndpoints"),
		"netProfile":       archtest.By("TestNetProfilesLimitTheirGroups"),
		"ipPool":           archtest.By("TestOtherEndpointsStayOutOfPools"),
	},
})
