//go:build integration

package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/api"
)

// intents are the objects in which intent is written.
type intents struct {
	t      *testing.T
	client dynamic.Interface
	config *rest.Config
}

// installIntents applies packaging/kubernetes/crds.yaml and admission.yaml, and waits until all
// is served.
func installIntents(t *testing.T, config *rest.Config) intents {
	t.Helper()
	i := intents{t, ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config)), config}
	applyFile(t, config, "../../packaging/kubernetes/crds.yaml")
	applyFile(t, config, "../../packaging/kubernetes/admission.yaml")
	for _, plural := range []string{"tenants", "networks", "endpointgroups", "policies", "netprofiles"} {
		until(t, plural+" are served", func() bool {
			_, err := i.of(plural).List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
	return i
}

func (i intents) of(plural string) dynamic.ResourceInterface {
	return i.client.Resource(schema.GroupVersionResource{Group: "contiv.io", Version: "v1alpha1", Resource: plural})
}

var kindOfPlural = map[string]string{"tenants": "Tenant", "networks": "Network", "endpointgroups": "EndpointGroup", "policies": "Policy", "netprofiles": "NetProfile"}

// try creates an object of a spec in YAML.
func (i intents) try(plural, name, spec string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(spec), &o.Object); err != nil {
		return err
	}
	o.Object = map[string]any{"spec": o.Object, "apiVersion": "contiv.io/v1alpha1", "kind": kindOfPlural[plural], "metadata": map[string]any{"name": name}}
	_, err := i.of(plural).Create(i.t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
	return err
}

func (i intents) create(plural, name, spec string) {
	i.t.Helper()
	until(i.t, plural+" "+name+" is taken", func() bool { // a resource that is new may be refused by one who does not know it yet
		err := i.try(plural, name, spec)
		if err != nil && !apierrors.IsNotFound(err) {
			i.t.Fatal(err)
		}
		return err == nil
	})
}

func (i intents) delete(plural, name string) {
	i.t.Helper()
	if err := i.of(plural).Delete(i.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		i.t.Fatal(err)
	}
}

func (i intents) patch(plural, name, patch string) error {
	_, err := i.of(plural).Patch(i.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// state is what an object's status says: the condition, its text, and counts.
func (i intents) state(plural, name string) string {
	o, err := i.of(plural).Get(i.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "error: " + string(apierrors.ReasonForError(err))
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	if len(conditions) != 1 {
		return fmt.Sprint(len(conditions), " conditions")
	}
	c, _ := conditions[0].(map[string]any)
	s, _ := o.Object["status"].(map[string]any)
	if c["observedGeneration"] != o.GetGeneration() || s["observedGeneration"] != o.GetGeneration() {
		return "of another generation"
	}
	return fmt.Sprint(c["status"], " ", c["reason"], " ", s["key"], " ", s["owner"], " ", c["message"])
}

// wants waits until an object's state begins so, and has all parts.
func (i intents) wants(plural, name, state string, parts ...string) {
	i.t.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		last = i.state(plural, name)
		if strings.HasPrefix(last, state) && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(last, p) }) {
			return
		}
		if time.Now().After(end) {
			i.t.Fatalf("%s %s: %s; want %s and %q", plural, name, last, state, parts)
		}
	}
}

// hasEvent waits until an object has one event of a reason.
func (i intents) hasEvent(kind, name, reason string) {
	i.t.Helper()
	events := i.client.Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).Namespace("default")
	until(i.t, "the event of "+name, func() bool {
		list := ok[*unstructured.UnstructuredList](i.t)(events.List(i.t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=" + kind + ",regarding.name=" + name + ",reason=" + reason}))
		return len(list.Items) == 1
	})
}

// row is an object as kubectl prints it.
func (i intents) row(plural, name string) string {
	i.t.Helper()
	c := rest.CopyConfig(i.config)
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/apis", &schema.GroupVersion{Group: "contiv.io", Version: "v1alpha1"}, scheme.Codecs.WithoutConversion()
	client := ok[*rest.RESTClient](i.t)(rest.RESTClientFor(c))
	text := ok[[]byte](i.t)(client.Get().Resource(plural).Name(name).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(i.t.Context()))
	var table struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if err := yaml.Unmarshal(text, &table); err != nil || len(table.Rows) != 1 {
		i.t.Fatalf("%v: %s", err, text)
	}
	var out []string
	for n, c := range table.ColumnDefinitions {
		if c.Name != "Age" {
			out = append(out, fmt.Sprint(c.Name, "=", table.Rows[0].Cells[n]))
		}
	}
	return strings.Join(out, " ")
}

func intentLab(t *testing.T) (i intents, file string) {
	t.Helper()
	c, client := control(t)
	admin := config(t, c)
	until(t, "there is kube-system", func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err == nil
	})
	allow(t, admin)
	return installIntents(t, admin), asNetmaster(t, client, admin)
}

// TestObjectsAreStoredShownAndOwned: objects that come in any order are kept, shown and owned; REST is refused;
// what users made is not taken over but when it is said; what is in use goes late, and
// says why; what is changed while netmaster is away is kept when it is back.
func TestObjectsAreStoredShownAndOwned(t *testing.T) {
	i, file := intentLab(t)
	ctx := t.Context()
	dir := t.TempDir()
	master, address, stop := netmasterIn(t, dir, "--kubeconfig", file)
	until(t, "netmaster follows Kubernetes", func() bool { return strings.HasPrefix(ready(ctx, address), "ok\n") })

	// The wrong way round.
	i.create("endpointgroups", "web", `{tenantName: blue, networkName: backend, policies: [in], netProfile: gold}`)
	i.create("policies", "in", `{tenantName: blue, rules: [{ruleId: "1", direction: in, action: allow, protocol: tcp, port: 80, fromEndpointGroup: web}, {ruleId: "2", direction: in, action: deny, fromEndpointGroup: later}]}`)
	i.create("networks", "backend", `{tenantName: blue, subnet: 10.1.1.0/24, gateway: 10.1.1.254}`)
	i.wants("networks", "backend", "False Missing blue:backend", `tenant "blue" does not exist`)
	i.create("netprofiles", "gold", `{tenantName: blue, bandwidth: 10 mbps}`)
	i.create("tenants", "blue", `{defaultNetwork: backend}`)
	for _, o := range [][2]string{{"tenants", "blue"}, {"networks", "backend"}, {"netprofiles", "gold"}, {"endpointgroups", "web"}} {
		i.wants(o[0], o[1], "True Applied blue")
	}
	i.wants("policies", "in", "False Missing blue:in kubernetes", `rule "2": endpoint group "blue:later" does not exist`)
	if rules := ok[[]api.Rule](t)(master.Rules().List(ctx)); len(rules) != 1 || rules[0].FromEndpointGroup != "web" {
		t.Errorf("rules %+v", rules)
	}
	if x := ok[api.Tenant](t)(master.Tenants().Get(ctx, "blue")); x.DefaultNetwork != "backend" || x.Owner != "kubernetes" {
		t.Errorf("the tenant %+v", x)
	}
	// A group that users make completes the policy.
	later := ok[api.EndpointGroup](t)(master.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: "blue", GroupName: "later", NetworkName: "backend"}))
	if later.Owner != "" {
		t.Errorf("a user's group %+v", later)
	}
	i.wants("policies", "in", "True Applied blue:in kubernetes")

	// REST reads only.
	for what, err := range map[string]error{
		"networks.contiv.io/backend":   master.Networks().Delete(ctx, "blue:backend"),
		"tenants.contiv.io/blue":       master.Tenants().Delete(ctx, "blue"),
		"endpointgroups.contiv.io/web": master.EndpointGroups().Delete(ctx, "blue:web"),
		"policies.contiv.io/in":        master.Rules().Delete(ctx, "blue:in:1"),
		"netprofiles.contiv.io/gold":   master.NetProfiles().Delete(ctx, "blue:gold"),
	} {
		if !api.IsConflict(err) || !strings.Contains(err.Error(), "belongs to Kubernetes: change or delete it there, as "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}

	// What kubectl prints, with an endpoint.
	if _, err := master.CreateEndpoint(ctx, api.CreateEndpointRequest{TenantName: "blue", NetworkName: "backend", ServiceName: "web", EndpointID: "e1", ConfigEP: api.ConfigEP{Host: "h1"}}); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[[2]string]string{
		{"tenants", "blue"}:       "Name=blue Key=blue Networks=1 Groups=2 Endpoints=1 Owner=kubernetes Ready=True Reason=Applied Message=",
		{"networks", "backend"}:   "Name=backend Key=blue:backend Encap=vxlan Tag=1 Subnet=10.1.1.0/24 IPv6Subnet=<nil> Groups=2 Endpoints=1 Owner=kubernetes Ready=True Reason=Applied Message=",
		{"endpointgroups", "web"}: `Name=web Key=blue:web Network=backend Policies=["in"] Endpoints=1 Owner=kubernetes Ready=True Reason=Applied Message=`,
		{"policies", "in"}:        "Name=in Key=blue:in Rules=2 Groups=1 Endpoints=1 Owner=kubernetes Ready=True Reason=Applied Message=",
		{"netprofiles", "gold"}:   "Name=gold Key=blue:gold Bandwidth=10 mbps DSCP=<nil> Groups=1 Owner=kubernetes Ready=True Reason=Applied Message=",
	} {
		got := ""
		until(t, want, func() bool { got = i.row(what[0], what[1]); return got == want || t.Context().Err() != nil })
	}

	// What users made is theirs until the object says otherwise, or for ever.
	ok[api.Network](t)(master.Networks().Create(ctx, api.Network{TenantName: "blue", NetworkName: "mine", Encap: "vxlan", Subnet: "10.2.0.0/16"}))
	i.create("networks", "mine", `{tenantName: blue, subnet: 10.2.0.0/16}`)
	i.create("networks", "again", `{tenantName: blue, networkName: backend, subnet: 10.1.1.0/24, gateway: 10.1.1.254}`)
	i.wants("networks", "mine", "False NotOwned blue:mine user", "contiv.io/adopt")
	i.wants("networks", "again", "False NotOwned blue:backend kubernetes", "belongs to networks.contiv.io/backend")
	i.hasEvent("Network", "again", "NotOwned")
	i.delete("networks", "again")
	i.wants("networks", "again", "error: NotFound")
	i.delete("networks", "mine")
	i.wants("networks", "mine", "error: NotFound")
	ok[api.Network](t)(master.Networks().Get(ctx, "blue:mine"))
	i.create("networks", "mine", `{tenantName: blue, subnet: 10.2.0.0/16}`)
	i.wants("networks", "mine", "False NotOwned")
	if err := i.patch("networks", "mine", `{"metadata":{"annotations":{"contiv.io/adopt":"true"}}}`); err != nil {
		t.Fatal(err)
	}
	i.wants("networks", "mine", "True Applied blue:mine kubernetes")
	if err := i.patch("networks", "mine", `{"metadata":{"annotations":null}}`); err != nil {
		t.Fatal(err)
	}
	if err := master.ReleaseOwnership(ctx, api.OwnershipRelease{Kind: "network", Key: "blue:mine"}); err != nil {
		t.Fatal(err)
	}
	i.wants("networks", "mine", "False NotOwned blue:mine user")
	i.delete("networks", "mine")
	i.wants("networks", "mine", "error: NotFound")
	if err := master.Networks().Delete(ctx, "blue:mine"); err != nil {
		t.Fatal(err)
	}

	// What is in use waits and says for what; a policy and the group that it names go
	// together.
	for _, o := range [][2]string{{"policies", "in"}, {"endpointgroups", "web"}, {"networks", "backend"}, {"tenants", "blue"}, {"netprofiles", "gold"}} {
		i.delete(o[0], o[1])
	}
	i.wants("endpointgroups", "web", "True InUse blue:web kubernetes", "It is to go, and waits", "endpoint")
	i.wants("policies", "in", "True InUse blue:in kubernetes", "endpoint groups")
	i.wants("networks", "backend", "True InUse", "It is to go")
	i.wants("tenants", "blue", "True InUse", "It is to go")

	// Netmaster is away when the last user goes, and something else comes.
	i.create("tenants", "red", `{}`)
	i.wants("tenants", "red", "True Applied red")
	if _, err := master.DeleteEndpoint(ctx, api.DeleteEndpointRequest{TenantName: "blue", NetworkName: "backend", ServiceName: "web", EndpointID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if err := master.EndpointGroups().Delete(ctx, "blue:later"); err != nil {
		t.Logf("the user's group: %v", err)
	}
	stop()
	i.create("policies", "new", `{tenantName: red}`)
	master, address, _ = netmasterIn(t, dir, "--kubeconfig", file)
	until(t, "netmaster is back", func() bool { return strings.HasPrefix(ready(ctx, address), "ok\n") })
	i.wants("policies", "new", "True Applied red:new kubernetes")
	until(t, "the user's group goes", func() bool {
		err := master.EndpointGroups().Delete(ctx, "blue:later")
		return err == nil || api.IsNotFound(err)
	})
	for _, o := range [][2]string{{"policies", "in"}, {"endpointgroups", "web"}, {"networks", "backend"}, {"tenants", "blue"}, {"netprofiles", "gold"}} {
		i.wants(o[0], o[1], "error: NotFound")
	}
	if _, err := master.Tenants().Get(ctx, "blue"); !api.IsNotFound(err) {
		t.Errorf("the tenant: %v", err)
	}

	// What went with its finalizer taken away, as by an uninstall, goes from the store.
	if err := i.patch("policies", "new", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	i.delete("policies", "new")
	until(t, "it goes from the store", func() bool { _, err := master.Policies().Get(ctx, "red:new"); return api.IsNotFound(err) })
}

// TestBadObjectsAreRefusedAtAdmission: what cannot be had is refused at admission, with a sentence.
func TestBadObjectsAreRefusedAtAdmission(t *testing.T) {
	c, _ := control(t)
	i := installIntents(t, config(t, c))
	i.create("networks", "n", `{subnet: 10.1.0.0/16}`)
	i.create("endpointgroups", "g", `{networkName: net, ipPool: 10.1.0.1-10.1.0.9}`)
	i.create("tenants", "t", `{}`)
	long := strings.Repeat("x", 65)
	rule := func(rest string) string {
		return `{rules: [{ruleId: "1", direction: in, action: allow` + rest + `}]}`
	}
	for _, c := range []struct{ plural, name, spec, words string }{
		{"tenants", long, `{}`, "give spec.tenantName"},
		{"tenants", "a", `{tenantName: a_b}`, "spec.tenantName"},
		{"tenants", "a", `{sharedNetworks: [x]}`, "sharedNetworks[0]"},
		{"tenants", "a", `{sharedNetworks: ["a:b", "a:b"]}`, "Duplicate"},
		{"tenants", "a", `{sharedNetworks: ["a:b"]}`, "a tenant reaches its own networks"},
		{"tenants", "a", `{nothing: 1}`, "unknown field"},
		{"networks", "a", `{}`, "must have subnet, ipv6Subnet, or both"},
		{"networks", "a", `{subnet: 10.1.0.0/33}`, "spec.subnet"},
		{"networks", "a", `{subnet: 10.1.0.256/24}`, "spec.subnet"},
		{"networks", "a", `{subnet: "fd00::/64"}`, "spec.subnet"},
		{"networks", "a", `{ipv6Subnet: "10.1.0.0/24"}`, "spec.ipv6Subnet"},
		{"networks", "a", `{ipv6Subnet: "fd00::/64", gateway: 10.1.1.1}`, "gateway needs subnet"},
		{"networks", "a", `{subnet: 10.1.0.0/16, ipv6Gateway: "fd00::1"}`, "ipv6Gateway needs ipv6Subnet"},
		{"networks", "a", `{subnet: 10.1.0.0/16, encap: gre}`, "spec.encap"},
		{"networks", "a", `{subnet: 10.1.0.0/16, encap: vlan, pktTag: 5000}`, "at most 4094"},
		{"networks", "a", `{subnet: 10.1.0.0/16, pktTag: 0}`, "spec.pktTag"},
		{"networks", "a", `{subnet: 10.1.0.0/16, native: true, tenantName: blue}`, "tenant default with encap vxlan"},
		{"networks", long, `{subnet: 10.1.0.0/16}`, "give spec.networkName"},
		{"endpointgroups", "a", `{}`, "spec.networkName"},
		{"endpointgroups", "a", `{networkName: a}`, "cannot have the name of its network"},
		{"endpointgroups", "a", `{networkName: net, policies: [a, b, c, d, e, f, g, h, i]}`, "spec.policies"},
		{"endpointgroups", "a", `{networkName: net, policies: [a, b, c, d, e, f], extContractsGrps: [a, b, c, d, e]}`, "at most 10"},
		{"endpointgroups", "a", `{networkName: net, ipPool: 10.1.0.0/24}`, "spec.ipPool"},
		{"policies", "kubernetes.a.b", `{}`, "are reserved for NetworkPolicies"},
		{"policies", "a", `{policyName: kubernetes-cluster.x}`, "are reserved for NetworkPolicies"},
		{"policies", "a", `{rules: [{ruleId: "1", direction: in}]}`, "action"},
		{"policies", "a", rule(`, port: 80`), "port needs protocol"},
		{"policies", "a", rule(`, port: 80, protocol: icmp`), "port needs protocol"},
		{"policies", "a", rule(`, port: 70000, protocol: tcp`), "port"},
		{"policies", "a", rule(`, protocol: "256"`), "protocol"},
		{"policies", "a", rule(`, priority: 101`), "priority"},
		{"policies", "a", rule(`, toEndpointGroup: g`), "direction in has no to fields"},
		{"policies", "a", `{rules: [{ruleId: "1", direction: out, action: deny, fromNetwork: net}]}`, "direction out has no from fields"},
		{"policies", "a", rule(`, fromIpAddress: 10.1.1.256`), "fromIpAddress"},
		{"policies", "a", rule(`, fromEndpointGroup: g, fromIpAddress: 10.1.1.1`), "one kind of peer at most"},
		{"policies", "a", rule(`}, {ruleId: "1", direction: out, action: deny`), "Duplicate"},
		{"netprofiles", "a", `{bandwidth: fast}`, "spec.bandwidth"},
		{"netprofiles", "a", `{DSCP: 64}`, "spec.DSCP"},
		{"netprofiles", "a", `{burst: 1}`, "spec.burst"},
	} {
		if err := i.try(c.plural, c.name, c.spec); err == nil || !strings.Contains(err.Error(), c.words) || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s %s %s: %v; want %q", c.plural, c.name, c.spec, err, c.words)
		}
	}
	for _, c := range []struct{ plural, name, patch, words string }{
		{"networks", "n", `{"spec":{"gateway":"10.1.0.1"}}`, "a network cannot change"},
		{"networks", "n", `{"spec":{"networkName":"m"}}`, "a network cannot change"},
		{"endpointgroups", "g", `{"spec":{"networkName":"m"}}`, "networkName cannot change"},
		{"endpointgroups", "g", `{"spec":{"ipPool":null}}`, "ipPool cannot change"},
		{"endpointgroups", "g", `{"spec":{"tenantName":"m"}}`, "tenantName cannot change"},
		{"tenants", "t", `{"spec":{"tenantName":"m"}}`, "tenantName cannot change"},
	} {
		if err := i.patch(c.plural, c.name, c.patch); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s %s %s: %v; want %q", c.plural, c.name, c.patch, err, c.words)
		}
	}
	// What is fine, with all fields.
	i.create("networks", "all", `{tenantName: default, networkName: All.1, nwType: data, encap: vxlan, pktTag: 7, subnet: 10.7.1.10-10.7.1.50/24, gateway: 10.7.1.1, ipv6Subnet: "2001:db8::/64", ipv6Gateway: "2001:db8::1", cfgdTag: a.b, native: true}`)
	i.create("policies", "all", `{policyName: p, rules: [{ruleId: "1", direction: out, action: deny, priority: 100, protocol: "132", port: 1, toIpAddress: "fd00::/8"}]}`)
	i.create("netprofiles", "all", `{profileName: x, bandwidth: 10 kbps, DSCP: 63, burst: 2}`)
	i.create("endpointgroups", "all", `{tenantName: T, groupName: G, networkName: net, policies: [a], netProfile: x, ipPool: 10.1.1.1-10.1.1.9, extContractsGrps: [e], cfgdTag: x}`)
	i.create("tenants", "all", `{tenantName: ALL, defaultNetwork: net, sharedNetworks: ["a.b:c-d"]}`)
	// Two managers apply a rule each.
	for _, n := range []string{"1", "2"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "contiv.io/v1alpha1", "kind": "Policy", "metadata": map[string]any{"name": "both"}, "spec": map[string]any{
			"rules": []any{map[string]any{"ruleId": n, "direction": "in", "action": "deny"}},
		}}}
		ok[*unstructured.Unstructured](t)(i.of("policies").Apply(t.Context(), "both", o, metav1.ApplyOptions{FieldManager: "m" + n}))
	}
	both := ok[*unstructured.Unstructured](t)(i.of("policies").Get(t.Context(), "both", metav1.GetOptions{}))
	if rules, _, _ := unstructured.NestedSlice(both.Object, "spec", "rules"); len(rules) != 2 {
		t.Errorf("rules of two managers: %v", rules)
	}
}

// TestManyObjectsAreTakenAtOnce: 500 objects at once, with the tenant after its networks.
func TestManyObjectsAreTakenAtOnce(t *testing.T) {
	i, file := intentLab(t)
	ctx := t.Context()
	master, address := netmaster(t, "--kubeconfig", file)
	until(t, "netmaster follows Kubernetes", func() bool {
		text := ready(ctx, address)
		return strings.HasPrefix(text, "ok\n") && !strings.Contains(text, "kubernetes")
	})
	begin := time.Now()
	const many = 500
	var g errgroup.Group
	g.SetLimit(20)
	for n := range many {
		g.Go(func() error {
			return i.try("networks", fmt.Sprint("n", n), fmt.Sprintf(`{tenantName: many, subnet: "10.%d.%d.0/24"}`, 16+n/250, n%250))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	made := time.Since(begin)
	begin = time.Now()
	i.create("tenants", "many", `{}`)
	until(t, "all networks are kept", func() bool {
		list, err := master.Networks().List(ctx)
		return err == nil && len(list) == many
	})
	kept := time.Since(begin)
	until(t, "all say so", func() bool {
		list, err := i.of("networks").List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool {
			return !strings.Contains(fmt.Sprint(o.Object["status"]), "reason:Applied") || len(o.GetFinalizers()) != 1
		})
	})
	t.Logf("%d networks: made in %v, in the store %v after their tenant, told after %v", many, made.Round(time.Millisecond), kept.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	if err := i.of("networks").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	i.delete("tenants", "many")
	until(t, "all are gone", func() bool { return i.state("tenants", "many") == "error: NotFound" })
	if list := ok[[]api.Network](t)(master.Networks().List(ctx)); len(list) != 0 {
		t.Errorf("%d networks are left", len(list))
	}
	t.Logf("gone after %v", time.Since(begin).Round(time.Millisecond))
}
