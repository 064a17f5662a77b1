package translate

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/kubetest"
)

var policies = flag.Int("policies", 500, "how many random policies TestRandomPoliciesMatchTheJudge tries")

const tenant = model.DefaultTenant

var network = model.NetworkKey{Tenant: tenant, Name: DefaultNetwork}

// TestRandomPoliciesMatchTheJudge: what is compiled of random policies over 30 pods in 6 namespaces lets
// through what the judge does.
func TestRandomPoliciesMatchTheJudge(t *testing.T) {
	tried, denied, asked := 0, 0, 0
	for seed := uint64(1); tried < *policies; seed++ {
		g := kubetest.Random{Rand: rand.New(rand.NewPCG(seed, 14))}
		w := g.World()
		tried += len(w.Policies) + len(w.Cluster)
		verdict := compiled(t, w)
		for range 300 {
			c := g.Connection(w)
			want, got := w.Allowed(c), verdict(c)
			asked++
			if !want {
				denied++
			}
			if want != got {
				t.Fatalf("seed %d: %s from %s to %s port %d: allowed is %v, want %v\n%s", seed, c.Protocol, c.From, c.To, c.Port, got, want, w)
			}
		}
	}
	if denied < asked/5 || denied > asked*4/5 {
		t.Errorf("%d of %d denied: the policies say too little", denied, asked)
	}
}

// compiled gives the world to the compiler, by the translation, and returns what the
// desired state of the pods' host says of a connection.
func compiled(t *testing.T, w kubetest.World) func(kubetest.Connection) bool {
	t.Helper()
	c := compile.New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	for name, labels := range w.Namespaces {
		c.SetNamespace(Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	identities := map[*kubetest.Pod]model.Identity{}
	keys := map[*kubetest.Pod]model.EndpointKey{}
	for i := range w.Pods {
		p := &w.Pods[i]
		id := model.IdentityFirst + model.Identity(i)
		named, _ := NamedPorts(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: p.Ports}}}})
		c.SetIdentity(model.IdentityRecord{ID: id, Network: network, Labels: p.Labels, Namespace: model.NamespaceName(p.Namespace), Ports: named})
		identities[p], keys[p] = id, model.EndpointKey{Network: network, ID: model.EndpointID(p.Namespace + "." + p.Name)}
		c.SetEndpoint(model.Endpoint{Key: keys[p], Host: "h1", Identity: id, IPv4: p.Addr, MAC: model.MAC{2, 2, 10, 1, 0, byte(i)}})
	}
	put := func(n *model.NetworkPolicy, found []Problem) {
		if len(found) > 0 {
			t.Fatalf("problems %v\n%s", found, w)
		}
		if n == nil {
			return
		}
		if err := n.Validate(); err != nil {
			t.Fatalf("%v\n%s", err, w)
		}
		c.SetPolicy(n.Policy)
		for _, r := range n.Rules {
			c.SetRule(r)
		}
	}
	for _, p := range w.Policies {
		put(Cluster{}.NetworkPolicy(tenant, p))
	}
	for _, p := range w.Cluster {
		put(Cluster{}.ClusterNetworkPolicy(tenant, p))
	}
	pic, _ := c.Compile(1)
	sets := map[model.EndpointKey]*desired.PolicySet{}
	for _, p := range pic.Ports.All() {
		sets[p.Endpoint], _ = pic.PolicySets.Get(p.Policies)
	}
	return func(c kubetest.Connection) bool {
		asks := func(of, peer kubetest.End, dir model.Direction) bool {
			if of.Pod == nil || sets[keys[of.Pod]] == nil {
				return true
			}
			id := model.IdentityExternal
			if peer.Pod != nil {
				id = identities[peer.Pod]
			}
			proto, _ := protocolOf(c.Protocol)
			return sets[keys[of.Pod]].Judge(dir, desired.Peer{Identity: id, Addr: peer.Addr, Network: 7}, proto, uint16(c.Port)).Pass
		}
		return asks(c.From, c.To, model.Out) && asks(c.To, c.From, model.In)
	}
}
