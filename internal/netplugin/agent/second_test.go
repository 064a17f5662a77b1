package agent

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/api"
)

// TestSecondInterfaceLeavesByItsOwnGateway: a container whose plugin is called again with another interface's
// name (Multus) has both. What is sent from the second one's addresses leaves by its own
// gateway, the rest by the first; when it is detached, its rules go with it.
func TestSecondInterfaceLeavesByItsOwnGateway(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.network("blue", "net2", 3)
	r := newRuntime(t, b)
	s := newSandbox(t)
	first, second := rt("c1", s), rt("c1", s)
	second.IfName = "net1"
	one, two := r.list(t, "1.0.0", `,"network":"net1"`), r.list(t, "1.0.0", `,"network":"net2"`)
	if _, err := r.AddNetworkList(t.Context(), one, first); err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(s.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	leaves := func(when string, from net.IP, want string) {
		t.Helper()
		routes, err := h.RouteGetWithOptions(net.ParseIP("198.51.100.1"), &netlink.RouteGetOptions{SrcAddr: from})
		if err != nil || len(routes) != 1 {
			t.Fatalf("%s: route from %s: %v %v", when, from, routes, err)
		}
		link, err := h.LinkByIndex(routes[0].LinkIndex)
		if err != nil || link.Attrs().Name != want {
			t.Errorf("%s: what is sent from %s leaves by %v, want %s (%v)", when, from, link, want, err)
		}
	}
	rules := func(want int) {
		t.Helper()
		all, err := h.RuleList(netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, rule := range all {
			if rule.Priority == 30000 {
				n++
			}
		}
		if n != want {
			t.Errorf("%d rules of second interfaces, want %d: %v", n, want, all)
		}
	}
	rules(0)
	leaves("one interface", nil, "eth0")
	for i := range 3 { // the same again; then another
		if i == 2 {
			if err := r.DelNetworkList(t.Context(), two, second); err != nil {
				t.Fatal(err)
			}
			rules(0)
			leaves("the second one gone", nil, "eth0")
		}
		if _, err := r.AddNetworkList(t.Context(), two, second); err != nil {
			t.Fatal(err)
		}
		rules(1)
		leaves("two", nil, "eth0")
		for _, ep := range b.endpoints() {
			leaves("two", ep.IPv4.AsSlice(), map[string]string{"net1": "eth0", "net2": "net1"}[string(ep.Key.Network.Name)])
		}
	}
	if err := r.CheckNetworkList(t.Context(), two, second); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.DelNetworkList(t.Context(), two, second), r.DelNetworkList(t.Context(), one, first)); err != nil {
		t.Error(err)
	}
}

// TestSecondInterfaceOfPod: the labels of a pod say where its first interface belongs.
// Another one is where its configuration says, as far as netmaster allows it, and is no pod
// of Kubernetes.
func TestSecondInterfaceOfPod(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.network("blue", "net2", 3)
	r := newRuntime(t, b)
	s := newSandbox(t)
	pod := api.Pod{Namespace: "shop", Name: "web", UID: "u1"}
	b.master.mu.Lock()
	b.master.places[pod] = api.PodPlacement{Followed: true, TenantName: "blue", NetworkName: "net1"}
	b.master.mu.Unlock()
	args := [][2]string{{"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name}, {"K8S_POD_UID", pod.UID}}
	first, second := rt("c1", s, args...), rt("c1", s, args...)
	second.IfName = "net1"
	two := r.list(t, "1.0.0", `,"network":"net2"`)
	leftOut := r.list(t, "1.0.0", `,"tenant":"","network":"net2"`)
	if _, err := r.AddNetworkList(t.Context(), two, second); err == nil {
		t.Error("a pod's first interface is where the configuration says")
	}
	if _, err := r.AddNetworkList(t.Context(), r.list(t, "1.0.0", ""), first); err != nil {
		t.Fatal(err)
	}
	b.master.mu.Lock()
	b.master.places[pod] = api.PodPlacement{Followed: true, TenantName: "default", NetworkName: "default-net"}
	b.master.mu.Unlock()
	_, err := r.AddNetworkList(t.Context(), two, second)
	if e, ok := errors.AsType[*types.Error](err); !ok || !strings.Contains(e.Details, `tenant "blue" and group "" are not for pod web`) {
		t.Errorf("a tenant that is not the pod's: %v", err)
	}
	b.master.mu.Lock()
	b.master.places[pod] = api.PodPlacement{Followed: true, TenantName: "blue", NetworkName: "net1"}
	b.master.mu.Unlock()
	_, err = r.AddNetworkList(t.Context(), r.list(t, "1.0.0", `,"tenant":"","network":"net2","group":"refused"`), second)
	if e, ok := errors.AsType[*types.Error](err); !ok || !strings.Contains(e.Details, `tenant "" and group "refused" are not for pod web`) {
		t.Errorf("a group that netmaster refuses: %v", err)
	}
	if n, _ := b.master.askedFor("c1"); n != 1 {
		t.Errorf("%d endpoints were asked for, want the first interface's", n)
	}
	for _, conf := range []*libcni.NetworkConfigList{two, leftOut, leftOut} { // again: the same
		if _, err := r.AddNetworkList(t.Context(), conf, second); err != nil {
			t.Fatal(err)
		}
	}
	if n, of := b.master.askedFor("c1"); n != 2 || of != nil && *of != pod {
		t.Errorf("%d endpoints were asked for, the last of %v", n, of)
	}
	defer func() {
		if err := errors.Join(r.DelNetworkList(t.Context(), two, second), r.DelNetworkList(t.Context(), two, first)); err != nil {
			t.Error(err)
		}
	}()
	b.master.mu.Lock()
	defer b.master.mu.Unlock()
	for id, req := range b.master.created {
		if second := req.NetworkName == "net2"; (req.ConfigEP.Pod == nil) != second || req.TenantName != "blue" {
			t.Errorf("%s: %+v of pod %v", id, req, req.ConfigEP.Pod)
		}
	}
}
