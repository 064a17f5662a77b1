package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	intents "github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// rights notes what an API server is asked for, as rules of RBAC call it, and answers
// that there is nothing but a cluster.
type rights struct {
	mu    sync.Mutex
	asked map[string]bool // "group resource verb"
}

func (r *rights) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group, rest := "", path[min(2, len(path)):] // api/v1/...
	if path[0] == "apis" {
		group, rest = path[1], path[3:]
	}
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	resource := rest[0]
	if len(rest) > 2 {
		resource += "/" + rest[2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodGet: "list"}[req.Method]
	watched := req.URL.Query().Get("watch") != ""
	switch {
	case watched:
		verb = "watch"
	case verb == "list" && len(rest) > 1:
		verb = "get"
	}
	r.mu.Lock()
	r.asked[strings.TrimSpace(group+" "+resource+" "+verb)] = true
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if watched {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client may be gone
		<-req.Context().Done()
		return
	}
	kind := map[string]string{
		"pods": "PodList", "namespaces": "NamespaceList", "networkpolicies": "NetworkPolicyList", "clusternetworkpolicies": "ClusterNetworkPolicyList",
		"services": "ServiceList", "endpointslices": "EndpointSliceList", "nodes": "NodeList", "servicecidrs": "ServiceCIDRList",
		"tenants": "TenantList", "networks": "NetworkList", "endpointgroups": "EndpointGroupList", "policies": "PolicyList", "netprofiles": "NetProfileList",
	}[resource]
	if strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList") {
		kind = "PartialObjectMetadataList"
	}
	version := "v1"
	if path[0] == "apis" {
		version = strings.Join(path[1:3], "/")
	}
	if len(rest) > 1 && rest[1] == serviceaccount.BundleName {
		_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1"}}`)
		return
	}
	if len(rest) > 1 && rest[1] == serviceaccount.FounderLease {
		_, _ = io.WriteString(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"1"}}`)
		return
	}
	items := ""
	if req.URL.Query().Get("fieldSelector") == "metadata.name=kube-system" { // which cluster it is of
		items = `{"metadata":{"name":"kube-system","uid":"3"}}`
	}
	_, _ = io.WriteString(w, `{"kind":"`+kind+`","apiVersion":"`+version+`","metadata":{"resourceVersion":"1"},"items":[`+items+`]}`)
}

func (r *rights) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[what]
}

// TestManifestGrantsWhatNetmasterAsksFor: netmaster asks the API server for all that the manifest lets its account
// do, and for nothing else. That the rights suffice is tried in test/kube, with RBAC.
func TestManifestGrantsWhatNetmasterAsksFor(t *testing.T) {
	seen := &rights{asked: map[string]bool{}}
	server := httptest.NewServer(seen)
	defer server.Close()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
	})
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New()
	ctrl := control.New(st, control.Options{})
	log := slog.New(slog.DiscardHandler)
	o := options{kubeconfig: config, enroll: "kube-system/contiv-netplugin", dataDir: t.TempDir()}
	bundle := membership.MembersBundle(o.dataDir)
	if err := errors.Join(os.MkdirAll(filepath.Dir(bundle), 0o700), os.WriteFile(bundle, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	k, err := newKubernetes(o, ctrl, log)
	if err != nil {
		t.Fatal(err)
	}
	vouch, err := o.tokenReviewer()
	if err != nil {
		t.Fatal(err)
	}
	o.joining = clusterOptions{join: []string{"10.9.9.1:9005"}, enrollmentListen: "10.9.9.1:9005", memberName: "node1", pods: podMembers{account: "kube-system/contiv-netmaster"}}
	form, err := o.forming(log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if recorded, err := form.Await(ctx); err != nil || recorded != nil {
		t.Errorf("there is no cluster, and netmaster learns of %q, %v", recorded, err)
	}
	running.Go(func() { _ = ctrl.Run(ctx) }) // it ends with ctx
	running.Go(func() { _ = k.run(ctx) })    // likewise
	if _, _, err := vouch(ctx, "a.b.c"); err == nil {
		t.Error("a token that nobody knows is good")
	}
	balanced := []netip.Addr{netip.MustParseAddr("203.0.113.1")}
	k.reportStatus(controller.Report{
		Object: controller.Object{Kind: mirror.Services, Name: mirror.Name{Namespace: "ns", Name: "s"}},
		Live:   &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "2"}}, Balanced: &balanced,
	})
	for _, kind := range intents.Kinds() {
		o := kind.New()
		o.SetName("o")
		k.reportStatus(controller.Report{Object: controller.Object{Kind: kind.Plural, Name: mirror.Name{Name: "o"}}, Live: o, WriteBack: &controller.WriteBack{Status: intents.Status{Key: "o"}, Waits: true}})
	}
	policy := &metav1.ObjectMeta{Name: "p", UID: "1"}
	k.reportStatus(controller.Report{
		Object: controller.Object{Kind: mirror.ClusterNetworkPolicies, Name: mirror.Name{Name: "p"}}, Live: policy,
		Err: model.Errorf(model.ErrInvalid, "it cannot be had"),
	})

	var granted []string
	for _, o := range manifestObjects(t) {
		for _, r := range o.Rules {
			for _, group := range r.Groups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						if verb != intents.UseTenant { // the API server asks for it, when netmaster writes
							granted = append(granted, strings.TrimSpace(group+" "+resource+" "+verb))
						}
					}
				}
			}
		}
	}
	if len(granted) == 0 {
		t.Fatal("the manifest grants nothing")
	}
	for _, g := range granted {
		eventually(t, "netmaster asks for what is granted: "+g, func() error {
			if !seen.has(g) {
				return errors.New("not yet")
			}
			return nil
		})
	}
	cancel()
	running.Wait()
	var asked []string
	for what := range seen.asked {
		asked = append(asked, what)
	}
	slices.Sort(granted)
	slices.Sort(asked)
	granted = slices.Compact(granted) // one of two ConfigMaps
	if diff := cmp.Diff(granted, asked); diff != "" {
		t.Errorf("rights (-granted +asked for):\n%s", diff)
	}
}
