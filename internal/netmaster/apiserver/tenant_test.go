package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("tenants", kindCases{
	object: `{"tenantName":"t"}`, key: []string{"tenantName"},
	fields: map[string]cases{
		"owner":          ownerCases(),
		"tenantName":     nameCases("tenantName"),
		"sharedNetworks": {[]string{`{"sharedNetworks":[]}`, `{"sharedNetworks":["blue:n"]}`}, []string{`{"sharedNetworks":["blue:none"]}`, `{"sharedNetworks":["back"]}`, `{"sharedNetworks":["t:back"]}`, `{"sharedNetworks":"blue:back"}`}},
		"defaultNetwork": {[]string{`{"defaultNetwork":""}`}, []string{`{"defaultNetwork":"none"}`, `{"defaultNetwork":"a_b"}`}},
	},
	effects: map[string]archtest.Effect{
		"owner":          archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
		"tenantName":     archtest.By("TestMatrix"),
		"defaultNetwork": archtest.By("TestAttachedContainersAreSetUpAndReleased"),
		"sharedNetworks": archtest.By("TestContainersReachWhatGroupsAndNetworksAllow"),
	},
})
