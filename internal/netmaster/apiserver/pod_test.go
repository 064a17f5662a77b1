package apiserver

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// somePods has the pod u1, and u7, which asks for an address.
type somePods struct {
	refused *[]string
	faster  *bool // annotations of u1 have changed
}

func (p somePods) ReportRefused(namespace, name, uid string, err error) {
	*p.refused = append(*p.refused, namespace+"/"+name+" "+uid+": "+err.Error())
}

func (p somePods) Endpoint(_ context.Context, namespace, name, uid string) (model.Endpoint, error) {
	if uid == "u7" {
		return model.Endpoint{
			Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}}, Namespace: model.NamespaceName(namespace),
			IPv4: netip.MustParseAddr("10.1.1.77"), Pod: model.Pod{Name: name, UID: uid, KeepIPv4: true},
		}, nil
	}
	if uid != "u1" && uid != "" {
		return model.Endpoint{}, model.Errorf(model.ErrUnavailable, "no such pod")
	}
	rate := uint64(7000)
	if p.faster != nil && *p.faster {
		rate = 8000
	}
	return model.Endpoint{
		Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}}, Group: "web", Labels: map[string]string{"app": "true"},
		Namespace: model.NamespaceName(namespace), Pod: model.Pod{Name: name, UID: "u1"}, Rates: model.Rates{Send: model.Rate{Bits: rate}},
	}, nil
}

// TestPodEndpointsFollowKubernetes: a pod's endpoint is made as Kubernetes says, not as the request says; without
// Kubernetes it is refused.
func TestPodEndpointsFollowKubernetes(t *testing.T) {
	const create = `{"TenantName":"blue","NetworkName":"n","EndpointID":"e","ConfigEP":{"Host":"h","Labels":{"app":"forged"},"Pod":{"Namespace":"shop","Name":"one","UID":"u1"}}}`
	f := serveWith(t, func(c *Config) { c.Pods = somePods{} })
	f.populate()
	for _, uid := range []string{"u1", ""} { // some runtimes name none
		if got := f.must("POST", "/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"`+uid+`"}`); !strings.Contains(got, `"Followed":true,"UID":"u1","TenantName":"blue","NetworkName":"n","ServiceName":"web"`) {
			t.Errorf("the place is %s", got)
		}
	}
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/plugin/pod", `{"Namespace":"shop","Name":"","UID":""}`, http.StatusBadRequest, "Name"},
		{"/plugin/createEndpoint", strings.Replace(create, `"u1"`, `""`, 1), http.StatusBadRequest, "UID"},
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
	// A store that has followed one has its policies, under which the pod would not be.
	if _, err := f.ctrl.Kubernetes.FollowKubernetes(t.Context(), control.Admin(), valid(t, model.KubernetesCluster{UID: "x"}), false); err != nil {
		t.Fatal(err)
	}
	if status, got := f.do("POST", "/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"u1"}`); status != http.StatusServiceUnavailable || !strings.Contains(got, "--kubeconfig") {
		t.Errorf("without the Kubernetes that was followed: %d %s", status, got)
	}
	if status, got := f.do("POST", "/plugin/createEndpoint", create); status != http.StatusServiceUnavailable || !strings.Contains(got, "--kubeconfig") {
		t.Errorf("without Kubernetes: %d %s", status, got)
	}
}

// TestEndpointsKeepTheirLimits: an endpoint keeps the limits that are asked for; those of a pod are the
// pod's, whatever the request says.
func TestEndpointsKeepTheirLimits(t *testing.T) {
	faster := false
	f := serveWith(t, func(c *Config) { c.Pods = somePods{faster: &faster} })
	f.populate()
	create := func(id, more string) (int, string) {
		return f.do("POST", "/plugin/createEndpoint", `{"TenantName":"blue","NetworkName":"n","EndpointID":"`+id+`","ConfigEP":{"Host":"h"`+more+`}}`)
	}
	rates := `,"Rates":{"send":1000000,"sendBurst":5000,"receive":2000000}`
	for range 2 { // again: the same
		if status, got := create("r1", rates); status != http.StatusOK {
			t.Fatalf("%d %s", status, got)
		}
	}
	inspected := `"rates":{"send":1000000,"sendBurst":5000,"receive":2000000}`
	if got := f.must("GET", "/api/v1/inspect/endpoints/r1/", ""); !strings.Contains(got, inspected) {
		t.Errorf("the endpoint is %s", got)
	}
	if status, got := create("r1", ""); status != http.StatusConflict || !strings.Contains(got, "other rates") {
		t.Errorf("without its rates: %d %s", status, got)
	}
	for bad, want := range map[string]string{
		`,"Rates":{"send":999}`: "Rates.Send", `,"Rates":{"receive":1000,"receiveBurst":1}`: "Rates.ReceiveBurst", `,"Rates":{"sendBurst":5000}`: "Rates.SendBurst",
	} {
		if status, got := create("r2", bad); status != http.StatusBadRequest || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", bad, status, got)
		}
	}
	if status, got := create("r3", rates+`,"Pod":{"Namespace":"shop","Name":"one","UID":"u1"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, got)
	}
	if got := f.must("GET", "/api/v1/inspect/endpoints/r3/", ""); !strings.Contains(got, `"rates":{"send":7000}`) {
		t.Errorf("the pod's endpoint is %s", got)
	}
	faster = true // which the keeper follows: asked again, as after a loss, it stands
	if status, got := create("r3", `,"Pod":{"Namespace":"shop","Name":"one","UID":"u1"}`); status != http.StatusOK {
		t.Errorf("%d %s", status, got)
	}
}

// TestEndpointKeepsTheAddressOfItsPod: an endpoint has the address for which its pod asks, and keeps it. An
// unavailable one is reported to its users. A restored endpoint stays as it is.
func TestEndpointKeepsTheAddressOfItsPod(t *testing.T) {
	var refused []string
	f := serveWith(t, func(c *Config) { c.Pods = somePods{refused: &refused} })
	f.populate()
	if got := f.must("POST", "/plugin/pod", `{"Namespace":"shop","Name":"db-0","UID":"u7"}`); !strings.Contains(got, `"IPAddress":"10.1.1.77"`) {
		t.Errorf("the place is %s", got)
	}
	create := func(id, address string) (int, string) {
		return f.do("POST", "/plugin/createEndpoint", `{"TenantName":"blue","NetworkName":"n","EndpointID":"`+id+`","ConfigEP":{"Host":"h","IPAddress":"`+address+
			`","Pod":{"Namespace":"shop","Name":"db-0","UID":"u7"}}}`)
	}
	row := func(id string) string {
		for k, v := range f.contents() {
			if strings.Contains(k, "endpoint") && strings.Contains(v, `"id":"`+id+`"`) && strings.Contains(v, `"uid"`) {
				return v
			}
		}
		return ""
	}
	f.must("POST", "/plugin/createEndpoint", endpoint("n", "web", "thief", "10.1.1.77"))
	if status, got := create("e", ""); status != http.StatusConflict || len(refused) != 1 || !strings.HasPrefix(refused[0], "shop/db-0 u7: IPAddress ") || !strings.Contains(refused[0], "10.1.1.77 is used by endpoint") {
		t.Errorf("an address that is taken: %d %s, told %q", status, got, refused)
	}
	f.must("POST", "/plugin/deleteEndpoint", `{"TenantName":"blue","NetworkName":"n","EndpointID":"thief"}`)
	if status, got := create("e", ""); status != http.StatusOK || !strings.Contains(got, `"ipAddress":"10.1.1.77`) || !strings.Contains(row("e"), `"keepIPv4":true`) {
		t.Errorf("the address that it asks for: %d %s %s", status, got, row("e"))
	}
	f.must("POST", "/plugin/deleteEndpoint", `{"TenantName":"blue","NetworkName":"n","EndpointID":"e"}`)
	if status, got := create("back", "10.1.1.78"); status != http.StatusOK || strings.Contains(row("back"), "keepIPv4") {
		t.Errorf("one that is put back with another address: %d %s %s", status, got, row("back"))
	}
	if status, got := f.do("POST", "/plugin/createEndpoint", endpoint("n", "web", "other", "10.1.1.77")); status != http.StatusConflict || !strings.Contains(got, "reserved for pod shop/db-0") {
		t.Errorf("another endpoint gets the address of a pod that comes back: %d %s", status, got)
	}
	if len(refused) != 1 {
		t.Errorf("told %q", refused)
	}
}

func (p somePods) Node(_, _, _ string) string { return "" }

func (p somePods) CheckGroup(namespace string, group model.GroupName) error {
	if group != "web" {
		return model.InvalidField("group", group, "pods of "+namespace+" may choose only web")
	}
	return nil
}

// TestFurtherInterfacesStayInThePodsTenant: a further interface of a pod is of the pod's tenant, and of a group that
// pods may choose, whatever its configuration asks for.
func TestFurtherInterfacesStayInThePodsTenant(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Pods = somePods{} })
	f.populate()
	for asked, refusal := range map[string]string{
		`{}`: "", `{"TenantName":"blue"}`: "", `{"ServiceName":"web"}`: "",
		`{"TenantName":"red"}`: "must be left out: pod shop/one is of tenant blue, and so are all its interfaces",
		`{"ServiceName":"db"}`: "pods of shop may choose only web",
	} {
		status, got := f.do("POST", "/plugin/pod", `{"Namespace":"shop","Name":"one","UID":"u1","Interface":`+asked+`}`)
		switch {
		case refusal != "" && (status != http.StatusBadRequest || !strings.Contains(got, refusal)):
			t.Errorf("%s: %d %s, want that it is refused: %s", asked, status, got, refusal)
		case refusal == "" && (status != http.StatusOK || !strings.Contains(got, `"Followed":true,"UID":"u1","TenantName":"blue"}`)):
			t.Errorf("%s: %d %s, want tenant blue and nothing else", asked, status, got)
		}
	}
}
