package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
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
	effects: map[string]archtest.Effect{
		"name":                    archtest.By("TestFieldConstraintsAreEnforced"),
		"physicalDomain":          archtest.By("TestFabricIsAsObjectsSayAfterAnyHistory"),
		"pathBindings":            archtest.By("TestUnsupportedObjectsAreReported"),
		"nodeBindings":            archtest.By("TestTreeEqualsOneMadeFromNothing"),
		"enforcePolicies=yes":     archtest.By("TestTreeEqualsOneMadeFromNothing"),
		"enforcePolicies=no":      archtest.By("TestTreeEqualsOneMadeFromNothing"),
		"includeCommonTenant=yes": archtest.By("TestNextLeaderDeletesFromTheGateway"),
		"includeCommonTenant=no":  archtest.By("TestNextLeaderDeletesFromTheGateway"),
	},
})

// TestFabricStateIsShownWithoutSettings: while an ACI fabric is kept, its state is shown also where no settings
// were set, with the ones in force; otherwise there is nothing to show.
func TestFabricStateIsShownWithoutSettings(t *testing.T) {
	f := serve(t, 0)
	const inspect, object = "/api/v1/inspect/aciGws/aciGw/", "/api/v1/aciGws/aciGw/"
	status := func(path string) int {
		s, _ := f.do("GET", path, "")
		return s
	}
	if s := status(inspect); s != http.StatusNotFound {
		t.Errorf("without a fabric: %d", s)
	}
	put := func(fabric tables.AciFabric) {
		t.Helper()
		if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.AciFabrics.Put(tx, fabric) }); err != nil {
			t.Fatal(err)
		}
	}
	f.must("POST", "/api/v1/globals/global/", `{"name":"global","networkInfraType":"aci"}`)
	var got struct {
		Config api.AciGw
		Oper   api.AciGwOper
	}
	look := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(f.must("GET", inspect, "")), &got); err != nil {
			t.Fatal(err)
		}
	}
	if look(); got.Config.Name != "aciGw" || got.Config.EnforcePolicies != "yes" || got.Config.IncludeCommonTenant != "no" {
		t.Errorf("settings %+v", got.Config)
	}
	put(tables.AciFabric{Kept: true, Via: "https://apic1", Trouble: "503 away"})
	for end := time.Now().Add(time.Minute); got.Oper.Trouble == "" && time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		look()
	}
	if got.Oper.Trouble != "503 away" || got.Oper.Via != "https://apic1" {
		t.Errorf("state %+v", got.Oper)
	}
	f.must("POST", "/api/v1/globals/global/", `{"name":"global","networkInfraType":"default"}`)
	if look(); got.Oper.Trouble != "503 away" { // what was made is still there
		t.Errorf("of another type: %+v", got.Oper)
	}
	for _, path := range []string{object, "/api/v1/inspect/aciGws/other/"} {
		if s := status(path); s != http.StatusNotFound {
			t.Errorf("%s: %d", path, s)
		}
	}
}
