package apiserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// TestEverybodySeesAndChangesTheirOwn: everybody sees and changes what is theirs, and
// the record says what became of it.
func TestEverybodySeesAndChangesTheirOwn(t *testing.T) {
	f := startAsking(t, nil)
	rec, must := &f.rec, f.must
	network := func(tenant, subnet string) string {
		return `{"tenantName":"` + tenant + `","networkName":"net","encap":"vxlan","subnet":"` + subnet + `"}`
	}
	must(200, "root", "POST", "/api/v1/globals/global", `{"name":"global","networkInfraType":"default","vlans":"1-4094","vxlans":"1-10000"}`)
	for _, tenant := range []string{"blue", "red"} {
		must(200, "root", "POST", "/api/v1/tenants/"+tenant, `{"tenantName":"`+tenant+`"}`)
	}
	must(403, "blue", "POST", "/api/v1/tenants/blue", `{"tenantName":"blue","sharedNetworks":["red:net"]}`)
	must(200, "root", "POST", "/api/v1/networks/red:net", network("red", "10.1.2.0/24"))
	rec.take()

	// A change, another, one that fails and one that is refused.
	must(200, "blue", "POST", "/api/v1/networks/blue:net", network("blue", "10.1.1.0/24"))
	rec.take()
	profile := func(tenant, dscp string) string {
		return `{"tenantName":"` + tenant + `","profileName":"np","DSCP":` + dscp + `}`
	}
	must(200, "blue", "POST", "/api/v1/netprofiles/blue:np", profile("blue", "10"))
	first := rec.take()
	if len(first) != 1 || first[0].After == 0 || first[0].Before != 0 || first[0].Result != audit.Done || first[0].Who != "blue" || first[0].How != "people" || first[0].Role != "tenant-admin" ||
		first[0].Route != "POST /api/v1/netprofiles/{key}" || len(first[0].Objects) != 1 || first[0].Objects[0] != (audit.Object{Kind: "netprofile", Key: "blue:np"}) || first[0].Status != 200 {
		t.Fatalf("recorded %+v", first)
	}
	must(200, "blue", "PUT", "/api/v1/netprofiles/blue:np", profile("blue", "20"))
	must(400, "blue", "PUT", "/api/v1/netprofiles/blue:np", profile("red", "20")) // the path lets in, the body does not fit
	must(403, "blue", "DELETE", "/api/v1/networks/red:net", "")
	got := rec.take()
	if len(got) != 3 || got[0].Before != first[0].After || got[0].After <= got[0].Before || got[1].Result != audit.Failed || got[1].After != 0 || got[1].Status != 400 ||
		got[2].Result != audit.Refused || got[2].Why == "" || got[2].Status != 403 {
		t.Errorf("recorded %+v", got)
	}

	// Lists: all, one's own, and nothing.
	keys := func(who, path string) (keys []string) {
		t.Helper()
		var list []struct{ Key string }
		if err := json.Unmarshal([]byte(must(200, who, "GET", path, "")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			keys = append(keys, o.Key)
		}
		return keys
	}
	for who, want := range map[string]string{"root": "blue:net red:net", "viewer": "blue:net red:net", "blue": "blue:net", "both": "blue:net red:net", "two": "red:net"} {
		if got := strings.Join(keys(who, "/api/v1/networks"), " "); got != want {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	if got := strings.Join(keys("blue", "/api/v1/tenants/"), " "); got != "blue" {
		t.Errorf("blue sees tenants %q", got)
	}
	if got := keys("blue", "/api/v1/policys"); got != nil {
		t.Errorf("blue sees policies %q", got)
	}
	if got := must(200, "blue", "GET", "/services", ""); strings.TrimSpace(got) != "[]" {
		t.Errorf("blue sees services %q", got)
	}
	must(200, "blue", "GET", "/api/v1/networks/blue:net", "")
	must(403, "blue", "GET", "/api/v1/networks/red:net", "")
	must(404, "blue", "GET", "/api/v1/networks/blue:none", "")
	must(200, "blue", "GET", "/api/v1/inspect/networks/blue:net", "")

	// Lists to be applied.
	rec.take()
	policy := func(tenant string) string { return `{"kind":"policy","tenantName":"` + tenant + `","policyName":"p"}` }
	must(200, "blue", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"1","direction":"in","action":"deny"}]}`)
	must(403, "blue", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,`+policy("red")+`]}`)
	must(200, "root", "POST", "/api/v1/apply", `{"objects":[`+policy("blue")+`,`+policy("red")+`]}`)
	got = rec.take()
	if len(got) != 3 || got[0].Result != audit.Done || got[0].After == 0 || len(got[0].Objects) != 2 || got[0].Objects[1] != (audit.Object{Kind: "rule", Key: "blue:p:1"}) || got[1].Result != audit.Refused || len(got[2].Objects) != 2 {
		t.Errorf("recorded %+v", got)
	}
	if got := strings.Join(keys("blue", "/api/v1/policys"), " "); got != "blue:p" {
		t.Errorf("blue sees policies %q", got)
	}
	must(404, "root", "GET", "/api/v1/nothing", "") // the server's own sentence
	if got := rec.take(); len(got) != 0 {
		t.Errorf("reading is recorded: %+v", got)
	}
}
