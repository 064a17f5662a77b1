package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

type somePods struct{}

func (somePods) Endpoint(_ context.Context, namespace, name, uid string) (model.Endpoint, error) {
	if uid != "u1" {
		return model.Endpoint{}, model.Errorf(model.ErrUnavailable, "no such pod")
	}
	return model.Endpoint{
		Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}}, Group: "web", Labels: map[string]string{"app": "true"},
		Namespace: model.NamespaceName(namespace), Pod: model.Pod{Name: name, UID: uid},
	}, nil
}

// TestPods: of a pod's endpoint counts what Kubernetes says, not what the request does;
// without Kubernetes nobody makes one.
func TestPods(t *testing.T) {
	const create = `{"TenantName":"blue","NetworkName":"n","EndpointID":"e","ConfigEP":{"Host":"h","Labels":{"app":"forged"},"Pod":{"Namespace":"shop","Name":"one","UID":"u1"}}}`
	f := serveWith(t, func(c *Config) { c.Pods = somePods{} })
	f.populate()
	if got := f.must("POST", "/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"u1"}`); !strings.Contains(got, `"Followed":true,"TenantName":"blue","NetworkName":"n","ServiceName":"web"`) {
		t.Errorf("the place is %s", got)
	}
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/plugin/pod", `{"Namespace":"shop","Name":"one","UID":""}`, http.StatusBadRequest, "UID"},
		{"/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"u2"}`, http.StatusServiceUnavailable, "no such pod"},
		{"/plugin/createEndpoint", strings.Replace(create, `"u1"`, `"u2"`, 1), http.StatusServiceUnavailable, "no such pod"},
		{"/plugin/createEndpoint", strings.Replace(create, `"n"`, `"tiny"`, 1), http.StatusConflict, "belongs to network blue:n now"},
		{"/api/v1/apply", `{"objects":[{"kind":"endpoint",` + create[1:] + `]}`, http.StatusBadRequest, "Pod"},
	} {
		if status, got := f.do("POST", tt.path, tt.body); status != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", tt.path, tt.body, status, got, tt.status, tt.want)
		}
	}
	got := f.must("POST", "/plugin/createEndpoint", create)
	if !strings.Contains(got, `"globalRevision":`) {
		t.Errorf("the answer does not say up to where namespaces have to be known: %s", got)
	}
	if !strings.Contains(got, `"app":"true"`) || !strings.Contains(got, `"serviceName":"web"`) {
		t.Errorf("the endpoint is %s", got)
	}
	var rows []string
	for k, v := range f.contents() {
		if strings.Contains(k, "endpoint") && strings.Contains(v, `"id":"e"`) {
			rows = append(rows, v)
		}
	}
	row := strings.Join(rows, "\n")
	if !strings.Contains(row, `"namespace":"shop"`) || !strings.Contains(row, `"uid":"u1"`) {
		t.Errorf("the row is %s", row)
	}

	f = serve(t, 0)
	f.populate()
	if got := f.must("POST", "/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"u1"}`); !strings.Contains(got, `"Followed":false`) {
		t.Errorf("without Kubernetes: %s", got)
	}
	if status, got := f.do("POST", "/plugin/createEndpoint", create); status != http.StatusServiceUnavailable || !strings.Contains(got, "--kubeconfig") {
		t.Errorf("without Kubernetes: %d %s", status, got)
	}
}
