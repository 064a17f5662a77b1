package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// TestPodPlace: where netmaster follows Kubernetes, an ADD of a pod makes the endpoint
// where netmaster says, as the pod's, without the configuration's labels; one of a
// configuration that says otherwise is refused. DEL asks nobody.
func TestPodPlace(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	web := api.Pod{Namespace: "shop", Name: "web", UID: "u1"}
	args := [][2]string{{"K8S_POD_NAMESPACE", web.Namespace}, {"K8S_POD_NAME", web.Name}, {"K8S_POD_UID", web.UID}}
	place := func(p api.PodPlace) {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		b.master.places[web] = p
	}
	s := newSandbox(t)
	conf := r.list(t, "1.0.0", `,"labels":{"app":"forged"}`)

	place(api.PodPlace{Followed: true, TenantName: "default", NetworkName: "default-net"})
	_, err := r.AddNetworkList(t.Context(), conf, rt("pod1", s, args...))
	if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Details, "tenant") {
		t.Errorf("a configuration with another tenant: %v", err)
	}
	place(api.PodPlace{Followed: true, TenantName: "blue", NetworkName: "net1"})
	for range 2 { // again: the same
		if _, err := r.AddNetworkList(t.Context(), conf, rt("pod1", s, args...)); err != nil {
			t.Fatal(err)
		}
	}
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
}
