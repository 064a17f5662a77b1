package apiserver

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

var _ = tested("extContractsGroups", kindCases{
	object: `{"tenantName":"blue","contractsGroupName":"x","contractsType":"provided"}`, key: []string{"tenantName", "contractsGroupName"},
	fields: map[string]cases{
		"tenantName":         tenantCases(),
		"contractsGroupName": nameCases("contractsGroupName"),
		"contractsType":      {[]string{`{"contractsType":"provided"}`, `{"contractsType":"consumed"}`}, []string{`{"contractsType":""}`, `{"contractsType":"both"}`}},
		"contracts":          {[]string{`{"contracts":[]}`, `{"contracts":["uni/tn-common/brc-c1","uni/tn-common/brc-c2"]}`}, []string{`{"contracts":[""]}`, `{"contracts":["a b"]}`, `{"contracts":["a,b"]}`, `{"contracts":["a","a"]}`, `{"contracts":["` + strings.Repeat("x", 513) + `"]}`}},
	},
	effects: map[string]archtest.Effect{
		"tenantName":             archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"contractsGroupName":     archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"contractsType=provided": archtest.By("TestTreeEqualsOneMadeFromNothing"),
		"contractsType=consumed": archtest.By("TestTreeEqualsOneMadeFromNothing"),
		"contracts":              archtest.By("TestTreeEqualsOneMadeFromNothing"),
	},
})
