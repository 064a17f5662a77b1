package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/model"
)

var _ = tested("Bgps", kindCases{
	object: `{"hostname":"host1","routerip":"50.1.1.2/24","as":"65002","neighbor-as":"65000","neighbor":"50.1.1.1"}`, key: []string{"hostname"},
	fields: map[string]cases{
		"hostname":    {[]string{`{"hostname":"host1"}`, change("hostname", text256)}, []string{`{"hostname":"none"}`, `{"hostname":""}`, `{"hostname":"bad_h"}`, change("hostname", text257)}},
		"routerip":    {[]string{`{"routerip":"50.1.1.2/24"}`, `{"routerip":"50.1.1.2/31"}`, `{"routerip":"50.1.1.2/32"}`}, []string{`{"routerip":""}`, `{"routerip":"50.1.1.2"}`, `{"routerip":"50.1.1.0/24"}`, `{"routerip":"50.1.1.255/24"}`, `{"routerip":"50.1.1.2/33"}`, `{"routerip":"2001:db8::2/64"}`, `{"routerip":"127.0.0.1/8"}`}},
		"as":          {[]string{`{"as":"1"}`, `{"as":"4294967295"}`}, []string{`{"as":""}`, `{"as":"0"}`, `{"as":"abc"}`, `{"as":"4294967296"}`, `{"as":"99999999999"}`, `{"as":"-1"}`, `{"as":"065"}`, `{"as":65000}`}},
		"neighbor-as": {[]string{`{"neighbor-as":"1"}`, `{"neighbor-as":"4294967295"}`}, []string{`{"neighbor-as":""}`, `{"neighbor-as":"0"}`, `{"neighbor-as":"x"}`, `{"neighbor-as":"4294967296"}`}},
		"neighbor":    {[]string{`{"neighbor":""}`, `{"neighbor":"50.1.1.9"}`}, []string{`{"neighbor":"abc"}`, `{"neighbor":"50.1.1.2"}`, `{"neighbor":"50.1.1.1/24"}`, `{"neighbor":"2001:db8::1"}`, `{"neighbor":"224.0.0.1"}`}},
		"routerip6":   {[]string{`{"routerip6":""}`, `{"routerip6":"fd50::2/64"}`, `{"routerip6":"fd50::2/127"}`, `{"routerip6":"fd50::2/128"}`}, []string{`{"routerip6":"fd50::/64"}`, `{"routerip6":"fd50::2"}`, `{"routerip6":"fe80::2/64"}`, `{"routerip6":"50.1.1.2/24"}`}},
		"neighbors": {[]string{`{"neighbors":""}`, `{"neighbors":"50.1.1.201@500,50.1.1.202@501"}`, `{"neighbors":"fd50::1@500","routerip6":"fd50::2/64"}`}, []string{
			`{"neighbors":"50.1.1.201"}`, `{"neighbors":"50.1.1.201@0"}`, `{"neighbors":"x@1"}`, `{"neighbors":"50.1.1.1@500"}`, `{"neighbors":"50.1.1.2@500"}`, `{"neighbors":"fd50::1@500"}`, `{"neighbors":"50.1.1.3@1,50.1.1.3@1"}`,
		}},
		"password":     {[]string{`{"password":""}`}, []string{`{"password":"a b"}`, `{"password":"` + strings.Repeat("x", 81) + `"}`}},
		"maxPrefixes":  {[]string{`{"maxPrefixes":0}`, `{"maxPrefixes":1000000}`}, []string{`{"maxPrefixes":-1}`, `{"maxPrefixes":1000001}`}},
		"defaultRoute": {[]string{`{"defaultRoute":true}`, `{"defaultRoute":false}`}, []string{`{"defaultRoute":"yes"}`}},
		"bfd":          {[]string{`{"bfd":""}`, `{"bfd":"on"}`, `{"bfd":"off"}`}, []string{`{"bfd":"no"}`}},
	},
	effects: map[string]archtest.Effect{
		"hostname":     archtest.By("TestHostUsesItsOwnBGPSettings"),
		"routerip":     archtest.By("TestHostSpeaksBGPWhileItHasSettings"),
		"as":           archtest.By("TestHostSpeaksBGPWhileItHasSettings"),
		"neighbor":     archtest.By("TestHostSpeaksBGPWhileItHasSettings"),
		"neighbor-as":  archtest.By("TestWrongSettingsBreakNothing"),
		"neighbors":    archtest.By("TestHostSpeaksBGPWhileItHasSettings"),
		"password":     archtest.By("TestHostSpeaksBGPWhileItHasSettings"),
		"routerip6":    archtest.By("TestIPv6NeedsAnAddress"),
		"maxPrefixes":  archtest.By("TestIPv6NeedsAnAddress"),
		"bfd=on":       archtest.By("TestIPv6NeedsAnAddress"),
		"bfd=off":      archtest.By("TestIPv6NeedsAnAddress"),
		"defaultRoute": archtest.By("TestNeighborFollowsTheSettings"),
	},
})

// A password goes in and is never shown; what stands for it keeps it.
func TestBgpPasswordIsNeverShown(t *testing.T) {
	f := serve(t, 0)
	f.addHosts("host1")
	const path = "/api/v1/Bgps/host1/"
	body := func(password, more string) string {
		return `{"hostname":"host1","routerip":"50.1.1.2/24","as":"1","neighbor-as":"2","password":"` + password + `"` + more + `}`
	}
	if status, _ := f.do("POST", path, body(model.PasswordKept, "")); status == http.StatusOK {
		t.Error("a password was kept that is not there")
	}
	if said := f.must("POST", path, body("hush", "")); strings.Contains(said, "hush") {
		t.Errorf("it answers %s", said)
	}
	f.must("PUT", path, body(model.PasswordKept, `,"maxPrefixes":5`))
	for _, at := range []string{path, "/api/v1/Bgps/", "/api/v1/inspect/Bgps/host1/"} {
		if _, got := f.do("GET", at, ""); strings.Contains(got, "hush") || !strings.Contains(got, model.PasswordKept) || !strings.Contains(got, `"maxPrefixes":5`) {
			t.Errorf("%s: %s", at, got)
		}
	}
	if kept := fmt.Sprint(f.contents()); !strings.Contains(kept, "hush") || strings.Contains(kept, model.PasswordKept) {
		t.Errorf("kept: %s", kept)
	}
}
