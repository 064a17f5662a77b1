package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestMissingPartsOfTheFabricAreReported: parts that the fabric does not have are reported with their app
// profile, by the doctor, which names some, and in a sentence for /readyz.
func TestMissingPartsOfTheFabricAreReported(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.must("POST", "/api/v1/appProfiles/blue:shop/", `{"tenantName":"blue","appProfileName":"shop","endpointGroups":["web"]}`)
	fabric := tables.AciFabric{Kept: true, Via: "https://apic1", Trouble: "503 away", Problems: []tables.AciProblem{
		{Object: "appProfile blue:shop", Text: "one"},
		{Object: "appProfile blue:shop2", Text: "no1"},
		{Object: "endpointGroup blue:web", Text: "two"},
		{Object: "endpointGroup blue:db", Text: "no2"},
		{Object: "rule blue:p:1", Text: "three"},
		{Object: "rule blue:other:1", Text: "no3"},
		{Object: "uni/tn-blue/ap-shop/epg-web", Text: "four"},
		{Object: "uni/tn-blue/ap-shop2", Text: "no4"},
		{Object: "uni/tn-blue/ap-shop", Text: "five"},
		{Object: "", Text: "no5"},
	}}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error { return tables.AciFabrics.Put(tx, fabric) }); err != nil {
		t.Fatal(err)
	}
	var o struct {
		Oper api.AppProfileOper
	}
	for end := time.Now().Add(time.Minute); len(o.Oper.Problems) == 0 && time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/inspect/appProfiles/blue:shop/", "")), &o); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, p := range o.Oper.Problems {
		got = append(got, p.Text)
	}
	if fmt.Sprint(got) != "[one two three four five]" {
		t.Errorf("problems %v", got)
	}
	if all := f.must("GET", "/api/v1/doctor", ""); !strings.Contains(all, `{"name":"fabric-objects","object":"netmaster","check":"fabric","where":"endpointGroup blue:web","severity":"warning","text":"not in force in the ACI fabric: two"`) {
		t.Errorf("the doctor does not tell: %s", all)
	}

	many := tables.AciFabric{More: 7}
	for i := range 25 {
		many.Problems = append(many.Problems, tables.AciProblem{Object: fmt.Sprint("rule ", i), Text: "x"})
	}
	list := facts{fabric: many, most: fabricFindings}.judgeFabric()
	if n := len(list); n != 21 || !strings.HasPrefix(list[20].Text, "12 more") {
		t.Errorf("%d findings, the last %+v", n, list[n-1])
	}
	if list := (facts{fabric: tables.AciFabric{Trouble: "away"}}).judgeFabric(); len(list) != 1 || list[0].Severity != api.SeverityError || !strings.Contains(list[0].Text, "away") {
		t.Errorf("trouble: %+v", list)
	}
	for want, x := range map[string]tables.AciFabric{"trying again: 503 away": fabric, "32 parts are not in force, such as rule 0: x": many, "<nil>": {Kept: true}} {
		h := api.Health{Ready: true}
		AddFabric(&h, x)
		var got []string
		for _, c := range h.Conditions {
			got = append(got, cmp.Or(c.Message, "<nil>"))
		}
		if !strings.Contains(strings.Join(got, "\n"), want) || !h.Ready {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
