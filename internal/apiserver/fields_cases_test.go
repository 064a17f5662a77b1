package apiserver

import "strings"

// kindCases are the cases of one collection: a valid object, the fields that
// build its key, and, per field, changes of the object that are accepted and
// such that are refused. A change is a JSON object that is laid over the valid
// one.
type kindCases struct {
	object string
	key    []string
	fields map[string]cases
}

type cases struct{ pass, fail []string }

var (
	text64  = strings.Repeat("x", 64)
	text65  = strings.Repeat("x", 65)
	text256 = strings.Repeat("x", 256)
	text257 = strings.Repeat("x", 257)
)

// nameCases are those of a name of at most 64 characters.
func nameCases(field string) cases {
	c := cases{}
	for _, v := range []string{"a", "A1", "a-b.c-d", "7", text64} {
		c.pass = append(c.pass, change(field, v))
	}
	for _, v := range []string{"", "a_b", "a b", "-a", "a-", "a..b", ".a", "a/b", "a:b", "ä", "a\n", text65} {
		c.fail = append(c.fail, change(field, v))
	}
	return c
}

// refCases are those of a field that names something of the tenant.
func refCases(field, exists string, optional bool) cases {
	c := cases{pass: []string{change(field, exists)}, fail: []string{change(field, "none"), change(field, "a_b"), change(field, text65)}}
	if optional {
		c.pass = append(c.pass, change(field, ""))
	} else {
		c.fail = append(c.fail, change(field, ""))
	}
	return c
}

func change(field, v string) string {
	return mustJSON(map[string]any{field: v})
}

func tenantCases() cases {
	return cases{
		pass: []string{`{"tenantName":"blue"}`},
		fail: []string{`{"tenantName":"none"}`, `{"tenantName":""}`, `{"tenantName":"a_b"}`, change("tenantName", text65), `{"tenantName":7}`},
	}
}

func textCases(field string) cases {
	return cases{
		pass: []string{change(field, ""), change(field, "Any text, 10 GB"), change(field, text256)},
		fail: []string{change(field, text257), change(field, "a\nb"), `{"` + field + `":7}`},
	}
}

func storageCases(name string) map[string]cases {
	return map[string]cases{
		"tenantName": tenantCases(), name: nameCases(name), "datastoreType": textCases("datastoreType"),
		"mountPoint": textCases("mountPoint"), "poolName": textCases("poolName"), "size": textCases("size"),
	}
}

func tagCases() cases {
	return cases{
		pass: []string{`{"cfgdTag":""}`, `{"cfgdTag":"a.b-c"}`, change("cfgdTag", strings.Repeat("x", 128))},
		fail: []string{`{"cfgdTag":"a_b"}`, change("cfgdTag", strings.Repeat("x", 129))},
	}
}

func peerCases(side string) map[string]cases {
	out := map[string]cases{}
	direction, other := `"direction":"in",`, `"direction":"out",`
	if side == "to" {
		direction, other = other, direction
	}
	for field, v := range map[string]struct{ pass, fail []string }{
		"EndpointGroup": {[]string{"", "web"}, []string{"none", "a_b"}},
		"Network":       {[]string{"", "n"}, []string{"none", "a_b"}},
		"IpAddress": {
			[]string{"", "10.1.1.7", "10.1.1.7/32", "10.0.0.0/8", "10.1.2.3/8", "2001:db8::1", "2001:db8::/32", "0.0.0.0/0"},
			[]string{"10.1.1", "10.1.1.1-20", "10.1.1.0/33", "abc", "::ffff:10.1.1.1", "fe80::1%eth0", "10.1.1.7 "},
		},
	} {
		var c cases
		name := side + field
		for _, x := range v.pass {
			c.pass = append(c.pass, "{"+direction+mustJSON(name)+":"+mustJSON(x)+"}")
		}
		for _, x := range v.fail {
			c.fail = append(c.fail, "{"+direction+mustJSON(name)+":"+mustJSON(x)+"}")
		}
		c.fail = append(c.fail, "{"+other+mustJSON(name)+":"+mustJSON(v.pass[1])+"}")
		if field != "IpAddress" { // two kinds of peer
			c.fail = append(c.fail, "{"+direction+mustJSON(name)+":"+mustJSON(v.pass[1])+","+mustJSON(side+"IpAddress")+`:"10.1.1.7"}`)
		}
		out[name] = c
	}
	return out
}

// fieldCases has every field of every kind.
var fieldCases = map[string]kindCases{
	"globals": {
		object: `{"name":"global"}`, key: []string{"name"},
		fields: map[string]cases{
			"name":             {[]string{`{"name":"global"}`}, []string{`{"name":"other"}`, `{"name":""}`}},
			"networkInfraType": {[]string{`{"networkInfraType":"default"}`, `{"networkInfraType":""}`}, []string{`{"networkInfraType":"x"}`, `{"networkInfraType":"aci"}`, `{"networkInfraType":"aci-opflex"}`}},
			"fwdMode":          {[]string{`{"fwdMode":"bridge"}`, `{"fwdMode":""}`}, []string{`{"fwdMode":"x"}`, `{"fwdMode":"routing"}`}},
			"arpMode":          {[]string{`{"arpMode":"proxy"}`, `{"arpMode":""}`}, []string{`{"arpMode":"x"}`, `{"arpMode":"flood"}`}},
			"vlans":            {[]string{`{"vlans":"1-4094"}`, `{"vlans":"100-200"}`, `{"vlans":""}`}, []string{`{"vlans":"0-10"}`, `{"vlans":"1-4095"}`, `{"vlans":"5-1"}`, `{"vlans":"1"}`, `{"vlans":"a-b"}`, `{"vlans":"200-300"}`}},
			"vxlans":           {[]string{`{"vxlans":"1-16777215"}`, `{"vxlans":"1-20000"}`, `{"vxlans":""}`}, []string{`{"vxlans":"0-10"}`, `{"vxlans":"1-16777216"}`, `{"vxlans":"9000-10000"}`}},
			"pvtSubnet":        {[]string{`{"pvtSubnet":"172.19.0.0/16"}`, `{"pvtSubnet":""}`}, []string{`{"pvtSubnet":"172.20.0.0/16"}`, `{"pvtSubnet":"10.0.0.0/8"}`, `{"pvtSubnet":"x"}`, `{"pvtSubnet":"127.0.0.0/16"}`}},
		},
	},
	"tenants": {
		object: `{"tenantName":"t"}`, key: []string{"tenantName"},
		fields: map[string]cases{
			"tenantName":     nameCases("tenantName"),
			"defaultNetwork": {[]string{`{"defaultNetwork":""}`}, []string{`{"defaultNetwork":"none"}`, `{"defaultNetwork":"a_b"}`}},
		},
	},
	"networks": {
		object: `{"tenantName":"blue","networkName":"x","encap":"vxlan","subnet":"10.77.1.0/24"}`, key: []string{"tenantName", "networkName"},
		fields: map[string]cases{
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
		},
	},
	"endpointGroups": {
		object: `{"tenantName":"blue","groupName":"x","networkName":"n"}`, key: []string{"tenantName", "groupName"},
		fields: map[string]cases{
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
	},
	"policys": {
		object: `{"tenantName":"blue","policyName":"x"}`, key: []string{"tenantName", "policyName"},
		fields: map[string]cases{"tenantName": tenantCases(), "policyName": nameCases("policyName")},
	},
	"rules": {
		object: `{"tenantName":"blue","policyName":"p","ruleId":"x","direction":"in","action":"allow"}`, key: []string{"tenantName", "policyName", "ruleId"},
		fields: merge(peerCases("from"), peerCases("to"), map[string]cases{
			"tenantName": tenantCases(),
			"policyName": refCases("policyName", "p", false),
			"ruleId":     nameCases("ruleId"),
			"direction":  {[]string{`{"direction":"in"}`, `{"direction":"out"}`}, []string{`{"direction":""}`, `{"direction":"both"}`}},
			"priority":   {[]string{`{"priority":0}`, `{"priority":1}`, `{"priority":100}`}, []string{`{"priority":-1}`, `{"priority":101}`, `{"priority":"1"}`}},
			"action":     {[]string{`{"action":"allow"}`, `{"action":"deny"}`}, []string{`{"action":""}`, `{"action":"accept"}`}},
			"protocol":   {[]string{`{"protocol":""}`, `{"protocol":"tcp"}`, `{"protocol":"udp"}`, `{"protocol":"icmp"}`, `{"protocol":"0"}`, `{"protocol":"255"}`}, []string{`{"protocol":"999"}`, `{"protocol":"256"}`, `{"protocol":"-1"}`, `{"protocol":"TCP"}`, `{"protocol":"sctp"}`, `{"protocol":6}`}},
			"port":       {[]string{`{"port":0}`, `{"protocol":"tcp","port":65535}`, `{"protocol":"udp","port":1}`, `{"protocol":"132","port":7}`}, []string{`{"protocol":"tcp","port":-1}`, `{"protocol":"tcp","port":65536}`, `{"port":80}`, `{"protocol":"icmp","port":8}`, `{"protocol":"47","port":8}`, `{"protocol":"tcp","port":"80"}`}},
		}),
	},
	"netprofiles": {
		object: `{"tenantName":"blue","profileName":"x"}`, key: []string{"tenantName", "profileName"},
		fields: map[string]cases{
			"tenantName":  tenantCases(),
			"profileName": nameCases("profileName"),
			"bandwidth": {
				[]string{`{"bandwidth":""}`, `{"bandwidth":"10 kbps"}`, `{"bandwidth":"100mbps"}`, `{"bandwidth":"1gbps"}`, `{"bandwidth":"5Mb"}`, `{"bandwidth":"2g"}`, `{"bandwidth":"20 Mbps"}`, `{"bandwidth":"10000g"}`},
				[]string{`{"bandwidth":"10"}`, `{"bandwidth":"Mbps"}`, `{"bandwidth":"10Tbps"}`, `{"bandwidth":"0k"}`, `{"bandwidth":"-1k"}`, `{"bandwidth":"1.5g"}`, `{"bandwidth":"10001g"}`, `{"bandwidth":"99999999999999Gbps"}`, `{"bandwidth":"10 kbps "}`, `{"bandwidth":10}`},
			},
			"DSCP":  {[]string{`{"DSCP":0}`, `{"DSCP":1}`, `{"DSCP":63}`}, []string{`{"DSCP":-1}`, `{"DSCP":64}`, `{"DSCP":"1"}`}},
			"burst": {[]string{`{"burst":0}`, `{"burst":2}`, `{"burst":10486}`}, []string{`{"burst":-1}`, `{"burst":1}`, `{"burst":10487}`}},
		},
	},
	"serviceLBs": {
		object: `{"tenantName":"blue","serviceName":"x","networkName":"n","selectors":["app=web"],"ports":["80:8080:TCP"]}`, key: []string{"tenantName", "serviceName"},
		fields: map[string]cases{
			"tenantName": tenantCases(),
			"serviceName": {
				[]string{`{"serviceName":"a"}`, change("serviceName", text256)},
				[]string{`{"serviceName":""}`, `{"serviceName":"a_b"}`, `{"serviceName":"a:b"}`, change("serviceName", text257)},
			},
			"networkName": refCases("networkName", "n", false),
			"ipAddress": {
				[]string{`{"ipAddress":""}`, `{"ipAddress":"10.1.1.77"}`},
				[]string{`{"ipAddress":"10.99.1.1"}`, `{"ipAddress":"10.1.1.254"}`, `{"ipAddress":"10.1.1.0"}`, `{"ipAddress":"10.1.1.255"}`, `{"ipAddress":"10.1.1.5"}`, `{"ipAddress":"10.1.1.99"}`, `{"ipAddress":"10.1.1.10"}`, `{"ipAddress":"x"}`, `{"ipAddress":"2001:db8::1"}`, `{"ipAddress":"::ffff:10.1.1.77"}`},
			},
			"selectors": {
				[]string{`{"selectors":["app=web","tier="]}`, `{"selectors":["a.b/c=d=e"]}`},
				[]string{`{"selectors":[]}`, `{"selectors":["abc"]}`, `{"selectors":["=x"]}`, `{"selectors":["ok=1","bad"]}`, `{"selectors":["a=1","a=2"]}`, `{"selectors":["a=\n"]}`, `{"selectors":"a=1"}`, `{"selectors":[""]}`},
			},
			"ports": {
				[]string{`{"ports":["80:8080:tcp","80:8080:UDP"]}`, `{"ports":["1:65535:TCP"]}`},
				[]string{`{"ports":[]}`, `{"ports":["80"]}`, `{"ports":["80:8080"]}`, `{"ports":["0:80:tcp"]}`, `{"ports":["80:0:tcp"]}`, `{"ports":["70000:8080:tcp"]}`, `{"ports":["80:x:TCP"]}`, `{"ports":["80:80:sctp"]}`, `{"ports":["80:80:"]}`, `{"ports":["080:80:tcp"]}`, `{"ports":["80:8080:tcp","garbage"]}`, `{"ports":["80:1:tcp","80:2:TCP"]}`, `{"ports":["1:2:3:4"]}`},
			},
		},
	},
	"appProfiles": {
		object: `{"tenantName":"blue","appProfileName":"x"}`, key: []string{"tenantName", "appProfileName"},
		fields: map[string]cases{
			"tenantName":     tenantCases(),
			"appProfileName": nameCases("appProfileName"),
			"endpointGroups": {
				[]string{`{"endpointGroups":[]}`, `{"endpointGroups":["web"]}`, `{"endpointGroups":["web","db"]}`},
				[]string{`{"endpointGroups":["none"]}`, `{"endpointGroups":["web","none"]}`, `{"endpointGroups":["web","web"]}`, `{"endpointGroups":[""]}`, `{"endpointGroups":["a_b"]}`, `{"endpointGroups":"web"}`},
			},
		},
	},
	"Bgps": {
		object: `{"hostname":"host1","routerip":"50.1.1.2/24","as":"65002","neighbor-as":"65000","neighbor":"50.1.1.1"}`, key: []string{"hostname"},
		fields: map[string]cases{
			"hostname":    {[]string{`{"hostname":"host1"}`, change("hostname", text256)}, []string{`{"hostname":"none"}`, `{"hostname":""}`, `{"hostname":"bad_h"}`, change("hostname", text257)}},
			"routerip":    {[]string{`{"routerip":"50.1.1.2/24"}`, `{"routerip":"50.1.1.2/31"}`, `{"routerip":"50.1.1.2/32"}`}, []string{`{"routerip":""}`, `{"routerip":"50.1.1.2"}`, `{"routerip":"50.1.1.0/24"}`, `{"routerip":"50.1.1.255/24"}`, `{"routerip":"50.1.1.2/33"}`, `{"routerip":"2001:db8::2/64"}`, `{"routerip":"127.0.0.1/8"}`}},
			"as":          {[]string{`{"as":"1"}`, `{"as":"4294967295"}`}, []string{`{"as":""}`, `{"as":"0"}`, `{"as":"abc"}`, `{"as":"4294967296"}`, `{"as":"99999999999"}`, `{"as":"-1"}`, `{"as":"065"}`, `{"as":65000}`}},
			"neighbor-as": {[]string{`{"neighbor-as":"1"}`, `{"neighbor-as":"4294967295"}`}, []string{`{"neighbor-as":""}`, `{"neighbor-as":"0"}`, `{"neighbor-as":"x"}`, `{"neighbor-as":"4294967296"}`}},
			"neighbor":    {[]string{`{"neighbor":""}`, `{"neighbor":"50.1.1.9"}`}, []string{`{"neighbor":"abc"}`, `{"neighbor":"50.1.1.2"}`, `{"neighbor":"50.1.1.1/24"}`, `{"neighbor":"2001:db8::1"}`, `{"neighbor":"224.0.0.1"}`}},
		},
	},
	"extContractsGroups": {
		object: `{"tenantName":"blue","contractsGroupName":"x","contractsType":"provided"}`, key: []string{"tenantName", "contractsGroupName"},
		fields: map[string]cases{
			"tenantName":         tenantCases(),
			"contractsGroupName": nameCases("contractsGroupName"),
			"contractsType":      {[]string{`{"contractsType":"provided"}`, `{"contractsType":"consumed"}`}, []string{`{"contractsType":""}`, `{"contractsType":"both"}`}},
			"contracts":          {[]string{`{"contracts":[]}`, `{"contracts":["uni/tn-common/brc-c1","uni/tn-common/brc-c2"]}`}, []string{`{"contracts":[""]}`, `{"contracts":["a b"]}`, `{"contracts":["a,b"]}`, `{"contracts":["a","a"]}`, `{"contracts":["` + strings.Repeat("x", 513) + `"]}`}},
		},
	},
	"aciGws": {
		object: `{"name":"aciGw"}`, key: []string{"name"},
		fields: map[string]cases{
			"name":                {[]string{`{"name":"aciGw"}`}, []string{`{"name":"other"}`, `{"name":""}`}},
			"physicalDomain":      {[]string{`{"physicalDomain":""}`, `{"physicalDomain":"container_Dom"}`, change("physicalDomain", strings.Repeat("x", 128))}, []string{`{"physicalDomain":"a b"}`, change("physicalDomain", strings.Repeat("x", 129))}},
			"pathBindings":        {[]string{`{"pathBindings":""}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14]"}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14],topology/pod-1/paths-102/pathep-[eth1/14]"}`}, []string{`{"pathBindings":"abc"}`, `{"pathBindings":"topology/pod-1/node-101"}`, `{"pathBindings":","}`, `{"pathBindings":"topology/pod-1/paths-101/pathep-[eth1/14],topology/pod-1/paths-101/pathep-[eth1/14]"}`}},
			"nodeBindings":        {[]string{`{"nodeBindings":""}`, `{"nodeBindings":"topology/pod-1/node-101,topology/pod-1/node-102"}`}, []string{`{"nodeBindings":"abc"}`, `{"nodeBindings":"topology/pod-1/node-101,"}`}},
			"enforcePolicies":     {[]string{`{"enforcePolicies":""}`, `{"enforcePolicies":"yes"}`, `{"enforcePolicies":"no"}`}, []string{`{"enforcePolicies":"maybe"}`, `{"enforcePolicies":true}`}},
			"includeCommonTenant": {[]string{`{"includeCommonTenant":""}`, `{"includeCommonTenant":"yes"}`, `{"includeCommonTenant":"no"}`}, []string{`{"includeCommonTenant":"Yes"}`}},
		},
	},
	"volumes":        {object: `{"tenantName":"blue","volumeName":"x"}`, key: []string{"tenantName", "volumeName"}, fields: storageCases("volumeName")},
	"volumeProfiles": {object: `{"tenantName":"blue","volumeProfileName":"x"}`, key: []string{"tenantName", "volumeProfileName"}, fields: storageCases("volumeProfileName")},
}
