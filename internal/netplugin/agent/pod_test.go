package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// askedFor returns how many endpoints were asked for, and of which pod a container's is.
func (m *master) askedFor(container string) (n int, pod *api.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, req := range m.created {
		if strings.Contains(id, container) {
			pod = req.ConfigEP.Pod
		}
	}
	return m.calls["/plugin/createEndpoint"], pod
}

// TestNetmasterChoosesThePodsPlace: where netmaster follows Kubernetes, an ADD of a pod makes the endpoint that
// netmaster chooses, as the pod's, without the configuration's labels; a configuration that
// says otherwise is refused. DEL sends no request.
func TestNetmasterChoosesThePodsPlace(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	web, unnamed := api.Pod{Namespace: "shop", Name: "web", UID: "u1"}, api.Pod{Namespace: "shop", Name: "web"}
	args := [][2]string{{"K8S_POD_NAMESPACE", web.Namespace}, {"K8S_POD_NAME", web.Name}, {"K8S_POD_UID", web.UID}}
	place := func(p api.PodPlacement) {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		b.master.places[web] = p
		p.UID = web.UID
		b.master.places[unnamed] = p
	}
	s := newSandbox(t)
	conf := r.list(t, "1.0.0", `,"labels":{"app":"forged"}`)

	place(api.PodPlacement{Followed: true, TenantName: "default", NetworkName: "default-net"})
	_, err := r.AddNetworkList(t.Context(), conf, rt("pod1", s, args...))
	if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Details, "tenant") {
		t.Errorf("a configuration with another tenant: %v", err)
	}
	place(api.PodPlacement{Followed: true, TenantName: "blue", NetworkName: "net1"})
	for range 2 { // again: the same
		if _, err := r.AddNetworkList(t.Context(), conf, rt("pod1", s, args...)); err != nil {
			t.Fatal(err)
		}
	}
	// An address for which the pod asks is asked for; another one is refused.
	asks := api.PodPlacement{Followed: true, TenantName: "blue", NetworkName: "net1", IPAddress: "10.1.1.77"}
	place(asks)
	b.master.mu.Lock()
	n := b.master.calls["/plugin/createEndpoint"]
	for _, req := range b.master.created {
		if diff := cmp.Diff(&web, req.ConfigEP.Pod); diff != "" || req.NetworkName != "net1" || req.ConfigEP.Labels != nil {
			t.Errorf("asked for %+v %s", req, diff)
		}
	}
	b.master.mu.Unlock()
	if n != 1 {
		t.Errorf("%d endpoints were asked for", n)
	}
	b.master.idle.Store(true)
	if err := r.DelNetworkList(t.Context(), conf, rt("pod1", s, args...)); err != nil {
		t.Error(err)
	}
	b.master.idle.Store(false)
	s = newSandbox(t)
	if _, err := r.AddNetworkList(t.Context(), r.list(t, "1.0.0", `,"ip":"10.1.1.78"`), rt("pod2", s, args...)); err == nil || !strings.Contains(err.Error(), "annotations of pod shop/web ask for 10.1.1.77") {
		t.Errorf("a configuration with another address: %v", err)
	}
	if _, err := r.AddNetworkList(t.Context(), conf, rt("pod2", s, args...)); err != nil {
		t.Fatal(err)
	}
	// A runtime that names no UID gets the pod of the name.
	place(api.PodPlacement{Followed: true, TenantName: "blue", NetworkName: "net1"})
	nameless := rt("pod3", newSandbox(t), args[:2]...)
	for range 2 {
		if _, err := r.AddNetworkList(t.Context(), conf, nameless); err != nil {
			t.Fatal(err)
		}
	}
	if n, pod := b.master.askedFor("pod3"); n != 3 || pod == nil || *pod != web {
		t.Errorf("%d endpoints were asked for, the last of pod %+v", n, pod)
	}
	if err := r.DelNetworkList(t.Context(), conf, nameless); err != nil {
		t.Error(err)
	}
	if eps := b.endpoints(); !slices.ContainsFunc(eps, func(e model.Endpoint) bool { return e.IPv4.String() == "10.1.1.77" }) {
		t.Errorf("the endpoints are %+v", eps)
	}
	if err := r.DelNetworkList(t.Context(), conf, rt("pod2", s, args...)); err != nil {
		t.Error(err)
	}
}
