package apiserver

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/archtest"
)

var _ = tested("serviceLBs", kindCases{
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
		"ipv6Address": {
			[]string{`{"ipv6Address":""}`},
			[]string{`{"ipv6Address":"2001:db8::9"}`, `{"ipv6Address":"10.1.1.77"}`, `{"ipv6Address":"x"}`, `{"ipv6Address":"::ffff:10.1.1.77"}`, `{"ipv6Address":"fe80::1%eth0"}`},
		},
		"affinity": {
			[]string{`{"affinity":""}`, `{"affinity":"off"}`, `{"affinity":"1s"}`, `{"affinity":"24h"}`, `{"affinity":"90m"}`},
			[]string{`{"affinity":"0s"}`, `{"affinity":"-1s"}`, `{"affinity":"24h1s"}`, `{"affinity":"1.5s"}`, `{"affinity":"10"}`, `{"affinity":"on"}`, `{"affinity":600}`, `{"affinity":"9999999999999h"}`},
		},
		"selectors": {
			[]string{`{"selectors":["app=web","tier="]}`, `{"selectors":["a.b/c=d=e"]}`},
			[]string{`{"selectors":[]}`, `{"selectors":["abc"]}`, `{"selectors":["=x"]}`, `{"selectors":["ok=1","bad"]}`, `{"selectors":["a=1","a=2"]}`, `{"selectors":["a=\n"]}`, `{"selectors":"a=1"}`, `{"selectors":[""]}`},
		},
		"ports": {
			[]string{`{"ports":["80:8080:tcp","80:8080:UDP"]}`, `{"ports":["1:65535:TCP"]}`, `{"ports":["80:80:sctp","81:80:132"]}`, `{"ports":["80:80:tcp:http","80:80:udp:http","81:80:tcp:h-2"]}`},
			[]string{`{"ports":[]}`, `{"ports":["80"]}`, `{"ports":["80:8080"]}`, `{"ports":["0:80:tcp"]}`, `{"ports":["80:0:tcp"]}`, `{"ports":["70000:8080:tcp"]}`, `{"ports":["80:x:TCP"]}`, `{"ports":["80:80:icmp"]}`, `{"ports":["80:80:tcp:"]}`, `{"ports":["80:80:tcp:80"]}`, `{"ports":["80:80:tcp:HTTP"]}`, `{"ports":["80:80:tcp:-a"]}`, `{"ports":["80:80:tcp:a--b"]}`, `{"ports":["80:80:tcp:sixteencharacter"]}`, `{"ports":["80:80:tcp:a:b"]}`, `{"ports":["80:80:sctp","80:81:132"]}`, `{"ports":["80:80:tcp:http","81:80:tcp:http"]}`, `{"ports":["80:80:"]}`, `{"ports":["080:80:tcp"]}`, `{"ports":["80:8080:tcp","garbage"]}`, `{"ports":["80:1:tcp","80:2:TCP"]}`, `{"ports":["1:2:3:4"]}`},
		},
	},
	effects: map[string]archtest.Effect{
		"tenantName":  archtest.By("TestProvidersFollowReportedLabels"),
		"serviceName": archtest.By("TestProvidersFollowReportedLabels"),
		"networkName": archtest.By("TestServiceKeepsItsAddress"),
		"ipAddress":   archtest.By("TestServiceKeepsItsAddress"),
		"ipv6Address": archtest.By("TestServiceHasAnAddressOfEachFamily"),
		"affinity":    archtest.By("TestServicesWorkWithRealStacks"),
		"ports":       archtest.By("TestServicesWorkWithRealStacks"),
		"selectors":   archtest.By("TestProvidersFollowLabels"),
	},
})

// TestAnswerHasTheRequestedServiceAddress: the answer tells the address that was asked for; the
// inspection tells the one that the service has.
func TestAnswerHasTheRequestedServiceAddress(t *testing.T) {
	o := api.ServiceLB{TenantName: "t", NetworkName: "n", ServiceName: "s", Selectors: []string{"a=b"}, Ports: []string{"1:2:UDP"}}
	s, err := serviceFromAPI(o)
	if err != nil {
		t.Fatal(err)
	}
	s.SetAddrs(netip.MustParseAddr("10.1.1.7"), netip.Addr{})
	if got := serviceToAPI(s); got.IPAddress != "" || got.Ports[0] != "1:2:UDP" {
		t.Errorf("%+v", got)
	}
}
