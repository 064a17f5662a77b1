package translate

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzPolicies: whatever a policy says, what comes of it is valid, and the same each
// time.
func FuzzPolicies(f *testing.F) {
	for _, s := range []string{
		`{"spec":{"podSelector":{"matchLabels":{"a":"b"}},"policyTypes":["Egress"],"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80,"endPort":90}]}]}}`,
		`{"spec":{"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"protocol":"SCTP","port":"web"}]}]}}`,
		`{"spec":{"tier":"Admin","priority":7,"subject":{"namespaces":{}},"ingress":[{"name":"x","action":"Accept","from":[{"namespaces":{"matchLabels":{"a":"b"}}}]}]}}`,
		`{"spec":{"tier":"Baseline","priority":1000,"subject":{"pods":{"namespaceSelector":{},"podSelector":{}}},"egress":[{"action":"Deny","to":[{"networks":["10.0.0.0/8"]}],"protocols":[{"tcp":{"destinationPort":{"range":{"start":1,"end":2}}}}]}]}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		policy, clusterPolicy := &networkingv1.NetworkPolicy{}, &policyv1beta1.ClusterNetworkPolicy{}
		for _, o := range []any{policy, clusterPolicy} {
			_ = json.Unmarshal([]byte(text), o) // what it read counts
		}
		// An API server's names are good.
		for _, m := range []*metav1.ObjectMeta{&policy.ObjectMeta, &clusterPolicy.ObjectMeta} {
			m.Namespace, m.Name = "ns", "web"
		}
		for name, read := range map[string]func() (*model.NetworkPolicy, []Problem){
			"NetworkPolicy": func() (*model.NetworkPolicy, []Problem) { return filtered.NetworkPolicy(model.DefaultTenant, policy) },
			"ClusterNetworkPolicy": func() (*model.NetworkPolicy, []Problem) {
				return filtered.ClusterNetworkPolicy(model.DefaultTenant, clusterPolicy)
			},
		} {
			n, found := read()
			if n != nil {
				if _, err := model.Check(*n); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if again, problems := read(); !reflect.DeepEqual(again, n) || !reflect.DeepEqual(problems, found) {
				t.Errorf("%s: %v, %v is %v, %v the second time", name, n, found, again, problems)
			}
		}
	})
}

// FuzzPods: whatever pods, namespaces and kubeadm's configuration say, addresses are of
// their family, and a namespace and named ports are valid.
func FuzzPods(f *testing.F) {
	for _, s := range []string{
		`{"metadata":{"annotations":{"contiv.io/ip":"10.1.1.1"},"labels":{"io.contiv.tenant":"t","io.contiv.net-group":"g"}},"spec":{"containers":[{"ports":[{"name":"web","containerPort":80,"protocol":"UDP"}]}]}}`,
		`{"metadata":{"annotations":{"contiv.io/ip":"10.1.1.1,fd00::1"},"labels":{"a b":"c"}},"spec":{"hostNetwork":true}}`,
		`{"spec":{"initContainers":[{"restartPolicy":"Always","ports":[{"name":"web","containerPort":-1}]}]}}`,
		"networking:\n  podSubnet: 10.1.0.0/16,fd00::/64\n  serviceSubnet: 10.96.0.0/12\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pod, ns := &corev1.Pod{}, &corev1.Namespace{}
		for _, o := range []any{pod, ns} {
			_ = json.Unmarshal([]byte(text), o) // what it read counts
		}
		ns.Name = "ns" // an API server's names are good
		if v4, v6, _ := Addresses(pod); v4.IsValid() && !v4.Is4() || v6.IsValid() && (!v6.Is6() || v6.Is4In6()) {
			t.Errorf("addresses %s and %s", v4, v6)
		}
		if n := Namespace(ns); n.Name != "ns" {
			t.Errorf("namespace %q", n.Name)
		}
		ports, _ := NamedPorts(pod)
		for _, p := range ports {
			if p.Name == "" || p.Port == 0 {
				t.Errorf("port %+v", p)
			}
		}
		n, err := Kubeadm(map[string]string{"ClusterConfiguration": text})
		for _, p := range append(n.Pods, n.Services...) {
			if err != nil || p != p.Masked() || p.Addr().Is4In6() {
				t.Errorf("subnet %s of %q, %v", p, text, err)
			}
		}
	})
}
