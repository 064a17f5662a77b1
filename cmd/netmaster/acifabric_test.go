package main

import (
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestFabricOfAProcess: a netmaster with its flags makes of objects by REST the tree of
// the APIC that the page says; a rule that changes is one entry made and one deleted, and
// a netmaster that was killed and is there again writes what changed since, and no more.
func TestFabricOfAProcess(t *testing.T) {
	sim := acitest.NewAPIC()
	server := sim.Start()
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the tenant is\n%s", strings.Join(ofBlue(sim.Tree()), "\n"))
		}
	})
	others := func(dn, class string) {
		t.Helper()
		if err := sim.Put(dn, class); err != nil {
			t.Fatal(err)
		}
	}
	others("uni/tn-others", "fvTenant")
	others("uni/tn-others/ap-shop", "fvAp")
	others("uni/tn-common/brc-internet", "vzBrCP")
	dir := t.TempDir()
	for name, text := range map[string]string{"password": sim.Password + "\n", "ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"--etcd-listen", storetest.FreePort(t), "--data-dir", filepath.Join(dir, "data"), "--infra", "aci", "--apic", server.URL, "--apic-user", sim.User,
		"--apic-password-file", filepath.Join(dir, "password"), "--apic-ca", filepath.Join(dir, "ca.pem"), "--apic-cluster", "seven",
	}
	p := start(t, nil, args...)
	p.ready()
	post := func(path string, body map[string]any) {
		t.Helper()
		if err := p.Do(t.Context(), http.MethodPost, "/api/v1/"+path+"/", body, nil); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(id, protocol string, port int) {
		t.Helper()
		post("rules/blue:store:"+id, map[string]any{
			"tenantName": "blue", "policyName": "store", "ruleId": id, "direction": "in", "fromEndpointGroup": "web", "action": "allow", "protocol": protocol, "port": port,
		})
	}
	another := func(id, protocol string, port int) { // a rule is changed by another one of its name
		t.Helper()
		if err := p.Do(t.Context(), http.MethodDelete, "/api/v1/rules/blue:store:"+id+"/", nil, nil); err != nil {
			t.Fatal(err)
		}
		rule(id, protocol, port)
	}
	post("aciGws/aciGw", map[string]any{"name": "aciGw", "physicalDomain": "containers", "pathBindings": "topology/pod-1/paths-101/pathep-[eth1/14]", "enforcePolicies": "yes"})
	post("tenants/blue", map[string]any{"tenantName": "blue"})
	post("networks/blue:net", map[string]any{"tenantName": "blue", "networkName": "net", "encap": "vlan", "subnet": "10.1.0.0/16", "gateway": "10.1.0.1"})
	post("policys/blue:store", map[string]any{"tenantName": "blue", "policyName": "store"})
	post("extContractsGroups/blue:out", map[string]any{"tenantName": "blue", "contractsGroupName": "out", "contractsType": "consumed", "contracts": []string{"uni/tn-common/brc-internet"}})
	post("endpointGroups/blue:web", map[string]any{"tenantName": "blue", "networkName": "net", "groupName": "web", "extContractsGrps": []string{"out"}})
	rule("1", "tcp", 80)
	rule("2", "udp", 53)
	post("endpointGroups/blue:db", map[string]any{"tenantName": "blue", "networkName": "net", "groupName": "db", "policies": []string{"store"}})
	post("appProfiles/blue:shop", map[string]any{"tenantName": "blue", "appProfileName": "shop", "endpointGroups": []string{"web", "db"}})

	const contract, path = "brc-store:Frm:web", "rspathAtt-[topology/pod-1/paths-101/pathep-[eth1/14]]"
	fabric := []string{
		"", "ctx-contiv enforced", "BD-net", "BD-net/rsctx contiv", "BD-net/subnet-[10.1.0.1/16]", "ap-shop",
		"ap-shop/epg-web", "ap-shop/epg-web/rsbd net", "ap-shop/epg-web/rsdomAtt-[uni/phys-containers]", "ap-shop/epg-web/" + path + " vlan-2",
		"ap-shop/epg-web/rscons-store:Frm:web", "ap-shop/epg-web/rscons-internet",
		"ap-shop/epg-db", "ap-shop/epg-db/rsbd net", "ap-shop/epg-db/rsdomAtt-[uni/phys-containers]", "ap-shop/epg-db/" + path + " vlan-3", "ap-shop/epg-db/rsprov-store:Frm:web",
		contract, contract + "/subj-store:Frm:web", contract + "/subj-store:Frm:web/rssubjFiltAtt-store:Frm:web", "flt-store:Frm:web",
	}
	const entry = "flt-store:Frm:web/e-"
	before := sim.Tree()
	// becomes waits for the fabric with these entries; nothing but changes may differ from before.
	becomes := func(what string, entries, changes []string) {
		t.Helper()
		want := slices.Sorted(slices.Values(append(entries, fabric...)))
		p.until(what, func() bool { return slices.Equal(ofBlue(sim.Tree()), want) })
		now := sim.Tree()
		if got := differences(before, now); changes != nil && !slices.Equal(got, changes) {
			t.Errorf("it %s: changed are %q, want %q", what, got, changes)
		}
		before = now
	}
	becomes("makes the objects", []string{entry + "tcp-80", entry + "udp-53"}, nil)
	var told api.Inspection[api.AciGw, api.AciGwOper]
	p.until("says that all is there", func() bool {
		return p.Do(t.Context(), http.MethodGet, "/api/v1/inspect/aciGws/aciGw/", nil, &told) == nil && told.Oper.InStep
	})
	if o := told.Oper; o.Via != server.URL || o.NumAppProfiles != 1 || o.Trouble != "" || len(o.Problems) > 0 {
		t.Errorf("told is %+v", o)
	}
	others("uni/tn-blue/brc-hand", "vzBrCP") // ours is the tenant around it
	before = sim.Tree()

	another("1", "tcp", 81)
	becomes("changes a rule", []string{entry + "tcp-81", entry + "udp-53"}, []string{"- uni/tn-blue/" + entry + "tcp-80", "+ uni/tn-blue/" + entry + "tcp-81"})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	p = start(t, nil, args...)
	p.ready()
	another("2", "udp", 54)
	becomes("changes a rule, killed and started", []string{entry + "tcp-81", entry + "udp-54"}, []string{"- uni/tn-blue/" + entry + "udp-53", "+ uni/tn-blue/" + entry + "udp-54"})
}

// differences are the objects that are in one tree only, or differ. A recreated object with
// the same content does not.
func differences(before, now acitest.Tree) (out []string) {
	for dn, o := range before {
		if n, is := now[dn]; !is || !reflect.DeepEqual(o, n) {
			out = append(out, "- "+dn)
		}
	}
	for dn, o := range now {
		if b, was := before[dn]; !was || !reflect.DeepEqual(o, b) {
			out = append(out, "+ "+dn)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return out
}

// ofBlue returns what a tree has of tenant blue: names below it, with what they refer to or
// carry; without what the APIC makes by itself, and what another hand made.
func ofBlue(tree acitest.Tree) (out []string) {
	for dn, o := range tree {
		at, ours := strings.CutPrefix(dn, "uni/tn-blue")
		if !ours || o.Class == "fvRsTenantMonPol" || o.Class == "vnsSvcCont" || at == "/brc-hand" {
			continue
		}
		line := []string{strings.TrimPrefix(at, "/")}
		for _, p := range []string{"encap", "tnFvBDName", "tnFvCtxName"} {
			if v := o.Props[p]; v != "" && v != "unknown" {
				line = append(line, v)
			}
		}
		if o.Class == "fvCtx" {
			line = append(line, o.Props["pcEnfPref"])
		}
		out = append(out, strings.Join(line, " "))
	}
	slices.Sort(out)
	return out
}
