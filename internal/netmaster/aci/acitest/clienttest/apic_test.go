package clienttest

import (
	"bytes"
	"encoding/json"
	"io"
	"log" //nolint:depguard // the client writes to it
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ciscoecosystem/aci-go-client/v2/client"
	"github.com/ciscoecosystem/aci-go-client/v2/models"

	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

// must returns v, which a call that may not fail returned.
func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// theirs returns a client that is not ours.
func theirs(t *testing.T, sim *acitest.APIC) *client.Client {
	t.Helper()
	server := sim.Start()
	t.Cleanup(server.Close)
	was := log.Writer()
	log.SetOutput(io.Discard) // it writes all that it does
	t.Cleanup(func() { log.SetOutput(was) })
	return client.NewClient(server.URL, sim.User, client.Password(sim.Password), client.Insecure(true), client.SkipLoggingPayload(true))
}

// TestOtherClientsAgreeWithTheSimulator has a client that is not ours make an application, read it, change it
// and take it away: it and the simulator read the documents alike.
func TestOtherClientsAgreeWithTheSimulator(t *testing.T) {
	sim := acitest.NewAPIC()
	c := theirs(t, sim)
	must[*models.Tenant](t)(c.CreateTenant("T", "ours", models.TenantAttributes{}))
	must[*models.VRF](t)(c.CreateVRF("v", "T", "", models.VRFAttributes{PcEnfPref: "enforced"}))
	must[*models.BridgeDomain](t)(c.CreateBridgeDomain("b", "T", "", models.BridgeDomainAttributes{ArpFlood: "yes", UnicastRoute: "yes", UnkMacUcastAct: "flood"}))
	must[*models.Subnet](t)(c.CreateSubnet("10.1.1.1/24", "b", "T", "", models.SubnetAttributes{Scope: "public"}))
	must[*models.ApplicationProfile](t)(c.CreateApplicationProfile("a", "T", "", models.ApplicationProfileAttributes{}))
	for _, e := range []string{"web", "db"} {
		must[*models.ApplicationEPG](t)(c.CreateApplicationEPG(e, "a", "T", "", models.ApplicationEPGAttributes{}))
	}
	must[*models.FVDomain](t)(c.CreateFVDomain("uni/phys-p", "web", "a", "T", "", models.FVDomainAttributes{ResImedcy: "immediate"}))
	const path = "topology/pod-1/paths-101/pathep-[eth1/14]"
	must[*models.StaticPath](t)(c.CreateStaticPath(path, "web", "a", "T", "", models.StaticPathAttributes{Encap: "vlan-7", Mode: "regular"}))
	must[*models.Contract](t)(c.CreateContract("c", "T", "", models.ContractAttributes{Scope: "context"}))
	must[*models.ContractSubject](t)(c.CreateContractSubject("s", "c", "T", "", models.ContractSubjectAttributes{RevFltPorts: "yes"}))
	must[*models.Filter](t)(c.CreateFilter("f", "T", "", models.FilterAttributes{}))
	must[*models.FilterEntry](t)(c.CreateFilterEntry("e", "f", "T", "", models.FilterEntryAttributes{EtherT: "ip", Prot: "6", DFromPort: "80", DToPort: "81"}))
	for _, err := range []error{
		c.CreateRelationfvRsCtxFromBridgeDomain("uni/tn-T/BD-b", "v"), c.CreateRelationfvRsBdFromApplicationEPG("uni/tn-T/ap-a/epg-web", "b"),
		c.CreateRelationvzRsSubjFiltAttFromContractSubject("uni/tn-T/brc-c/subj-s", "f"), c.CreateRelationfvRsProvFromApplicationEPG("uni/tn-T/ap-a/epg-db", "c"),
		c.CreateRelationfvRsConsFromApplicationEPG("uni/tn-T/ap-a/epg-web", "c"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range sim.Requests() { // it takes some refusals for success
		if r.Status != http.StatusOK {
			t.Errorf("%s %s was refused", r.Method, r.Path)
		}
	}
	if e := must[*models.FilterEntry](t)(c.ReadFilterEntry("e", "f", "T")); e.Prot != "tcp" || e.DFromPort != "http" || e.DToPort != "81" || e.SFromPort != "unspecified" {
		t.Errorf("entry: %+v", e.FilterEntryAttributes)
	}
	if p := must[*models.StaticPath](t)(c.ReadStaticPath(path, "web", "a", "T")); p.Encap != "vlan-7" || p.TDn != path || p.DistinguishedName != "uni/tn-T/ap-a/epg-web/rspathAtt-["+path+"]" {
		t.Errorf("path: %+v", p)
	}
	if list := must[[]*models.Contract](t)(c.ListContract("T")); len(list) != 1 || list[0].Name != "c" {
		t.Errorf("contracts: %v", list)
	}
	if bd := must[any](t)(c.ReadRelationfvRsBdFromApplicationEPG("uni/tn-T/ap-a/epg-web")); !strings.Contains(bd.(string), "b") {
		t.Errorf("bridge domain: %v", bd)
	}
	must[*models.Contract](t)(c.CreateContract("c", "T", "", models.ContractAttributes{Scope: "tenant"}))
	if o := must[*models.Contract](t)(c.ReadContract("c", "T")); o.Scope != "tenant" {
		t.Errorf("changed: %+v", o.ContractAttributes)
	}
	sim.EndSessions() // it logs in again, and would send a body no second time
	must[*models.Contract](t)(c.ReadContract("c", "T"))
	if err := c.DeleteTenant("T"); err != nil {
		t.Fatal(err)
	}
	for dn := range sim.Tree() {
		if strings.HasPrefix(dn, "uni/tn-T") {
			t.Errorf("left: %s", dn)
		}
	}
	if _, err := c.ReadContract("c", "T"); err == nil {
		t.Error("a contract of no tenant")
	}
	if _, err := withWrongPassword(sim).CreateTenant("U", "", models.TenantAttributes{}); err == nil {
		t.Error("logged in with a wrong password")
	}
}

// withWrongPassword returns a client of sim's with a wrong password.
func withWrongPassword(sim *acitest.APIC) *client.Client {
	return client.NewClient("https://apic", sim.User, client.Password("wrong"), client.HttpClient(&http.Client{Transport: acitest.Direct(sim)}), client.SkipLoggingPayload(true))
}

// ask makes a request of somebody who is logged in.
func ask(t *testing.T, sim *acitest.APIC, token, method, path, body string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://apic"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.AddCookie(&http.Cookie{Name: "APIC-cookie", Value: token})
	}
	resp, err := acitest.Direct(sim).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func login(t *testing.T, sim *acitest.APIC) string {
	t.Helper()
	_, text := ask(t, sim, "", http.MethodPost, "/api/aaaLogin.json", `{"aaaUser":{"attributes":{"name":"admin","pwd":"secret"}}}`)
	var answer struct {
		Imdata []struct {
			Login struct {
				Attributes struct {
					Token string `json:"token"`
				} `json:"attributes"`
			} `json:"aaaLogin"`
		} `json:"imdata"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Imdata) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	return answer.Imdata[0].Login.Attributes.Token
}

// What the object model does not have is refused as a whole.
func TestUnknownClassesAreRefused(t *testing.T) {
	sim := acitest.NewAPIC()
	token := login(t, sim)
	if code, text := ask(t, sim, token, http.MethodPost, "/api/mo/uni.json", `{"fvTenant":{"attributes":{"name":"T"},"children":[{"fvAp":{"attributes":{"name":"a"},"children":[{"fvAEPg":{"attributes":{"name":"e"}}}]}},{"vzFilter":{"attributes":{"name":"f"}}}]}}`); code != http.StatusOK {
		t.Fatal(text)
	}
	before := sim.Tree()
	for name, c := range map[string]struct{ path, body, want string }{
		"a class":               {"/api/mo/uni/tn-T.json", `{"fvTennant":{"attributes":{}}}`, "unknown managed object class"},
		"a class below":         {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{"descr":"x"},"children":[{"fvAEPg":{"attributes":{"name":"x"}}}]}}`, "is not below"},
		"a property":            {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{"colour":"blue"}}}`, "unknown property"},
		"a value":               {"/api/mo/uni/tn-T/brc-c.json", `{"vzBrCP":{"attributes":{"scope":"world"}}}`, "failed validation"},
		"a name":                {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{},"children":[{"fvAp":{"attributes":{"name":"a b"}}}]}}`, "failed validation"},
		"a long name":           {"/api/mo/uni/tn-T/brc-" + strings.Repeat("x", 65) + ".json", `{"vzBrCP":{"attributes":{}}}`, "failed validation"},
		"a DN":                  {"/api/mo/uni/tn-T/contract-c.json", `{"vzBrCP":{"attributes":{}}}`, "Invalid DN"},
		"another's DN":          {"/api/mo/uni/tn-T/brc-c.json", `{"vzFilter":{"attributes":{"name":"c"}}}`, "Invalid DN"},
		"a name and a DN":       {"/api/mo/uni/tn-T/brc-c.json", `{"vzBrCP":{"attributes":{"name":"d"}}}`, "must be c"},
		"no parent":             {"/api/mo/uni/tn-U/brc-c.json", `{"vzBrCP":{"attributes":{}}}`, "parent of"},
		"made twice":            {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{"status":"created"}}}`, "already exists"},
		"changed and not there": {"/api/mo/uni/tn-T/brc-c.json", `{"vzBrCP":{"attributes":{"status":"modified"}}}`, "not found"},
		"a status":              {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{"status":"gone"}}}`, "failed validation"},
		"what is implied":       {"/api/mo/uni/tn-T/ap-a/epg-e/rsbd.json", `{"fvRsBd":{"attributes":{"status":"deleted"}}}`, "can not be deleted"},
		"a VLAN":                {"/api/mo/uni/tn-T/ap-a/epg-e/rspathAtt-[topology/pod-1/paths-1/pathep-[eth1/1]].json", `{"fvRsPathAtt":{"attributes":{"encap":"vlan-4095"}}}`, "failed validation"},
		"a path":                {"/api/mo/uni/tn-T/ap-a/epg-e/rspathAtt-[topology/pod-1].json", `{"fvRsPathAtt":{"attributes":{"encap":"vlan-1"}}}`, "failed validation"},
		"a domain":              {"/api/mo/uni/tn-T/ap-a/epg-e/rsdomAtt-[uni/tn-T].json", `{"fvRsDomAtt":{"attributes":{}}}`, "failed validation"},
		"ports of no protocol":  {"/api/mo/uni/tn-T/flt-f/e-e.json", `{"vzEntry":{"attributes":{"etherT":"ip","dFromPort":"80","dToPort":"80"}}}`, "ports need protocol"},
		"ports in disorder":     {"/api/mo/uni/tn-T/flt-f/e-e.json", `{"vzEntry":{"attributes":{"etherT":"ip","prot":"tcp","dFromPort":"90","dToPort":"81"}}}`, "is behind"},
		"a port":                {"/api/mo/uni/tn-T/flt-f/e-e.json", `{"vzEntry":{"attributes":{"etherT":"ip","prot":"tcp","dFromPort":"65536","dToPort":"65536"}}}`, "failed validation"},
		"no ether type":         {"/api/mo/uni/tn-T/flt-f/e-e.json", `{"vzEntry":{"attributes":{"prot":"tcp"}}}`, "ether type"},
		"half of it":            {"/api/mo/uni/tn-T.json", `{"fvTenant":{"attributes":{"descr":"half"},"children":[{"vzFilter":{"attributes":{"name":"g"}}},{"vzFilter":{"attributes":{"name":"!"}}}]}}`, "failed validation"},
		"no JSON":               {"/api/mo/uni/tn-T.json", `<fvTenant/>`, "parse error"},
		"XML":                   {"/api/mo/uni/tn-T.xml", `{}`, "only .json"},
	} {
		code, text := ask(t, sim, token, http.MethodPost, c.path, c.body)
		if code != http.StatusBadRequest || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if len(before) != len(sim.Tree()) {
		t.Error("something of what was refused was done")
	}
	for _, path := range []string{"/api/class/fvTennant.json", "/api/mo/uni/tenant-T.json", "/api/mo/uni.json?query-target=all", "/api/mo/uni.json?colour=blue", "/api/mo/uni.json?target-subtree-class=fvTennant", "/api/class/fvTenant.json?query-target-filter=name", "/api/mim.json"} {
		if code, text := ask(t, sim, token, http.MethodGet, path, ""); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := ask(t, sim, token, http.MethodGet, "/api/mo/uni/tn-none.json", ""); code != http.StatusOK || !strings.Contains(text, `"totalCount":"0"`) {
		t.Errorf("nothing: %d %s", code, text)
	}
	if code, _ := ask(t, sim, "token0", http.MethodGet, "/api/mo/uni.json", ""); code != http.StatusForbidden {
		t.Errorf("no session: %d", code)
	}
	if code, _ := ask(t, sim, "", http.MethodPost, "/api/aaaLogin.json", `{"aaaUser":{"attributes":{"name":"admin","pwd":"x"}}}`); code != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d", code)
	}
	if code, _ := ask(t, sim, token, http.MethodPost, "/api/aaaLogout.json", `{}`); code != http.StatusOK {
		t.Error("not logged out")
	}
	if code, _ := ask(t, sim, token, http.MethodGet, "/api/mo/uni.json", ""); code != http.StatusForbidden {
		t.Errorf("after the logout: %d", code)
	}
}

// What a relation refers to is looked for in the tenant, then in common.
func TestRelationsResolveInTenantThenCommon(t *testing.T) {
	sim := acitest.NewAPIC()
	for _, o := range [][]string{
		{"uni/tn-T", "fvTenant"}, {"uni/tn-T/ap-a", "fvAp"}, {"uni/tn-T/ap-a/epg-e", "fvAEPg"}, {"uni/tn-T/ap-a/epg-e/rscons-c", "fvRsCons"},
	} {
		if err := sim.Put(o[0], o[1]); err != nil {
			t.Fatal(err)
		}
	}
	token := login(t, sim)
	state := func() string {
		_, text := ask(t, sim, token, http.MethodGet, "/api/mo/uni/tn-T/ap-a/epg-e/rscons-c.json", "")
		i := slices.IndexFunc([]string{"missing-target", `"tDn":"uni/tn-common/brc-c"`, `"tDn":"uni/tn-T/brc-c"`}, func(s string) bool { return strings.Contains(text, s) })
		return []string{"?", "missing", "common", "own"}[i+1]
	}
	if s := state(); s != "missing" {
		t.Error(s)
	}
	for _, c := range []struct{ dn, want string }{{"uni/tn-common/brc-c", "common"}, {"uni/tn-T/brc-c", "own"}} {
		if err := sim.Put(c.dn, "vzBrCP"); err != nil {
			t.Fatal(err)
		}
		if s := state(); s != c.want {
			t.Errorf("%s, want %s", s, c.want)
		}
	}
}
