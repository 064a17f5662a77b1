package apiserver

import "github.com/contiv/netplugin/v2/internal/archtest"

var _ = tested("rules", kindCases{
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
	effects: map[string]archtest.Effect{
		"tenantName":        archtest.By("TestMatrix"),
		"policyName":        archtest.By("TestMatrix"),
		"ruleId":            archtest.By("TestMatrix"),
		"direction=in":      archtest.By("TestMatrix"),
		"direction=out":     archtest.By("TestMatrix"),
		"priority":          archtest.By("TestMatrix"),
		"action=allow":      archtest.By("TestMatrix"),
		"action=deny":       archtest.By("TestMatrix"),
		"protocol":          archtest.By("TestMatrix"),
		"port":              archtest.By("TestMatrix"),
		"fromEndpointGroup": archtest.By("TestMatrix"),
		"fromNetwork":       archtest.By("TestMatrix"),
		"fromIpAddress":     archtest.By("TestMatrix"),
		"toEndpointGroup":   archtest.By("TestMatrix"),
		"toNetwork":         archtest.By("TestMatrix"),
		"toIpAddress":       archtest.By("TestMatrix"),
	},
})

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
