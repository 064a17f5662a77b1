package apiserver

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/effecttest"
)

var _ = tested("aciGws", kindCases{
	object: `{"name":"aciGw"}`, key: []string{"name"},
	fields: map[string]cases{
		"name":                {[]string{`{"name":"aciGw"}`}, []string{`{"name":"other"}`, `{"name":""}`}},
		"physicalDomain":      {[]string{`{"physicalDomain":""}`, `{"physicalDomain":"container_Dom"}`, change("physicalDomain", strings.Repeat("x", 128))}, []string{`{"physicalDomain":"a b"}`, change("physicalDomain", strings.Repeat("x", 129))}},
		"pathBindings":        {[]string{`{"pathBindings":""}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14]"}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14],topology/pod-1/paths-102/pathep-[eth1/14]"}`}, []string{`{"pathBindings":"abc"}`, `{"pathBindings":"topology/pod-1/node-101"}`, `{"pathBindings":","}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14],topology/pod-1/paths-101/pathep-[eth1/14]"}`}},
		"nodeBindings":        {[]string{`{"nodeBindings":""}`, `{"nodeBindings":"topology/pod-1/node-101,topology/pod-1/node-102"}`}, []string{`{"nodeBindings":"abc"}`, `{"nodeBindings":"topology/pod-1/node-101,"}`}},
		"enforcePolicies":     {[]string{`{"enforcePolicies":""}`, `{"enforcePolicies":"yes"}`, `{"enforcePolicies":"no"}`}, []string{`{"enforcePolicies":"maybe"}`, `{"enforcePolicies":true}`}},
		"includeCommonTenant": {[]string{`{"includeCommonTenant":""}`, `{"includeCommonTenant":"yes"}`, `{"includeCommonTenant":"no"}`}, []string{`{"includeCommonTenant":"Yes"}`}},
	},
	effects: map[string]effecttest.Effect{
		"name":                    effecttest.By("TestFields"),
		"physicalDomain":          effecttest.By("TestFabricHistories"),
		"pathBindings":            effecttest.By("TestState"),
		"nodeBindings":            effecttest.By("TestHistories"),
		"enforcePolicies=yes":     effecttest.By("TestHistories"),
		"enforcePolicies=no":      effecttest.By("TestHistories"),
		"includeCommonTenant=yes": effecttest.By("TestGateway"),
		"includeCommonTenant=no":  effecttest.By("TestGateway"),
	},
})
