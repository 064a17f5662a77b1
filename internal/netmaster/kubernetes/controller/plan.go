package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Planner translates manifests into the changes that syncs would make if the API server had
// them. It changes nothing.
type Planner struct {
	Policies *PolicySyncer
	Services *Services
}

// planKind is a kind of manifests that plans take.
type planKind struct {
	version, kind, plural string
	empty                 func() metav1.Object
}

var planKinds = []planKind{
	{"networking.k8s.io/v1", "NetworkPolicy", mirror.NetworkPolicies, func() metav1.Object { return &networkingv1.NetworkPolicy{} }},
	{policyv1beta1.GroupVersion.String(), "ClusterNetworkPolicy", mirror.ClusterNetworkPolicies, func() metav1.Object { return &policyv1beta1.ClusterNetworkPolicy{} }},
	{policyv1beta1.GroupName + "/v1alpha2", "ClusterNetworkPolicy", mirror.ClusterNetworkPolicies, func() metav1.Object { return &policyv1beta1.ClusterNetworkPolicy{} }},
	{"v1", "Service", mirror.Services, func() metav1.Object { return &corev1.Service{} }},
	{"v1", "Namespace", mirror.Namespaces, func() metav1.Object { return &corev1.Namespace{} }},
}

// manifest is an object that is to be planned.
type manifest struct {
	planKind
	object metav1.Object
}

func (m manifest) name() mirror.Name {
	return mirror.Name{Namespace: m.object.GetNamespace(), Name: m.object.GetName()}
}

// key is the object's name as kubectl shows it, with its namespace.
func (m manifest) key() string {
	if m.object.GetNamespace() == "" {
		return m.object.GetName()
	}
	return m.name().String()
}

// refused refuses a manifest, which it names.
func (m manifest) refused(format string, args ...any) error {
	return model.Errorf(model.ErrInvalid, "%s %s cannot be planned: %s", m.kind, m.key(), fmt.Sprintf(format, args...))
}

// readManifest reads an object of a kind that plans take.
func readManifest(data json.RawMessage) (m manifest, err error) {
	var header struct {
		metav1.TypeMeta
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return m, model.Errorf(model.ErrInvalid, "is not a manifest of Kubernetes: %v", err)
	}
	meta := &metav1.ObjectMeta{Namespace: header.Metadata.Namespace, Name: header.Metadata.Name}
	m = manifest{planKind{kind: header.Kind}, meta}
	var versions, kinds []string
	for _, k := range planKinds {
		if !slices.Contains(kinds, k.kind) {
			kinds = append(kinds, k.kind)
		}
		if k.kind == header.Kind {
			versions = append(versions, k.version)
		}
		if k.kind == header.Kind && k.version == header.APIVersion {
			m = manifest{k, k.empty()}
		}
	}
	switch {
	case header.Metadata.Name == "":
		return m, model.Errorf(model.ErrInvalid, "%s without a name cannot be planned: metadata.name is missing", header.Kind)
	case m.empty != nil:
	case len(versions) > 0:
		return m, m.refused("its apiVersion is %s; plans take %s", header.APIVersion, strings.Join(versions, " and "))
	default:
		return m, m.refused("plans take %s; leave it out", strings.Join(kinds, ", "))
	}
	read := json.NewDecoder(bytes.NewReader(data))
	read.DisallowUnknownFields()
	if err := read.Decode(m.object); err != nil {
		m.object = meta
		return m, m.refused("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	namespaced := m.plural == mirror.NetworkPolicies || m.plural == mirror.Services
	switch {
	case !namespaced:
		m.object.SetNamespace("")
	case m.object.GetNamespace() == "":
		m.object.SetNamespace(metav1.NamespaceDefault)
	}
	return m, nil
}

// Plan returns what each of some manifests stands for. The error is control.ChangeErrors of the
// manifests that cannot be planned, or that the API server's objects are not known now.
func (p Planner) Plan(ctx context.Context, all []json.RawMessage) ([]control.PlannedObject, error) {
	if err := p.known(); err != nil {
		return nil, err
	}
	v, err := p.Policies.config.Control.View(ctx)
	if err != nil {
		return nil, err
	}
	policies, services := p.Policies.round(v), p.Services.round(v, store.Fence{})
	policies.planned = map[mirror.Name]*corev1.Namespace{}
	var wrong control.ChangeErrors
	read := make([]manifest, len(all))
	for i, data := range all {
		read[i], err = readManifest(data)
		if ns, ok := read[i].object.(*corev1.Namespace); ok && err == nil {
			policies.planned[read[i].name()] = ns
		}
		if err != nil {
			wrong = append(wrong, &control.ChangeError{Index: i, Err: err})
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	out := make([]control.PlannedObject, len(all))
	for i, m := range read {
		var found []translate.Problem
		out[i] = control.PlannedObject{Kind: m.kind, Key: m.key()}
		switch o := m.object.(type) {
		case *corev1.Namespace:
			out[i].Changes, err = policies.planNamespace(m, o)
		case *corev1.Service:
			out[i].Changes, found, err = services.plan(m, o)
		default:
			out[i].Changes, found, err = policies.plan(m)
		}
		if err != nil {
			wrong = append(wrong, &control.ChangeError{Index: i, Err: err})
		}
		for _, f := range found {
			out[i].Warnings = append(out[i].Warnings, f.String())
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return out, nil
}

// known returns why the API server's objects are not known now.
func (p Planner) known() error {
	if err := p.Policies.work.ours(); err != nil {
		return model.Errorf(model.ErrUnavailable, "%v", err)
	}
	for _, kind := range append(p.Policies.mirror.States(), p.Services.mirror.States()...) {
		if !kind.Listed {
			return model.Errorf(model.ErrUnavailable, "%s of the API server are not known yet: try again", kind.Kind)
		}
	}
	return nil
}

// plan returns the changes of a policy, in all tenants in which it could select pods.
func (p *policySync) plan(m manifest) (changes []control.Planned, problems []translate.Problem, err error) {
	if ns := m.object.GetNamespace(); ns != "" && p.allNamespaces()[mirror.Name{Name: ns}] == nil {
		return nil, nil, m.refused("namespace %s does not exist; plan its manifest, too", ns)
	}
	name, in, mean := p.translate(Object{m.plural, m.name()}, m.object)
	for _, t := range p.view.Tenants.List() {
		if !slices.Contains(in, t.Name) {
			continue
		}
		var want *model.NetworkPolicy
		want, problems = mean(t.Name) // the same in all tenants
		if _, waits := p.uncounted(); waits != nil {
			return nil, nil, m.refused("%v", waits)
		}
		change, unfit, err := p.change(model.PolicyKey{Tenant: t.Name, Name: name}, want)
		switch {
		case err != nil:
			return nil, nil, m.refused("%v", err)
		case unfit != nil:
			return nil, nil, m.refused("%v", unfit)
		case change != control.Planned{}:
			changes = append(changes, change)
		}
	}
	if o, ok := m.object.(*policyv1beta1.ClusterNetworkPolicy); ok {
		problems = append(problems, p.cluster.AcrossTenants(o, p.namespaceTenants())...)
	}
	return changes, problems, nil
}

// isComplete reports whether a manifest is an object as the API server has it or would have it,
// as after a dry run there. Other manifests lack what the API server adds.
func isComplete(o metav1.Object) bool { return o.GetUID() != "" }

// planNamespace returns the change of a namespace's labels.
func (p *policySync) planNamespace(m manifest, in *corev1.Namespace) ([]control.Planned, error) {
	live := p.k.mirror.Get(mirror.Namespaces, m.name())
	if !isComplete(in) {
		all := map[string]string{model.NamespaceNameLabel: in.Name} // which the API server sets
		if live != nil {
			maps.Copy(all, live.GetLabels()) // labels that others set stay
		}
		maps.Copy(all, in.Labels)
		in.Labels = all
	}
	if live != nil && placementLabels(in) != placementLabels(live) {
		return nil, m.refused("its labels %s, %s and %s are for pods that are created later", translate.LabelTenant, translate.LabelNetwork, translate.LabelGroup)
	}
	row, err := model.Check(translate.Namespace(in))
	if err != nil {
		return nil, m.refused("%v", err)
	}
	return []control.Planned{p.k.config.Control.Kubernetes.PlanNamespace(row)}, nil
}

// plan returns the change of a service whose backends stay.
func (p *serviceSync) plan(m manifest, in *corev1.Service) ([]control.Planned, []translate.Problem, error) {
	live, _ := p.s.mirror.Get(mirror.Services, m.name()).(*corev1.Service)
	if live == nil {
		return nil, nil, m.refused("it is new, and Kubernetes has yet to choose its addresses and backends")
	}
	if !isComplete(in) {
		addAllocated(in, live)
	}
	if what := p.changesBackends(in, live); what != "" {
		return nil, nil, m.refused("its %s, and Kubernetes chooses other backends then", what)
	}
	k := translate.ServiceKey(in.Namespace, in.Name)
	have, _ := p.view.Kubernetes.ClusterService(k)
	a := p.addressing(k, have, func() {})
	a.Given = p.view.AddressOwners.BalancedAddrs(k)
	var problems []translate.Problem
	if a.Balanced(in) && len(a.Given) == 0 {
		problems = append(problems, translate.Problem{Field: "spec.type", Text: "the address of its load balancer is not chosen yet: the plan is without it"})
	}
	want, found := a.Service(in)
	problems = append(problems, found...)
	if want == nil {
		return nil, problems, m.refused("without an address of the cluster it is not served")
	}
	row, err := model.Check(*want)
	if err != nil {
		return nil, nil, m.refused("%v", err)
	}
	return []control.Planned{p.s.config.Control.Kubernetes.PlanService(row)}, problems, nil
}

// addAllocated adds to a service's manifest what the API server keeps of the service that it has.
func addAllocated(in, live *corev1.Service) {
	in.Status = live.Status
	if in.Spec.ClusterIP == "" && len(in.Spec.ClusterIPs) == 0 {
		in.Spec.ClusterIP, in.Spec.ClusterIPs = live.Spec.ClusterIP, live.Spec.ClusterIPs
	}
	if in.Spec.HealthCheckNodePort == 0 {
		in.Spec.HealthCheckNodePort = live.Spec.HealthCheckNodePort
	}
	for i := range in.Spec.Ports {
		port := &in.Spec.Ports[i]
		if was, ok := samePort(live, *port); ok && port.NodePort == 0 {
			port.NodePort = was.NodePort
		}
	}
}

// samePort finds the port of a service with the name and the protocol of another's.
func samePort(s *corev1.Service, p corev1.ServicePort) (corev1.ServicePort, bool) {
	protocol := func(p corev1.ServicePort) corev1.Protocol {
		if p.Protocol == "" {
			return corev1.ProtocolTCP
		}
		return p.Protocol
	}
	i := slices.IndexFunc(s.Spec.Ports, func(o corev1.ServicePort) bool { return o.Name == p.Name && protocol(o) == protocol(p) })
	if i < 0 {
		return corev1.ServicePort{}, false
	}
	return s.Spec.Ports[i], true
}

// changesBackends says which change of a service has Kubernetes write other EndpointSlices; empty =
// none.
func (p *serviceSync) changesBackends(in, live *corev1.Service) string {
	target := func(p corev1.ServicePort) string {
		if t := p.TargetPort.String(); t != "0" && t != "" {
			return t
		}
		return fmt.Sprint(p.Port)
	}
	for _, port := range in.Spec.Ports {
		was, ok := samePort(live, port)
		switch {
		case !ok:
			return fmt.Sprintf("port %d is new", port.Port)
		case target(was) != target(port):
			return fmt.Sprintf("port %d gets another target port", port.Port)
		}
	}
	if len(in.Spec.Selector) == 0 {
		return ""
	}
	now, then := map[string]bool{}, map[string]bool{}
	k := translate.ServiceKey(in.Namespace, in.Name)
	for _, x := range p.view.Kubernetes.SlicesOf(k.ServiceKey()) {
		for _, b := range x.Backends {
			if _, ok := p.view.Pods.PodEndpoint(b.Pod); ok {
				now[b.Pod] = true
			}
		}
	}
	selects := labels.SelectorFromSet(in.Spec.Selector)
	for _, e := range p.view.Pods.PodEndpoints() {
		if string(e.Namespace) == in.Namespace && selects.Matches(labels.Set(e.Labels)) {
			then[e.Pod.UID] = true
		}
	}
	if !maps.Equal(now, then) {
		return "selector selects other pods than its EndpointSlices name"
	}
	return ""
}
