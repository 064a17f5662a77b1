package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
)

var filtered = Cluster{Labels: model.LabelFilter{"hidden"}}

func on(key string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}}}
}

func never() *metav1.LabelSelector {
	s := on("app")
	s.MatchLabels = map[string]string{"app": "a"}
	return s
}

// text is a policy in short: to whom it applies, its defaults, and its rules.
func text(n *model.NetworkPolicy) string {
	if n == nil {
		return "none"
	}
	lines := []string{fmt.Sprint(n.Policy.Applies, " in:", n.Policy.Default.In, " out:", n.Policy.Default.Out)}
	for _, r := range n.Rules {
		peers := "anybody"
		if r.Peers != nil {
			var all []string
			for _, p := range r.Peers {
				if p.Selector != nil {
					all = append(all, p.Selector.String())
				} else {
					all = append(all, fmt.Sprint(p.CIDR, p.Except))
				}
			}
			peers = strings.Join(all, "|")
		}
		lines = append(lines, fmt.Sprint(r.Key.Rule, " ", r.Priority, " ", r.Action, " ", peers, " ", r.Ports))
	}
	return strings.Join(lines, "\n")
}

// TestUnsupportedPartsAllowNothing: an unsupported part of a NetworkPolicy allows no connection, and
// is reported; a policy with an unknown subject isolates the namespace.
func TestUnsupportedPartsAllowNothing(t *testing.T) {
	const mine = "default: in namespaces kubernetes.io/metadata.name=ns"
	port := func(change func(*networkingv1.NetworkPolicyPort)) networkingv1.NetworkPolicySpec {
		var p networkingv1.NetworkPolicyPort
		change(&p)
		return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{p}}}}
	}
	from := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers}}}
	}
	block := func(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
	}
	web, zero, eighty, last := intstr.FromString("web"), intstr.FromInt32(0), intstr.FromInt32(80), int32(90)
	highest, beyond, icmp := intstr.FromInt32(65535), intstr.FromInt32(65536), corev1.Protocol("ICMP")
	isolated := mine + " in:deny out:"
	for name, tc := range map[string]struct {
		spec    networkingv1.NetworkPolicySpec
		want    string
		problem string // a part of the only one
	}{
		"nothing said":             {networkingv1.NetworkPolicySpec{}, isolated, ""},
		"egress alone":             {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}}, mine + " in: out:deny", ""},
		"unknown type":             {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Sideways"}}, mine + " in:deny out:deny", `spec.policyTypes[0]: "Sideways"`},
		"selects nobody":           {networkingv1.NetworkPolicySpec{PodSelector: *never()}, "none", ""},
		"filtered label":           {networkingv1.NetworkPolicySpec{PodSelector: *on("hidden"), Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}, isolated, `spec.podSelector: label "hidden"`},
		"no such label":            {networkingv1.NetworkPolicySpec{PodSelector: *on("a b")}, isolated, `spec.podSelector: "a b" must be a label`},
		"anybody":                  {from(), isolated + "\nin-0 1 allow anybody []", ""},
		"filtered peer":            {from(networkingv1.NetworkPolicyPeer{PodSelector: on("hidden")}), isolated, "spec.ingress[0].from[0]: label"},
		"peer is nobody":           {from(networkingv1.NetworkPolicyPeer{PodSelector: never()}), isolated, ""},
		"empty peer":               {from(networkingv1.NetworkPolicyPeer{}), isolated, "spec.ingress[0].from[0]: must be"},
		"two kinds":                {from(networkingv1.NetworkPolicyPeer{PodSelector: on("a"), IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}), isolated, "spec.ingress[0].from[0]: must be"},
		"two kinds, of namespaces": {from(networkingv1.NetworkPolicyPeer{NamespaceSelector: on("a"), IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}), isolated, "spec.ingress[0].from[0]: must be"},
		"all namespaces":           {from(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}), isolated + "\nin-0 1 allow default: in namespaces kubernetes.io/metadata.name []", ""},
		"own namespace":            {from(networkingv1.NetworkPolicyPeer{PodSelector: on("a")}), isolated + "\nin-0 1 allow default: !a in namespaces kubernetes.io/metadata.name=ns []", ""},
		"block":                    {from(block("10.0.0.1/8", "10.1.0.0/16", "11.0.0.0/16")), isolated + "\nin-0 1 allow 10.0.0.0/8 [10.1.0.0/16] []", ""},
		"excepted whole":           {from(block("10.0.0.0/8", "10.0.0.0/7")), isolated, ""},
		"excepted equal":           {from(block("10.0.0.0/8", "10.0.0.0/8")), isolated, ""},
		"excepted begin":           {from(block("10.0.0.0/8", "10.0.0.0/16", "11.0.0.0/8", "12.0.0.0/7")), isolated + "\nin-0 1 allow 10.0.0.0/8 [10.0.0.0/16] []", ""},
		"no exception":             {from(block("10.0.0.0/8", "10")), isolated, `spec.ingress[0].from[0]: "10" is no CIDR`},
		"no block":                 {from(block("10.0.0.0")), isolated, `spec.ingress[0].from[0]: "10.0.0.0" is no CIDR`},
		"mapped block":             {from(block("::ffff:10.0.0.0/104")), isolated, "is no CIDR"},
		"port 0":                   {port(func(p *networkingv1.NetworkPolicyPort) { p.Port = &zero }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"name to number":           {port(func(p *networkingv1.NetworkPolicyPort) { p.Port, p.EndPort = &web, &last }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"port 65536":               {port(func(p *networkingv1.NetworkPolicyPort) { p.Port = &beyond }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"port 65535":               {port(func(p *networkingv1.NetworkPolicyPort) { p.Port = &highest }), isolated + "\nin-0 1 allow anybody [{tcp 65535 65535 }]", ""},
		"range":                    {port(func(p *networkingv1.NetworkPolicyPort) { p.Port, p.EndPort = &eighty, &last }), isolated + "\nin-0 1 allow anybody [{tcp 80 90 }]", ""},
		"range of none":            {port(func(p *networkingv1.NetworkPolicyPort) { p.Port, p.EndPort = &highest, &last }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"ICMP":                     {port(func(p *networkingv1.NetworkPolicyPort) { p.Protocol, p.Port = &icmp, &eighty }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"two ports": {
			networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &zero}, {Port: &eighty}}}}},
			isolated + "\nin-0 1 allow anybody [{tcp 80 80 }]", "spec.ingress[0].ports[0]: is no port",
		},
		"end alone":  {port(func(p *networkingv1.NetworkPolicyPort) { p.EndPort = &last }), isolated, "spec.ingress[0].ports[0]: is no port"},
		"all of TCP": {port(func(*networkingv1.NetworkPolicyPort) {}), isolated + "\nin-0 1 allow anybody [{tcp 0 65535 }]", ""},
		"names of a block": {
			networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}, Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: []networkingv1.NetworkPolicyPeer{block("10.0.0.0/8")}, Ports: []networkingv1.NetworkPolicyPort{{Port: &web}},
			}}},
			mine + " in: out:deny\nout-0 1 allow 10.0.0.0/8 [] [{tcp 0 0 web}]", "spec.egress[0].ports: addresses have no names",
		},
	} {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: tc.spec}
		got, found := filtered.NetworkPolicy(tenant, p)
		compare(t, name, got, found, tc.want, tc.problem)
	}
}

func compare(t *testing.T, name string, got *model.NetworkPolicy, found []Problem, want, problem string) {
	t.Helper()
	if text(got) != want {
		t.Errorf("%s:\n%s\nwant\n%s", name, text(got), want)
	}
	if (problem == "") != (len(found) == 0) || len(found) > 1 || problem != "" && !strings.Contains(found[0].String(), problem) {
		t.Errorf("%s: %v, want %q", name, found, problem)
	}
	if got != nil {
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClusterNetworkPolicyClosed: of what is not known, Accept accepts nothing, and Deny
// and Pass deny everything, as the specification says.
func TestClusterNetworkPolicyClosed(t *testing.T) {
	const all, denied = "default: in namespaces kubernetes.io/metadata.name in: out:", "\nout-0 100 deny anybody []"
	type peer = policyv1beta1.ClusterNetworkPolicyEgressPeer
	any := peer{Namespaces: &metav1.LabelSelector{}}
	to := func(action policyv1beta1.ClusterNetworkPolicyRuleAction, peers ...peer) policyv1beta1.ClusterNetworkPolicySpec {
		return policyv1beta1.ClusterNetworkPolicySpec{
			Tier: policyv1beta1.AdminTier, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
			Egress: []policyv1beta1.ClusterNetworkPolicyEgressRule{{Action: action, To: peers}},
		}
	}
	with := func(s policyv1beta1.ClusterNetworkPolicySpec, change func(*policyv1beta1.ClusterNetworkPolicySpec)) policyv1beta1.ClusterNetworkPolicySpec {
		change(&s)
		return s
	}
	protocol := func(action policyv1beta1.ClusterNetworkPolicyRuleAction, peer peer, p policyv1beta1.ClusterNetworkPolicyProtocol) policyv1beta1.ClusterNetworkPolicySpec {
		return with(to(action, peer), func(s *policyv1beta1.ClusterNetworkPolicySpec) {
			s.Egress[0].Protocols = []policyv1beta1.ClusterNetworkPolicyProtocol{p}
		})
	}
	for name, tc := range map[string]struct {
		spec          policyv1beta1.ClusterNetworkPolicySpec
		want, problem string
	}{
		"accept":             {to("Accept", any), all + "\nout-0 100 allow default: in namespaces kubernetes.io/metadata.name []", ""},
		"accept unknown":     {to("Accept", any, peer{}), "none", "spec.egress[0].to[1]: must be exactly one"},
		"deny unknown":       {to("Deny", any, peer{}), all + denied, "spec.egress[0].to[1]: must be exactly one"},
		"pass unknown":       {to("Pass", peer{}), all + denied, "spec.egress[0].to[0]: must be exactly one"},
		"accept nodes":       {to("Accept", peer{Nodes: &metav1.LabelSelector{}}), "none", "experimental, cannot be had: by this rule nothing is accepted"},
		"deny nodes":         {to("Deny", peer{Nodes: &metav1.LabelSelector{}}), all + denied, "experimental, cannot be had: by this rule everything is denied"},
		"accept domains":     {to("Accept", peer{DomainNames: []policyv1beta1.DomainName{"a.b"}}), "none", "experimental"},
		"two kinds":          {to("Deny", peer{Namespaces: on("a"), Pods: &policyv1beta1.NamespacedPod{}}), all + denied, "must be exactly one"},
		"networks of pods":   {to("Deny", peer{Networks: []policyv1beta1.CIDR{"10.0.0.0/8"}, Pods: &policyv1beta1.NamespacedPod{}}), all + denied, "must be exactly one"},
		"nets of namespaces": {to("Deny", peer{Networks: []policyv1beta1.CIDR{"10.0.0.0/8"}, Namespaces: on("a")}), all + denied, "must be exactly one"},
		"no peers":           {to("Deny"), all + denied, "spec.egress[0].to: must not be empty"},
		"nobody":             {to("Deny", peer{Namespaces: never()}), "none", ""},
		"bad network":        {to("Deny", peer{Networks: []policyv1beta1.CIDR{"10"}}), all + denied, "is no CIDR"},
		"filtered peer":      {to("Pass", peer{Pods: &policyv1beta1.NamespacedPod{PodSelector: *on("hidden")}}), all + denied, `label "hidden"`},
		"unknown action":     {to("Shout", any), all + denied, `spec.egress[0].action: "Shout"`},
		"unknown protocol":   {protocol("Deny", any, policyv1beta1.ClusterNetworkPolicyProtocol{}), all + denied, "spec.egress[0].protocols[0]"},
		"unknown port":       {protocol("Accept", any, policyv1beta1.ClusterNetworkPolicyProtocol{TCP: &policyv1beta1.ClusterNetworkPolicyProtocolTCP{DestinationPort: &policyv1beta1.Port{}}}), "none", "spec.egress[0].protocols[0]"},
		"port and range":     {protocol("Accept", any, policyv1beta1.ClusterNetworkPolicyProtocol{TCP: &policyv1beta1.ClusterNetworkPolicyProtocolTCP{DestinationPort: &policyv1beta1.Port{Number: 80, Range: &policyv1beta1.PortRange{Start: 80, End: 90}}}}), "none", "spec.egress[0].protocols[0]"},
		"names of addresses": {protocol("Deny", peer{Networks: []policyv1beta1.CIDR{"::/0"}}, policyv1beta1.ClusterNetworkPolicyProtocol{DestinationNamedPort: "web"}), all + denied, "no names"},
		"unknown tier":       {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Tier = "Cloud" }), "none", "spec.tier"},
		"unknown subject": {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) {
			s.Subject = policyv1beta1.ClusterNetworkPolicySubject{}
		}), "none", "spec.subject: is not known"},
		"filtered subject": {with(to("Accept", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) {
			s.Subject = policyv1beta1.ClusterNetworkPolicySubject{Pods: &policyv1beta1.NamespacedPod{NamespaceSelector: *on("x"), PodSelector: *on("hidden")}}
		}), "default: in namespaces !x in: out:" + denied, `spec.subject: label "hidden"`},
		"wrong namespaces": {with(to("Accept", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Subject.Namespaces = on("a b") }), all + denied, "spec.subject: "},
		"pods of wrong namespaces": {with(to("Accept", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) {
			s.Subject = policyv1beta1.ClusterNetworkPolicySubject{Pods: &policyv1beta1.NamespacedPod{NamespaceSelector: *on("a b"), PodSelector: *on("x")}}
		}), all + denied, "spec.subject: "},
		"two subjects": {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Subject.Pods = &policyv1beta1.NamespacedPod{} }), "none", "spec.subject: is not known"},
		"nobody's":     {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Subject.Namespaces = never() }), "none", ""},
		"priority":     {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Priority = 2000 }), all + "\nout-0 20 deny default: in namespaces kubernetes.io/metadata.name []", "spec.priority"},
		"negative":     {with(to("Deny", any), func(s *policyv1beta1.ClusterNetworkPolicySpec) { s.Priority = -1 }), all + "\nout-0 100 deny default: in namespaces kubernetes.io/metadata.name []", "spec.priority"},
	} {
		p := &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: tc.spec}
		got, found := filtered.ClusterNetworkPolicy(tenant, p)
		compare(t, name, got, found, tc.want, tc.problem)
	}
}

// TestRulesAcrossTenantsAreReported: a rule that is about pods of several tenants is named, with what it does
// not do, unless it denies everybody anyway.
func TestRulesAcrossTenantsAreReported(t *testing.T) {
	of := func(team string, tenants ...model.TenantName) NamespaceTenants {
		return NamespaceTenants{map[string]string{"team": team, team: "yes"}, tenants}
	}
	all := []NamespaceTenants{of("shop", "default"), of("dev", "blue"), of("test", "red"), of("any", "default", "blue")}
	type peer = policyv1beta1.ClusterNetworkPolicyEgressPeer
	ns := func(label string) peer {
		return peer{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}}
	}
	pods := peer{Pods: &policyv1beta1.NamespacedPod{NamespaceSelector: *ns("dev").Namespaces, PodSelector: *on("x")}}
	everywhere := peer{Namespaces: &metav1.LabelSelector{}}
	for name, tc := range map[string]struct {
		subject string
		action  policyv1beta1.ClusterNetworkPolicyRuleAction
		peer    peer
		all     []NamespaceTenants
		want    string // in the problem; empty = none
	}{
		"deny":              {"shop", "Deny", ns("dev"), all, "(blue): between tenants"},
		"accept":            {"shop", "Accept", ns("dev"), all, "does not accept them"},
		"pass":              {"shop", "Pass", pods, all, "does not pass them"},
		"from another":      {"dev", "Deny", ns("shop"), all, "(default)"},
		"several":           {"shop", "Deny", everywhere, all, "(blue, red)"},
		"of several":        {"any", "Deny", ns("dev"), all, "(blue)"},
		"in one tenant":     {"dev", "Deny", ns("dev"), all, ""},
		"networks":          {"shop", "Deny", peer{Networks: []policyv1beta1.CIDR{"10.0.0.0/8"}}, all, ""},
		"nobody":            {"shop", "Deny", peer{Namespaces: never()}, all, ""},
		"one tenant alone":  {"shop", "Deny", everywhere, all[:1], ""},
		"denies everybody":  {"shop", "Deny", peer{Nodes: &metav1.LabelSelector{}}, all, ""},
		"no such namespace": {"shop", "Deny", ns("none"), all, ""},
	} {
		p := &policyv1beta1.ClusterNetworkPolicy{Spec: policyv1beta1.ClusterNetworkPolicySpec{
			Tier: policyv1beta1.AdminTier, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: ns(tc.subject).Namespaces},
			Egress: []policyv1beta1.ClusterNetworkPolicyEgressRule{{Action: tc.action, To: []peer{tc.peer}}},
		}}
		got := filtered.AcrossTenants(p, tc.all)
		if (len(got) == 0) != (tc.want == "") || len(got) > 0 && (got[0].Field != "spec.egress[0].to[0]" || !strings.Contains(got[0].Text, tc.want)) {
			t.Errorf("%s: %v, want %q", name, got, tc.want)
		}
	}
	p := &policyv1beta1.ClusterNetworkPolicy{Spec: policyv1beta1.ClusterNetworkPolicySpec{
		Tier: policyv1beta1.AdminTier, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: ns("shop").Namespaces},
		Ingress: []policyv1beta1.ClusterNetworkPolicyIngressRule{{Action: "Deny", From: []policyv1beta1.ClusterNetworkPolicyIngressPeer{{Namespaces: ns("dev").Namespaces}}}},
	}}
	if got := filtered.AcrossTenants(p, all); len(got) != 1 || got[0].Field != "spec.ingress[0].from[0]" || !strings.Contains(got[0].Text, "does not deny") {
		t.Errorf("ingress: %v", got)
	}
	p.Spec.Subject.Pods = &policyv1beta1.NamespacedPod{NamespaceSelector: *ns("shop").Namespaces, PodSelector: *on("hidden")}
	if p.Spec.Subject.Namespaces = nil; len(filtered.AcrossTenants(p, all)) > 0 {
		t.Error("a subject that cannot be had, whose pods are denied everything, is named")
	}
}

// TestRulesKeepTheirSequence: the rules of one policy keep their sequence, policies of neighbouring
// priorities theirs, and what changes between actions too often is closed.
func TestRulesKeepTheirSequence(t *testing.T) {
	place := func(priority int32, actions ...policyv1beta1.ClusterNetworkPolicyRuleAction) (order int, at []int, found []Problem) {
		p := &policyv1beta1.ClusterNetworkPolicy{Spec: policyv1beta1.ClusterNetworkPolicySpec{
			Tier: policyv1beta1.BaselineTier, Priority: priority, Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
		}}
		p.Name = "p"
		for _, a := range actions {
			p.Spec.Ingress = append(p.Spec.Ingress, policyv1beta1.ClusterNetworkPolicyIngressRule{Action: a, From: []policyv1beta1.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}}})
		}
		n, found := Cluster{}.ClusterNetworkPolicy(tenant, p)
		for _, r := range n.Rules {
			at = append(at, r.Priority)
		}
		return n.Policy.Order, at, found
	}
	worst := slices.Repeat([]policyv1beta1.ClusterNetworkPolicyRuleAction{"Accept", "Pass", "Deny"}, 9)[:25]
	lastOrder, lowest := -1, 0
	for priority := range int32(lastPriority + 1) {
		order, at, found := place(priority, worst...)
		if len(found) > 0 || len(at) != 25 || at[0] > 100 || at[24] < 1 {
			t.Fatalf("priority %d: order %d, %v, %v", priority, order, at, found)
		}
		for i := range at[1:] { // a lower priority, or a later action at the same one
			if at[i+1] > at[i] || at[i+1] == at[i] && (worst[i] != "Deny" || worst[i+1] != "Accept") {
				t.Fatalf("priority %d: %v", priority, at)
			}
		}
		if order < lastOrder || order == lastOrder && at[0] >= lowest {
			t.Fatalf("priority %d: order %d from %d on, the one before has order %d down to %d", priority, order, at[0], lastOrder, lowest)
		}
		lastOrder, lowest = order, at[24]
	}
	if _, at, found := place(7, slices.Repeat([]policyv1beta1.ClusterNetworkPolicyRuleAction{"Pass", "Deny"}, 21)...); len(at) != 1 || len(found) != 1 || !strings.Contains(found[0].String(), "spec.ingress: changes") {
		t.Errorf("21 changes: %v, %v", at, found)
	}
}

// TestLargeRulesAreSplit: a rule of more peers and ports than one holds becomes several, which say
// the same.
func TestLargeRulesAreSplit(t *testing.T) {
	r := networkingv1.NetworkPolicyIngressRule{}
	for i := range int32(150) {
		r.From = append(r.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.0.%d.0/24", i)}})
		n := intstr.FromInt32(i + 1)
		r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &n}, networkingv1.NetworkPolicyPort{Port: &n})
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{r}}}
	got, found := Cluster{}.NetworkPolicy(tenant, p)
	if err := got.Validate(); err != nil || len(found) > 0 {
		t.Fatal(err, found)
	}
	pairs := map[string]bool{}
	for _, r := range got.Rules {
		for _, peer := range r.Peers {
			for _, port := range r.Ports {
				pairs[fmt.Sprint(peer.CIDR, port)] = true
			}
		}
	}
	if len(got.Rules) != 9 || len(pairs) != 150*150 {
		t.Errorf("%d rules of %d pairs, want 9 of 22500", len(got.Rules), len(pairs))
	}
}

// Beyond the bounds of rules and exceptions nothing is allowed.
func TestBoundsOfNetworkPolicies(t *testing.T) {
	block := networkingv1.IPBlock{CIDR: "10.0.0.0/8"}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &block}}}}
	for n := range model.MaxRuleExcept {
		block.Except = append(block.Except, fmt.Sprintf("10.%d.%d.0/24", n/256, n%256))
	}
	if got, found := (Cluster{}).NetworkPolicy(tenant, p); len(got.Rules) != 1 || found != nil {
		t.Errorf("%d exceptions: %d rules, %v", model.MaxRuleExcept, len(got.Rules), found)
	}
	block.Except = append(block.Except, "10.255.255.0/24")
	if got, found := (Cluster{}).NetworkPolicy(tenant, p); got.Rules != nil || len(found) != 1 || !strings.Contains(found[0].String(), "it allows nobody") {
		t.Errorf("one exception more: %d rules, %v", len(got.Rules), found)
	}
	p.Spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, model.MaxNetworkPolicyRules)
	if got, found := (Cluster{}).NetworkPolicy(tenant, p); len(got.Rules) != model.MaxNetworkPolicyRules || found != nil {
		t.Errorf("%d rules: %d, %v", model.MaxNetworkPolicyRules, len(got.Rules), found)
	}
	p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
	if got, found := (Cluster{}).NetworkPolicy(tenant, p); got.Rules != nil || len(found) != 1 || !strings.Contains(found[0].String(), "nothing is allowed") {
		t.Errorf("one rule more: %d, %v", len(got.Rules), found)
	}
}

func TestSelectorsNameTheirLabels(t *testing.T) {
	named := map[string]bool{}
	labels := map[string]string{}
	var want []string
	for c := 'a'; c < 'k'; c++ {
		labels[string(c)] = "x"
		want = append(want, string(c))
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labels}}}
	got, _ := Cluster{Named: named}.NetworkPolicy(tenant, p)
	var order []string
	for _, r := range got.Policy.Applies.MatchExpressions {
		order = append(order, r.Key)
		if !named[r.Key] {
			t.Errorf("label %s is not named", r.Key)
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}

// TestPolicyNamesAreUniqueAndValid: model accepts the names, and no two objects have the same one.
func TestPolicyNamesAreUniqueAndValid(t *testing.T) {
	long := strings.Repeat("n", 250)
	seen := map[model.PolicyName]bool{}
	for _, n := range []model.PolicyName{
		NetworkPolicyName("a", "b.c"), NetworkPolicyName("a-b", "c"), ClusterNetworkPolicyName("a.b.c"), NetworkPolicyName("ns", long), NetworkPolicyName("ns", long+"x"), ClusterNetworkPolicyName(long),
		NetworkPolicyName(strings.Repeat("s", 50), "ab"), NetworkPolicyName(strings.Repeat("s", 50), "abc"),
	} {
		if _, err := model.ParsePolicyKey("t:" + string(n)); err != nil || seen[n] || !n.IsKubernetes() {
			t.Errorf("%s: %v, seen %v, reserved %v", n, err, seen[n], n.IsKubernetes())
		}
		seen[n] = true
	}
	if got := NetworkPolicyName("ns", "web"); got != "kubernetes.ns.web" || model.PolicyName("kubernetes").IsKubernetes() || model.PolicyName("web").IsKubernetes() {
		t.Errorf("%s, or more is reserved than has to be", got)
	}
}
