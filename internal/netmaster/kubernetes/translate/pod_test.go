package translate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// intent is what exists in these tests.
type intent struct{}

func (intent) Tenants() []model.TenantName { return []model.TenantName{"default", "blue"} }

func (intent) Networks(t model.TenantName) []model.NetworkName {
	return map[model.TenantName][]model.NetworkName{"default": {"default-net", "fast"}, "blue": {"default-net", "n1"}}[t]
}

func (intent) Groups(t model.TenantName) []model.GroupName {
	return map[model.TenantName][]model.GroupName{"default": {"default-group", "web", "db"}}[t]
}

// TestPlacesFollowTheDocumentedTable holds the table of docs/design/kubernetes.md.
func TestPlacesFollowTheDocumentedTable(t *testing.T) {
	type labels = map[string]string
	for _, tc := range []struct {
		pod, namespace labels
		may            Choices
		want           Placement
		label, refused string
	}{
		{nil, nil, Choices{}, Placement{"default", "default-net", "default-group"}, "", ""},
		{nil, labels{LabelTenant: "blue"}, Choices{}, Placement{"blue", "default-net", ""}, "", ""},
		{labels{LabelTenant: "blue"}, labels{LabelTenant: "blue"}, Choices{}, Placement{"blue", "default-net", ""}, "", ""},
		{labels{LabelTenant: "default"}, labels{LabelTenant: "blue"}, Choices{Tenant: true}, Placement{}, LabelTenant, "its namespace is of tenant blue"},
		{labels{LabelTenant: ""}, labels{LabelTenant: "blue"}, Choices{Tenant: true}, Placement{}, LabelTenant, "its namespace is of tenant blue"},
		{labels{LabelTenant: "blue"}, nil, Choices{}, Placement{}, LabelTenant, "pods may not choose a tenant here"},
		{labels{LabelTenant: "default"}, nil, Choices{}, Placement{"default", "default-net", "default-group"}, "", ""},
		{labels{LabelTenant: "blue"}, nil, Choices{Tenant: true}, Placement{"blue", "default-net", ""}, "", ""},
		{labels{LabelTenant: "red"}, nil, Choices{Tenant: true}, Placement{}, LabelTenant, "label io.contiv.tenant=red of the pod: there is no such tenant; there are blue, default"},
		{nil, labels{LabelTenant: "red"}, Choices{}, Placement{}, LabelTenant, "of the namespace: there is no such tenant"},
		{labels{LabelNetwork: "fast"}, labels{LabelNetwork: "default-net"}, Choices{}, Placement{"default", "fast", "default-group"}, "", ""},
		{nil, labels{LabelNetwork: "fast"}, Choices{}, Placement{"default", "fast", "default-group"}, "", ""},
		{labels{LabelNetwork: "fast"}, labels{LabelTenant: "blue"}, Choices{}, Placement{}, LabelNetwork, "io.contiv.network=fast of the pod: there is no such network of tenant blue; there are default-net, n1"},
		{labels{LabelGroup: "web"}, labels{LabelGroup: "db"}, Choices{}, Placement{"default", "default-net", "web"}, "", ""},
		{nil, labels{LabelGroup: "db"}, Choices{Groups: []model.GroupName{"web"}}, Placement{"default", "default-net", "db"}, "", ""},
		{labels{LabelGroup: "db"}, nil, Choices{Groups: []model.GroupName{"web"}}, Placement{}, LabelGroup, "pods may choose only web"},
		{labels{LabelGroup: "db"}, nil, Choices{Groups: []model.GroupName{}}, Placement{}, LabelGroup, "pods may choose no group"},
		{labels{LabelGroup: "db"}, labels{LabelGroup: "db"}, Choices{Groups: []model.GroupName{}}, Placement{"default", "default-net", "db"}, "", ""},
		{labels{LabelGroup: "web"}, labels{LabelTenant: "blue"}, Choices{}, Placement{}, LabelGroup, "there is no such group of tenant blue; there are none"},
	} {
		got, err := PlacementOf(tc.pod, tc.namespace, tc.may, intent{})
		r, _ := errors.AsType[Refusal](err)
		if tc.refused == "" && (err != nil || got != tc.want) || tc.refused != "" && (r.Label != tc.label || !strings.Contains(r.Text, tc.refused)) {
			t.Errorf("pod %v in %v: %v, %v; want %v, %q", tc.pod, tc.namespace, got, err, tc.want, tc.refused)
		}
	}
}

// TestNamedPortsComeFromContainers: names come from containers and sidecars; of two ports with one name and
// protocol the first one counts.
func TestNamedPortsComeFromContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(name string, n int32, p corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: n, Protocol: p}
	}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("init", 1, "TCP")}},
			{RestartPolicy: &always, Ports: []corev1.ContainerPort{port("side", 2, ""), port("web", 3, "TCP")}},
		},
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("web", 80, "TCP"), port("web", 81, "UDP"), port("", 82, "TCP"), port("raw", 83, "ICMP"), port("zero", 0, "TCP")}},
			{Ports: []corev1.ContainerPort{port("web", 90, "TCP"), port("sig", 91, "SCTP")}},
		},
	}
	want := []model.NamedPort{
		{Name: "side", Protocol: model.ProtoTCP, Port: 2},
		{Name: "sig", Protocol: model.ProtoSCTP, Port: 91},
		{Name: "web", Protocol: model.ProtoTCP, Port: 80},
		{Name: "web", Protocol: model.ProtoUDP, Port: 81},
	}
	got, found := NamedPorts(&corev1.Pod{Spec: spec})
	if !slices.Equal(got, want) || found != nil || model.ValidateNamedPorts(got) != nil {
		t.Errorf("%v, %v, want %v", got, found, want)
	}
	spec.Containers[0].Ports = nil
	for i := range 70 {
		spec.Containers[0].Ports = append(spec.Containers[0].Ports, port("p"+strings.Repeat("x", i%10)+string(rune('a'+i/10)), int32(i+1), "TCP"))
	}
	got, found = NamedPorts(&corev1.Pod{Spec: spec})
	if len(found) != 1 || model.ValidateNamedPorts(got) != nil || len(got) != model.MaxNamedPorts {
		t.Errorf("%d ports, %v", len(got), found)
	}
}

// TestHostNetworkPodsAreNotAttached: pods on their node's network, and pods that have ended, have no interface
// of their own.
func TestHostNetworkPodsAreNotAttached(t *testing.T) {
	for _, tc := range []struct {
		host  bool
		phase corev1.PodPhase
		want  bool
	}{{false, corev1.PodPending, true}, {false, corev1.PodRunning, true}, {true, corev1.PodRunning, false}, {false, corev1.PodSucceeded, false}, {false, corev1.PodFailed, false}} {
		if got := Attached(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: tc.host}, Status: corev1.PodStatus{Phase: tc.phase}}); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
