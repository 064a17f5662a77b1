package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("networks", kindCases{
	object: `{"tenantName":"blue","networkName":"x","encap":"vxlan","subnet":"10.77.1.0/24"}`, key: []string{"tenantName", "networkName"},
	fields: map[string]cases{
		"owner":       ownerCases(),
		"tenantName":  tenantCases(),
		"networkName": nameCases("networkName").and(nil, []string{`{"networkName":"web"}`}),
		"nwType":      {[]string{`{"nwType":"data"}`, `{"nwType":"infra"}`, `{"nwType":""}`}, []string{`{"nwType":"x"}`}},
		"encap":       {[]string{`{"encap":"vlan"}`, `{"encap":"vxlan"}`}, []string{`{"encap":""}`, `{"encap":"gre"}`}},
		"pktTag": {
			[]string{`{"pktTag":0}`, `{"pktTag":10000}`, `{"encap":"vlan","pktTag":4094}`, `{"encap":"vlan","pktTag":1}`},
			[]string{`{"pktTag":-1}`, `{"pktTag":10001}`, `{"pktTag":16777216}`, `{"encap":"vlan","pktTag":4095}`, `{"encap":"vlan","pktTag":100}`, `{"pktTag":"7"}`, `{"pktTag":1.5}`},
		},
		"subnet": {
			[]string{`{"subnet":"10.77.1.0/24"}`, `{"subnet":"10.77.1.10-10.77.1.20/24"}`, `{"subnet":"10.77.0.0/31"}`, `{"subnet":"10.77.0.1/32"}`, `{"subnet":"11.0.0.0/8"}`},
			[]string{`{"subnet":""}`, `{"subnet":"10.77.1.9/24"}`, `{"subnet":"10.77.1.0"}`, `{"subnet":"10.77.1.0/33"}`, `{"subnet":"10.77.1.20-10.77.1.10/24"}`, `{"subnet":"10.77.1.10-10.77.2.10/24"}`, `{"subnet":"127.0.0.0/8"}`, `{"subnet":"224.0.0.0/8"}`, `{"subnet":"0.0.0.0/0"}`, `{"subnet":"2001:db8::/64"}`, `{"subnet":"10.1.1.0/25"}`, `{"subnet":"10.0.0.0/8"}`},
		},
		"gateway": {
			[]string{`{"gateway":""}`, `{"gateway":"10.77.1.1"}`, `{"gateway":"10.77.1.254"}`},
			[]string{`{"gateway":"10.77.1.0"}`, `{"gateway":"10.77.1.255"}`, `{"gateway":"10.77.2.1"}`, `{"gateway":"x"}`, `{"gateway":"2001:db8::1"}`},
		},
		"ipv6Subnet": {
			[]string{`{"ipv6Subnet":""}`, `{"ipv6Subnet":"2001:db8:7::/64"}`, `{"ipv6Subnet":"2001:db8:7::/108"}`, `{"ipv6Subnet":"2001:db8:7::1/128"}`, `{"subnet":"","ipv6Subnet":"2001:db8:7::/64"}`},
			[]string{`{"ipv6Subnet":"2001:db8:7::"}`, `{"ipv6Subnet":"2001:db8:7::/129"}`, `{"ipv6Subnet":"fe80::/64"}`, `{"ipv6Subnet":"ff02::/16"}`, `{"ipv6Subnet":"10.78.0.0/16"}`, `{"ipv6Subnet":"::/0"}`},
		},
		"ipv6Gateway": {
			[]string{`{"ipv6Gateway":""}`, `{"ipv6Subnet":"2001:db8:7::/64","ipv6Gateway":"2001:db8:7::1"}`},
			[]string{`{"ipv6Gateway":"2001:db8:7::1"}`, `{"ipv6Subnet":"2001:db8:7::/64","ipv6Gateway":"2001:db8:8::1"}`, `{"ipv6Subnet":"2001:db8:7::/64","ipv6Gateway":"x"}`, `{"ipv6Subnet":"2001:db8:7::/64","ipv6Gateway":"2001:db8:7::"}`},
		},
		"cfgdTag": tagCases(),
		"native": {
			[]string{`{"native":false}`, `{"tenantName":"default","native":true}`, `{"tenantName":"default","native":true,"ipv6Subnet":"2001:db8:7::/64"}`},
			[]string{`{"native":true}`, `{"tenantName":"default","encap":"vlan","native":true}`, `{"native":"true"}`, `{"native":1}`},
		},
	},
	effects: map[string]archtest.Effect{
		"owner":        archtest.By("TestKubernetesObjectsRefuseChangesByREST"),
		"tenantName":   archtest.By("TestMatrix"),
		"networkName":  archtest.By("TestMatrix"),
		"nwType=data":  archtest.By("TestMatrix"),
		"nwType=infra": archtest.By("TestInfraNetworksConnectHostsAndContainers"),
		"encap=vlan":   archtest.By("TestMatrix"),
		"encap=vxlan":  archtest.By("TestMatrix"),
		"pktTag":       archtest.By("TestTagsComeFromTheirRanges"),
		"subnet":       archtest.By("TestAddressesAreGivenInOrder"),
		"gateway":      archtest.By("TestRoutesTolerateTrailingSlashes"),
		"ipv6Subnet":   archtest.By("TestMatrix"),
		"ipv6Gateway":  archtest.By("TestRoutesTolerateTrailingSlashes"),
		"native":       archtest.By("TestRoutedNetworksAreOnEveryHost"),
	},
})
