package apiserver

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// othersWrites are writes of blue's administrator that meet something of others, by kind.
// Each is a method, a path and a body.
var othersWrites = map[string][][3]string{
	"network": {
		network("host", `"encap":"vxlan","subnet":"10.30.0.0/16"`),
		network("endpoint", `"encap":"vxlan","subnet":"10.31.0.0/24"`),
		network("added", `"encap":"vxlan","subnet":"10.34.0.0/24"`),
		network("master", `"encap":"vxlan","subnet":"10.32.0.0/24"`),
		network("store", `"encap":"vxlan","subnet":"10.33.0.0/24"`),
		network("wide", `"encap":"vxlan","subnet":"10.28.0.0/14"`),
		network("six", `"encap":"vxlan","ipv6Subnet":"2001:db8::/64"`),
		{http.MethodPost, "/api/v1/networks/default:native", `{"tenantName":"default","networkName":"native","encap":"vxlan","native":true,"subnet":"10.30.0.0/24"}`},
		{http.MethodPost, "/api/v1/networks/default:router", `{"tenantName":"default","networkName":"router","encap":"vxlan","native":true,"subnet":"10.42.0.0/25"}`},
		network("tag", `"encap":"vlan","pktTag":7,"subnet":"10.9.0.0/24"`),
		network("segment", `"encap":"vlan","pktTag":8,"subnet":"10.9.0.0/24"`),
		network("announced", `"encap":"vlan","subnet":"10.1.3.0/25"`),
		network("plan", `"encap":"vxlan","subnet":"10.1.2.0/25"`),
		{http.MethodDelete, "/api/v1/networks/blue:shared", ""},
		{http.MethodPost, "/api/v1/apply", `{"objects":[{"kind":"network","tenantName":"blue","networkName":"listed","encap":"vxlan","subnet":"10.30.0.0/16"}]}`},
	},
}

// ownOnly are the kinds of tenants that meet nothing of others, and why.
var ownOnly = map[string]string{
	"appProfile":        "its groups are its tenant's",
	"assertion":         "it is about endpoints of its tenant",
	"endpointGroup":     "its network, pool and profiles are its tenant's; its VLAN is chosen for it",
	"extContractsGroup": "its name is its tenant's",
	"netprofile":        "its name is its tenant's",
	"networkPolicy":     "it selects in its tenant",
	"policy":            "its name is its tenant's",
	"rule":              "it names groups and networks of its tenant",
	"serviceLB":         "its address is its network's",
}

func network(name, fields string) [3]string {
	return [3]string{http.MethodPost, "/api/v1/networks/blue:" + name, `{"tenantName":"blue","networkName":"` + name + `",` + fields + `}`}
}

// TestRefusedWritesNameNothingOfOthers: a tenant administrator's write that collides with
// others is refused without their names and addresses, and the refusal says whom to ask. A
// cluster administrator sees the collision.
func TestRefusedWritesNameNothingOfOthers(t *testing.T) {
	for _, kind := range kindsOfTenants() {
		if (ownOnly[kind] == "") == (len(othersWrites[kind]) == 0) {
			t.Errorf("kind %s: say either what it meets of others, or why it meets nothing", kind)
		}
	}
	mem := memory.New()
	_, err := mem.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(
			tables.Hosts.Put(tx, model.Host{Name: "h-is", Control: netip.MustParseAddr("10.30.0.5"), VTEP: netip.MustParseAddr("10.31.0.5"), IPv6: netip.MustParseAddr("2001:db8::5")}),
			tables.HostAddressRows.Put(tx, tables.HostAddresses{Host: "h-is", Added: []netip.Addr{netip.MustParseAddr("10.34.0.5")}}),
			cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.32.0.9", Port: 9999}.Put(tx, nil),
			tables.Numbers.Create(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberVLAN, Number: 8}, Owner: "group t-is:g-is"}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	clients := people{"root": everybody["root"], "blue": somebody("blue", access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue", "default"}})}
	f := startAskingOn(t, mem, func(c *Config) {
		c.Authenticate = func(r *http.Request) (access.Identity, error) {
			return access.Identify(r, []access.Bearer{clients})
		}
	})
	f.ctrl.Kubernetes.Reserve(map[netip.Addr]string{netip.MustParseAddr("10.33.0.2"): "is the address of etcd-is"})
	for _, m := range [][2]string{
		{"/api/v1/globals/global", `{"name":"global","fwdMode":"routing","tenantPrefixes":["10.42.0.0/16","10.30.0.0/16"]}`},
		{"/api/v1/tenants/blue", `{"tenantName":"blue"}`},
		{"/api/v1/tenants/t-is", `{"tenantName":"t-is"}`},
		{"/api/v1/tenants/u-is", `{"tenantName":"u-is"}`},
		{"/api/v1/networks/blue:shared", `{"tenantName":"blue","networkName":"shared","encap":"vxlan","subnet":"10.1.1.0/24"}`},
		{"/api/v1/networks/t-is:n-is", `{"tenantName":"t-is","networkName":"n-is","encap":"vlan","pktTag":7,"subnet":"10.1.2.0/24"}`},
		{"/api/v1/networks/u-is:n-is", `{"tenantName":"u-is","networkName":"n-is","encap":"vlan","pktTag":9,"subnet":"10.1.3.0/24"}`},
		{"/api/v1/tenants/t-is", `{"tenantName":"t-is","sharedNetworks":["blue:shared"]}`},
		{"/api/v1/Bgps/h-is", `{"hostname":"h-is","routerip":"10.42.0.2/24","as":"65001","neighbor-as":"65002","neighbor":"10.42.0.1"}`},
	} {
		if w := f.ask("root", http.MethodPost, m[0], m[1]); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", m[0], w.Code, w.Body)
		}
	}
	for kind, writes := range othersWrites {
		for _, w := range writes {
			got := f.ask("blue", w[0], w[1], w[2])
			text := got.Body.String()
			if got.Code != http.StatusConflict {
				t.Errorf("%s %s: %d %s", kind, w[1], got.Code, text)
			}
			for _, theirs := range []string{"-is", "10.30.0.5", "10.31.0.5", "10.34.0.5", "10.32.0.9", "10.33.0.2", "2001:db8::5", "10.42.0.0", "10.42.0.2", "10.1.2.0/24", "10.1.3.0/24"} {
				if strings.Contains(text, theirs) && !strings.Contains(w[2], theirs) {
					t.Errorf("%s %s names %s to a tenant administrator: %s", kind, w[1], theirs, text)
				}
			}
			if !strings.Contains(text, "another tenant") && !strings.Contains(text, "cluster administrator") {
				t.Errorf("%s %s does not say whom to ask: %s", kind, w[1], text)
			}
			if got = f.ask("root", w[0], w[1], w[2]); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "-is") && !strings.Contains(got.Body.String(), "a netmaster") {
				t.Errorf("%s %s: a cluster administrator is told %d %s", kind, w[1], got.Code, got.Body)
			}
		}
	}
}
