package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// localWeb is a service with a node port whose external traffic policy is Local.
func localWeb(name string) model.Service {
	s := web()
	s.Key.Name, s.Ports, s.OutsideLocal = "shop/"+name, s.Ports[:1], true
	return s
}

func kubeNode(name model.NodeName, addrs ...string) model.ClusterNode {
	n := model.ClusterNode{Name: name}
	for _, a := range addrs {
		n.Addrs = append(n.Addrs, netip.MustParseAddr(a))
	}
	return n
}

// askedTexts are who answers node ports, by the names of desired states.
func askedTexts(t *testing.T, c *Compiler) (out []string) {
	t.Helper()
	got, problems := clusterPics(c)
	if problems != "" {
		out = append(out, problems)
	}
	for name, pic := range got {
		if err := pic.Check(pic.Key, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if pic.Exposed == strings.Contains(name, "@") {
			t.Errorf("%s: exposed %v", name, pic.Exposed)
		}
		var who []string
		for k, b := range pic.Backends.All() {
			who = append(who, fmt.Sprintf("%s/%d", k.ID, b.State))
		}
		slices.Sort(who)
		for _, text := range frontendTexts(pic) {
			if strings.Contains(text, " 30080>") {
				out = append(out, fmt.Sprint(name, " ", text, " ", who))
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestLocalNodePortsAreAskedAtEachNode: a node port of a service with the policy Local, asked at each node's
// addresses.
func TestLocalNodePortsAreAskedAtEachNode(t *testing.T) {
	c := kubeCluster()
	one, two, three := podOn(1, "h1"), podOn(2, "h2"), podOn(3, "h3")
	for _, e := range []model.Endpoint{one, two, three} {
		c.SetEndpoint(e)
	}
	s := localWeb("web")
	s.Addrs = s.Addrs[:1]
	c.SetService(s)
	ports := webPorts[1:]
	leaving := backendOf(three, false)
	leaving.State = model.ServiceBackendDraining
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, askedTexts(t, c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	c.SetClusterNode(kubeNode("h2", "172.18.0.2"))
	c.SetClusterNode(kubeNode("h3", "172.18.0.3", "172.19.0.3"))
	c.SetServiceSlice(sliceOf("web-4", ports, backendOf(one, false), backendOf(two, false), leaving))
	expect("its own addresses are not known", "shop/web 0.0.0.0 tcp 30080>8080 in 0 out 2 [pod1/0 pod2/0 pod3/3]")
	c.SetClusterNode(kubeNode("h1", "172.18.0.1", "fd18::1"))
	expect("nodes with and without",
		"shop/web 172.18.0.1 tcp 30080>8080 in 0 out 2 [pod1/0 pod2/0 pod3/3]",
		"shop/web@ 0.0.0.0 tcp 30080>8080 in 0 out 0 of [0.0.0.0/32] []",
		"shop/web@h2 172.18.0.2 tcp 30080>8080 in 0 out 0 [pod2/0]",
		"shop/web@h3 172.18.0.3 tcp 30080>8080 in 0 out 0 [pod3/3]",
		"shop/web@h3 172.19.0.3 tcp 30080>8080 in 0 out 0 [pod3/3]",
	)
	c.SetClusterNode(kubeNode("h3", "172.18.0.2"))
	expect("two nodes say that they have an address",
		"shop/web 172.18.0.1 tcp 30080>8080 in 0 out 2 [pod1/0 pod2/0 pod3/3]",
		"shop/web@ 0.0.0.0 tcp 30080>8080 in 0 out 0 of [0.0.0.0/32] []",
		"shop/web@h2 172.18.0.2 tcp 30080>8080 in 0 out 0 [pod2/0]",
	)
	c.SetClusterNode(kubeNode("h2", "172.18.0.22"))
	expect("an address is another node's",
		"shop/web 172.18.0.1 tcp 30080>8080 in 0 out 2 [pod1/0 pod2/0 pod3/3]",
		"shop/web@ 0.0.0.0 tcp 30080>8080 in 0 out 0 of [0.0.0.0/32] []",
		"shop/web@h2 172.18.0.22 tcp 30080>8080 in 0 out 0 [pod2/0]",
		"shop/web@h3 172.18.0.2 tcp 30080>8080 in 0 out 0 [pod3/3]",
	)
	c.SetServiceSlice(sliceOf("web-4", ports, backendOf(one, false)))
	expect("none on another node",
		"shop/web 172.18.0.1 tcp 30080>8080 in 0 out 2 [pod1/0]",
		"shop/web@ 0.0.0.0 tcp 30080>8080 in 0 out 0 of [0.0.0.0/32] []",
	)
	c.DeleteServiceSlice(model.ServiceSliceKey{Namespace: "shop", Name: "web-4"})
	expect("none at all: who asks is refused",
		"shop/web 172.18.0.1 tcp 30080>80 in 0 out 2 []",
		"shop/web@ 0.0.0.0 tcp 30080>80 in 0 out 0 []",
	)
	s.Addrs = web().Addrs
	c.SetService(s)
	c.SetClusterNode(kubeNode("h2", "172.18.0.2", "fd18::2"))
	c.SetServiceSlice(sliceOf("web-6", ports, backendOf(two, true)))
	expect("of a family alone",
		"shop/web 172.18.0.1 tcp 30080>8080 in 0 out 2 [pod2/0]",
		"shop/web fd18::1 tcp 30080>8080 in 0 out 2 [pod2/0]",
		"shop/web@ 0.0.0.0 tcp 30080>8080 in 0 out 0 []",
		"shop/web@ :: tcp 30080>8080 in 0 out 0 of [0.0.0.0/32] []",
		"shop/web@h2 fd18::2 tcp 30080>8080 in 0 out 0 [pod2/0]",
	)
	s.OutsideLocal = false
	c.SetService(s)
	expect("not Local any more", "shop/web 0.0.0.0 tcp 30080>8080 in 0 out 0 [pod2/0]", "shop/web :: tcp 30080>8080 in 0 out 0 [pod2/0]")
}

// TestNodePortsAreLimited: a host has so many ports at other nodes' addresses; the first
// services by name get them.
func TestNodePortsAreLimited(t *testing.T) {
	c := kubeCluster()
	c.SetClusterNode(kubeNode("h1", "172.18.0.1"))
	pod := podOn(2, "h2")
	c.SetEndpoint(pod)
	many := model.ClusterNode{Name: "h2"} // a port at each, and one at all nodes'
	for i := range MaxRemoteNodePorts/2 - 1 {
		many.Addrs = append(many.Addrs, netip.AddrFrom4([4]byte{172, 19, byte(i >> 8), byte(i)}))
	}
	c.SetClusterNode(many)
	for i, name := range []string{"c", "b", "a"} {
		s := localWeb(name)
		s.Addrs = s.Addrs[:1]
		s.Ports[0].Node = uint16(30000 + i)
		slice := sliceOf(name, webPorts[1:], backendOf(pod, false))
		slice.Service = name
		c.SetService(s)
		c.SetServiceSlice(slice)
	}
	expect := func(when string, crowded int, apart ...string) {
		t.Helper()
		got, problems := clusterPics(c)
		var have []string
		for name, pic := range got {
			if at, ok := strings.CutSuffix(name, "@h2"); ok && len(pic.Frontends) == len(many.Addrs) {
				have = append(have, at)
			}
		}
		slices.Sort(have)
		if told := fmt.Sprintf("of %d services such as", crowded); !slices.Equal(have, apart) || strings.Contains(problems, told) != (crowded > 0) || (problems == "") != (crowded == 0) {
			t.Errorf("%s: %v have them, problems %q, want %v, %d left out", when, have, problems, apart, crowded)
		}
	}
	expect("three want them", 1, "shop/a", "shop/b")
	c.DeleteService(model.ClusterServiceKey{Namespace: "shop", Name: "a"}.ServiceKey())
	expect("the first one has gone", 0, "shop/b", "shop/c")
}
