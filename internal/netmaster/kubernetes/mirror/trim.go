package mirror

import (
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// Trim drops the parts of an object that no reader here needs, which is most of it, so that
// many objects take little memory: managed fields, all annotations except our own and the
// ones by which services ask for topology hints, and
//   - of a pod all but its node, its phase, and its named ports,
//   - of a slice its owners and labels,
//   - of a node all but its addresses and labels.
func Trim(o runtime.Object) {
	m, err := meta.Accessor(o)
	if err != nil {
		return // a status: it has no metadata of an object
	}
	m.SetManagedFields(nil)
	m.SetAnnotations(readAnnotations(m.GetAnnotations()))
	switch o := o.(type) {
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{
			NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
			Containers: ports(o.Spec.Containers), InitContainers: ports(o.Spec.InitContainers),
		}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase}
	case *corev1.Service:
		o.Spec.Selector = nil
	case *corev1.Node:
		o.Spec = corev1.NodeSpec{}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	case *discoveryv1.EndpointSlice:
		o.OwnerReferences = nil
		o.GenerateName = ""
		for i := range o.Endpoints {
			trimEndpoint(&o.Endpoints[i])
		}
	}
}

// ports are those of containers that name ports.
func ports(all []corev1.Container) (out []corev1.Container) {
	for _, c := range all {
		if len(c.Ports) > 0 {
			out = append(out, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return out
}

// yes and no are what conditions point to.
var yes, no = true, false

func trimEndpoint(e *discoveryv1.Endpoint) {
	e.Hostname, e.DeprecatedTopology = nil, nil
	if len(e.Addresses) > 1 {
		e.Addresses = e.Addresses[:1:1] // the others have no reader
	}
	if r := e.TargetRef; r != nil && r.Kind == "Pod" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", UID: r.UID}
	} else {
		e.TargetRef = nil
	}
	for _, c := range []**bool{&e.Conditions.Ready, &e.Conditions.Serving, &e.Conditions.Terminating} {
		switch {
		case *c == nil:
		case **c:
			*c = &yes
		default:
			*c = &no
		}
	}
	// Thousands are on one node and in one zone.
	for _, text := range []**string{&e.NodeName, &e.Zone} {
		if *text != nil {
			*text = internText(**text)
		}
	}
}

// internText is a text that all who have it share.
func internText(s string) *string {
	v := unique.Make(s).Value()
	return &v
}

// readAnnotations are the annotations that somebody here may read; nil = none.
func readAnnotations(all map[string]string) (out map[string]string) {
	for k, v := range all {
		if strings.HasPrefix(k, "contiv.io/") || k == "kubernetes.io/ingress-bandwidth" || k == "kubernetes.io/egress-bandwidth" || k == corev1.AnnotationTopologyMode || k == corev1.DeprecatedAnnotationTopologyAwareHints {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
