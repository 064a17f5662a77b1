package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The labels, of pods and namespaces, that say where a pod belongs.
const (
	LabelTenant  = "io.contiv.tenant"
	LabelNetwork = "io.contiv.network"
	LabelGroup   = "io.contiv.net-group"
)

// Where pods belong whose labels and namespace do not say.
const (
	DefaultNetwork model.NetworkName = model.ClusterNetwork
	DefaultGroup   model.GroupName   = "default-group"
)

// Choices are what pods may choose by their own labels.
type Choices struct {
	Tenant bool // a tenant, in a namespace that names none
	// Groups are the ones that pods may choose; nil = any.
	Groups []model.GroupName
}

// GroupRefusal says why pods of a namespace with these labels may not choose a group; empty =
// they may. The namespace's own group is always allowed.
func (c Choices) GroupRefusal(group model.GroupName, namespace map[string]string) string {
	switch {
	case string(group) == namespace[LabelGroup] || c.Groups == nil || slices.Contains(c.Groups, group):
		return ""
	case len(c.Groups) == 0:
		return "pods may choose no group; their namespace may name one"
	}
	return "pods may choose only " + listed(c.Groups)
}

// Intent tells what exists.
type Intent interface {
	Tenants() []model.TenantName
	Networks(t model.TenantName) []model.NetworkName
	Groups(t model.TenantName) []model.GroupName
}

// Placement is where a pod belongs.
type Placement struct {
	Tenant  model.TenantName
	Network model.NetworkName
	Group   model.GroupName // empty = none
}

// Refusal says why a pod belongs nowhere, for an event on it.
type Refusal struct {
	Label string // that is to blame
	Text  string
	// Absent: it names what does not exist; the Place that was found has the name.
	Absent bool
}

func (r Refusal) Error() string { return r.Text }

// PlacementOf says where a pod belongs. The error is a Refusal.
func PlacementOf(pod, namespace map[string]string, may Choices, there Intent) (Placement, error) {
	var p Placement
	tenant, from := namespace[LabelTenant], "namespace"
	own, chosen := pod[LabelTenant]
	switch {
	case tenant == "":
		tenant = string(model.DefaultTenant)
		if chosen && own != tenant && !may.Tenant {
			return p, refused(LabelTenant, "label %s=%s of the pod: pods may not choose a tenant here; its namespace has none, so it is of tenant %s", LabelTenant, own, tenant)
		}
		if chosen && may.Tenant {
			tenant, from = own, "pod"
		}
	case chosen && own != tenant:
		return p, refused(LabelTenant, "label %s=%s of the pod: its namespace is of tenant %s", LabelTenant, own, tenant)
	}
	p.Tenant = model.TenantName(tenant)
	if err := exists(LabelTenant, from, "tenant", p.Tenant, there.Tenants()); err != nil {
		return p, err
	}

	network, from := choice(pod, namespace, LabelNetwork, string(DefaultNetwork))
	p.Network = model.NetworkName(network)
	if err := exists(LabelNetwork, from, fmt.Sprintf("network of tenant %s", p.Tenant), p.Network, there.Networks(p.Tenant)); err != nil {
		return p, err
	}

	groups := there.Groups(p.Tenant)
	group, from := choice(pod, namespace, LabelGroup, "")
	p.Group = model.GroupName(group)
	switch {
	case group == "":
		if slices.Contains(groups, DefaultGroup) {
			p.Group = DefaultGroup
		}
		return p, nil
	case from == "pod":
		if why := may.GroupRefusal(p.Group, namespace); why != "" {
			return p, refused(LabelGroup, "label %s=%s of the pod: %s", LabelGroup, group, why)
		}
	}
	return p, exists(LabelGroup, from, fmt.Sprintf("group of tenant %s", p.Tenant), p.Group, groups)
}

// choice is a label's text, of the pod, else of its namespace, else the default.
func choice(pod, namespace map[string]string, label, otherwise string) (text, from string) {
	if v := pod[label]; v != "" {
		return v, "pod"
	}
	if v := namespace[label]; v != "" {
		return v, "namespace"
	}
	return otherwise, ""
}

func exists[T ~string](label, from, kind string, name T, all []T) error {
	if slices.Contains(all, name) {
		return nil
	}
	what := fmt.Sprintf("label %s=%s of the %s", label, name, from)
	if from == "" {
		what = fmt.Sprintf("no label %s: %s is meant", label, name)
	}
	return Refusal{Label: label, Text: fmt.Sprintf("%s: there is no such %s; there are %s", what, kind, listed(all)), Absent: true}
}

// listed names at most ten, since events are short.
func listed[T ~string](all []T) string {
	var names []string
	for _, n := range all {
		names = append(names, string(n))
	}
	slices.Sort(names)
	switch n := len(names) - 10; {
	case len(names) == 0:
		return "none"
	case n > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), n)
	}
	return strings.Join(names, ", ")
}

func refused(label, format string, args ...any) error {
	return Refusal{Label: label, Text: fmt.Sprintf(format, args...)}
}

// Attached reports whether a pod has an interface of its own: not one on its node's
// network, and not one that has run.
func Attached(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// NamedPorts are the ports of a pod that rules may name, as model.ValidateNamedPorts wants
// them: of its containers and its sidecars (restartable init containers), the first of each
// name and protocol. Ports beyond the limit are left out, and a Problem says so.
func NamedPorts(pod *corev1.Pod) (ports []model.NamedPort, found []Problem) {
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			proto, ok := protocolOf(p.Protocol)
			if !ok || p.ContainerPort < 1 || p.ContainerPort > 65535 {
				continue
			}
			if _, ok := portNamed(proto, p.Name); !ok { // nameless, mostly
				continue
			}
			ports = append(ports, model.NamedPort{Name: p.Name, Protocol: proto, Port: uint16(p.ContainerPort)})
		}
	}
	slices.SortStableFunc(ports, model.CompareNamedPorts)
	ports = slices.CompactFunc(ports, func(a, b model.NamedPort) bool { return model.CompareNamedPorts(a, b) == 0 })
	if n := len(ports); n > model.MaxNamedPorts {
		found = append(found, Problem{"spec.containers", fmt.Sprintf("%d named ports: policies can name %d, the first by name", n, model.MaxNamedPorts)})
		ports = ports[:model.MaxNamedPorts]
	}
	return ports, found
}

// Namespace is the row of a namespace.
func Namespace(ns *corev1.Namespace) model.Namespace {
	return model.Namespace{Name: model.NamespaceName(ns.Name), Labels: ns.Labels}
}
