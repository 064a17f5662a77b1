//go:build integration

package kube

import (
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestPodsWaitForObjects: with the watch behind of any kind that a cluster may have of
// Contiv, or of ClusterNetworkPolicies, a new pod waits that is under what the watch has to
// tell, or names it, and fails with code 11; when the watch goes on, it comes under that
// from its first packet on. What is refused, or lacks something, or is not there, keeps
// a pod from starting for good (code 7), and an event says which label and what there is.
func TestPodsWaitForObjects(t *testing.T) {
	c, client := control(t)
	admin := config(t, c)
	installCRD(t, admin)
	i := installIntents(t, admin)
	p := podsBeside(t, admin, client, "10.1.1.0/24", func(c *testcluster.Config) { c.Name = "kubewait" })
	makeNamespace(t, client, "shop", nil)
	makeNamespace(t, client, "closed", map[string]string{"team": "closed"})
	makeNamespace(t, client, "blue", map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": "own"})
	for _, o := range [][3]string{
		{"policies", "guard", `{}`},
		{"policies", "shut", `{rules: [{ruleId: "1", direction: in, action: deny}]}`},
		{"endpointgroups", "guarded", `{networkName: default-net, policies: [guard]}`},
		{"endpointgroups", "open", `{networkName: default-net}`},
		{"networks", "side", `{subnet: 10.2.0.0/24}`},
		{"netprofiles", "silver", `{bandwidth: 10 mbps}`},
		{"tenants", "red", `{}`},
	} {
		i.create(o[0], o[1], o[2])
	}
	for _, o := range [][2]string{{"policies", "guard"}, {"policies", "shut"}, {"endpointgroups", "guarded"}, {"endpointgroups", "open"}, {"networks", "side"}, {"netprofiles", "silver"}, {"tenants", "red"}} {
		i.wants(o[0], o[1], "True Applied")
	}
	i.create("networks", "blue-own", `{tenantName: blue, networkName: own, subnet: 10.3.0.0/24}`)
	i.wants("networks", "blue-own", "False Missing")
	i.create("endpointgroups", "fast", `{networkName: default-net, netProfile: gold}`)
	i.wants("endpointgroups", "fast", "False Missing")
	group := func(name string) map[string]string { return map[string]string{"io.contiv.net-group": name} }
	network := func(name string) map[string]string { return map[string]string{"io.contiv.network": name} }
	p.attach(p.make("shop", "client", nil), p.make("shop", "guarded", group("guarded")), p.make("shop", "open", group("open")), p.make("closed", "open", nil))
	for _, to := range []string{"shop-guarded", "shop-open", "closed-open"} { // what is to be shut is open
		p.is(testcluster.OK, "shop-client", to, 80)
	}

	patch := func(plural, name, spec string) func(*pods) {
		return func(p *pods) {
			p.t.Helper()
			if err := i.patch(plural, name, `{"spec":`+spec+`}`); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	create := func(plural, name, spec string) func(*pods) {
		return func(p *pods) {
			p.t.Helper()
			i := i
			i.t = p.t
			i.create(plural, name, spec)
		}
	}
	denied := func(p *pods, a *testcluster.Attachment) {
		p.t.Helper()
		p.is(testcluster.Denied, "shop-client", a.Name, 80)
	}
	within := func(subnet string) func(*pods, *testcluster.Attachment) {
		return func(p *pods, a *testcluster.Attachment) {
			p.t.Helper()
			if !netip.MustParsePrefix(subnet).Contains(a.IPv4) {
				p.t.Errorf("%s has the address %s, want one of %s", a.Name, a.IPv4, subnet)
			}
		}
	}
	for _, c := range []struct {
		kind      string
		change    func(*pods) // of which the watch has to tell
		namespace string
		labels    map[string]string
		then      func(*pods, *testcluster.Attachment)
		others    bool // pods that the change is not about do not wait
	}{
		{"policies", patch("policies", "guard", `{"rules":[{"ruleId":"1","direction":"in","action":"deny"}]}`), "shop", group("guarded"), denied, false},
		{"endpointgroups", patch("endpointgroups", "open", `{"policies":["shut"]}`), "shop", group("open"), denied, false},
		{"networks", create("networks", "late", `{subnet: 10.4.0.0/24}`), "shop", network("late"), within("10.4.0.0/24"), true},
		{"tenants", create("tenants", "blue", `{}`), "blue", nil, within("10.3.0.0/24"), true},
		{"netprofiles", create("netprofiles", "gold", `{bandwidth: 100 mbps}`), "shop", group("fast"), within("10.1.1.0/24"), true},
		{"clusternetworkpolicies", func(p *pods) {
			spec := denyAll(7)
			spec.Subject.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "closed"}}
			clusterPolicies(p.t, p.config).create(p.t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: spec})
		}, "closed", nil, denied, false},
	} {
		t.Run(c.kind, p.in(func(p *pods) {
			a := p.waitsFor(c.kind, func() { c.change(p) }, func() testcluster.ContainerSpec {
				if c.others {
					p.attach(p.make("shop", "beside-"+c.kind, nil))
				}
				return p.make(c.namespace, "behind-"+c.kind, c.labels)
			})
			c.then(p, a)
		}))
	}

	i.create("networks", "overlaps", `{subnet: 10.1.1.128/25}`)
	i.wants("networks", "overlaps", "False Refused", "10.1.1.0/24")
	i.create("endpointgroups", "lacks", `{networkName: none}`)
	i.wants("endpointgroups", "lacks", "False Missing", "none")
	makeNamespace(t, client, "nowhere", map[string]string{"io.contiv.tenant": "nobody"})
	const standsFor = " replaces it and is not stored "
	for _, c := range []struct {
		name, namespace string
		labels          map[string]string
		label, there    string
		why             string
	}{
		{"refused", "shop", network("overlaps"), "io.contiv.network=overlaps of the pod", "no such network of tenant default; there are default-net, late, side", "networks.contiv.io/overlaps" + standsFor + "(Refused)"},
		{"lacks", "shop", group("lacks"), "io.contiv.net-group=lacks of the pod", "no such group of tenant default; there are fast, guarded, open", "endpointgroups.contiv.io/lacks" + standsFor + "(Missing)"},
		{"absent", "shop", group("nothing"), "io.contiv.net-group=nothing of the pod", "no such group of tenant default; there are fast, guarded, open", ""},
		{"tenant", "nowhere", nil, "io.contiv.tenant=nobody of the namespace", "no such tenant; there are blue, default, red", ""},
	} {
		t.Run(c.name, p.in(func(p *pods) {
			p.refused(p.make(c.namespace, c.name, c.labels), types.ErrInvalidNetworkConfig, c.label, c.there, c.why)
			p.waitEvent(c.namespace, c.name, c.label, c.there, c.why)
		}))
	}
}
