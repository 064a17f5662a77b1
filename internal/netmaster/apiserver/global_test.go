package apiserver

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

var _ = tested("globals", kindCases{
	object: `{"name":"global"}`, key: []string{"name"},
	fields: map[string]cases{
		"name":             {[]string{`{"name":"global"}`}, []string{`{"name":"other"}`, `{"name":""}`}},
		"networkInfraType": {[]string{`{"networkInfraType":"default"}`, `{"networkInfraType":""}`}, []string{`{"networkInfraType":"x"}`, `{"networkInfraType":"aci"}`, `{"networkInfraType":"aci-opflex"}`}},
		"fwdMode":          {[]string{`{"fwdMode":"routing"}`, `{"fwdMode":"bridge"}`, `{"fwdMode":""}`}, []string{`{"fwdMode":"x"}`}},
		"arpMode":          {[]string{`{"arpMode":"proxy"}`, `{"arpMode":""}`}, []string{`{"arpMode":"x"}`, `{"arpMode":"flood"}`}},
		"vlans":            {[]string{`{"vlans":"1-4094"}`, `{"vlans":"100-200"}`, `{"vlans":""}`}, []string{`{"vlans":"0-10"}`, `{"vlans":"1-4095"}`, `{"vlans":"5-1"}`, `{"vlans":"1"}`, `{"vlans":"a-b"}`, `{"vlans":"200-300"}`}},
		"vxlans":           {[]string{`{"vxlans":"1-16777215"}`, `{"vxlans":"1-20000"}`, `{"vxlans":""}`}, []string{`{"vxlans":"0-10"}`, `{"vxlans":"1-16777216"}`, `{"vxlans":"9000-10000"}`}},
		"pvtSubnet":        {[]string{`{"pvtSubnet":"172.19.0.0/16"}`, `{"pvtSubnet":""}`}, []string{`{"pvtSubnet":"172.20.0.0/16"}`, `{"pvtSubnet":"10.0.0.0/8"}`, `{"pvtSubnet":"x"}`, `{"pvtSubnet":"127.0.0.0/16"}`}},
		"tenantPrefixes": {
			[]string{`{"tenantPrefixes":["none"]}`, `{"tenantPrefixes":["10.1.0.0/16","fd00::/64"]}`, `{"tenantPrefixes":null}`},
			[]string{`{"tenantPrefixes":[]}`, `{"tenantPrefixes":["10.1.0.1/16"]}`, `{"tenantPrefixes":["none","10.1.0.0/16"]}`, `{"tenantPrefixes":["x"]}`, `{"tenantPrefixes":"10.1.0.0/16"}`, `{"tenantPrefixes":[1]}`},
		},
		"generatedLabels": {
			[]string{`{"generatedLabels":["default"]}`, `{"generatedLabels":["default","example.com/","com.acme.","build"]}`, `{"generatedLabels":["build"]}`, `{"generatedLabels":null}`},
			[]string{
				`{"generatedLabels":[]}`, `{"generatedLabels":[""]}`, `{"generatedLabels":["*"]}`, `{"generatedLabels":["app*"]}`, `{"generatedLabels":["/"]}`, `{"generatedLabels":["."]}`,
				`{"generatedLabels":["a b"]}`, `{"generatedLabels":["app=web"]}`, `{"generatedLabels":["a/b/c"]}`, `{"generatedLabels":["ü"]}`, `{"generatedLabels":"app"}`, `{"generatedLabels":[1]}`,
				`{"generatedLabels":["app","app"]}`, `{"generatedLabels":["default","default"]}`, `{"generatedLabels":["default","com.docker."]}`,
				`{"generatedLabels":[` + strings.Repeat(`"a",`, 9_999) + `"b"]}`, `{"generatedLabels":["` + strings.Repeat("a", 10_000) + `"]}`,
			},
		},
	},
	effects: map[string]archtest.Effect{
		"name":                     archtest.By("TestFieldConstraintsAreEnforced"),
		"networkInfraType=default": archtest.By("TestFieldConstraintsAreEnforced"),
		"networkInfraType=aci":     archtest.By("TestACI"),
		"fwdMode=bridge":           archtest.By("TestConformance"),
		"fwdMode=routing":          archtest.By("TestTenantsNetworksAreRoutedTogether"),
		"arpMode=proxy":            archtest.By("TestConformance"),
		"arpMode=flood":            archtest.By("TestConformance"),
		"vlans":                    archtest.By("TestTagsComeFromTheirRanges"),
		"vxlans":                   archtest.By("TestTagsComeFromTheirRanges"),
		"pvtSubnet":                archtest.By("TestPrivateAddressesAreHandedOutOnce"),
		"tenantPrefixes":           archtest.By("TestOnlyAllowedAddressesAreAnnounced"),
		"generatedLabels":          archtest.By("TestFilteredLabelsChangeEndpointsInOrder"),
	},
})
