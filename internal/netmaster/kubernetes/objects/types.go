package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/contiv/netplugin/v2/api"
)

const (
	// Finalizer keeps an object that owns something until that is gone.
	Finalizer = "contiv.io/kept"
	// Adopt is the annotation with which, when it is "true", an object takes over what
	// users made by REST.
	Adopt = "contiv.io/adopt"
	// Ready is the condition that tells whether the cluster has what an object says.
	Ready = "Ready"
)

// GroupVersion is where the objects are.
var GroupVersion = schema.GroupVersion{Group: "contiv.io", Version: "v1alpha1"}

// Object is an object, whatever its kind is.
type Object interface {
	metav1.Object
	runtime.Object
	// GetStatus is its status as the API server has it.
	GetStatus() Status
}

// Of is an object with a spec.
type Of[S any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              S      `json:"spec"`
	Status            Status `json:"status"`
}

// List is a list of objects with a spec.
type List[S any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Of[S] `json:"items"`
}

// PolicySpec is a policy with its rules.
type PolicySpec struct {
	api.Policy
	Rules []api.Rule `json:"rules,omitempty"`
}

// The objects.
type (
	Tenant        = Of[api.Tenant]
	Network       = Of[api.Network]
	EndpointGroup = Of[api.EndpointGroup]
	Policy        = Of[PolicySpec]
	NetProfile    = Of[api.NetProfile]
)

// Status is what became of an object.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Key                string             `json:"key,omitempty"`   // of what it stands for: blue:web
	Owner              string             `json:"owner,omitempty"` // of that: kubernetes, or user; "" = it is not there
	PktTag             int64              `json:"pktTag,omitempty"`
	Networks           *int64             `json:"networks,omitempty"`
	Groups             *int64             `json:"groups,omitempty"`
	Rules              *int64             `json:"rules,omitempty"`
	Endpoints          *int64             `json:"endpoints,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// GetStatus is its status as the API server has it.
func (o *Of[S]) GetStatus() Status { return o.Status }

// DeepCopyObject is runtime.Object's. Specs and statuses are never changed in place: a
// copy shares what they point to.
func (o *Of[S]) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject is runtime.Object's.
func (l *List[S]) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Of[S], len(l.Items))
	for i := range l.Items {
		c.Items[i] = l.Items[i]
		l.Items[i].DeepCopyInto(&c.Items[i].ObjectMeta)
	}
	return &c
}

// AddToScheme makes the objects known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for _, k := range Kinds() {
		s.AddKnownTypeWithName(GroupVersion.WithKind(k.Kind), k.New())
		s.AddKnownTypeWithName(GroupVersion.WithKind(k.Kind+"List"), k.NewList())
	}
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
