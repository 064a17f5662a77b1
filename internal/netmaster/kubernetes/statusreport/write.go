package statusreport

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

const (
	// controller is who tells, in events and as the owner of fields.
	controller = "contiv.io/netmaster"
	// conditionAsWritten is the condition of a ClusterNetworkPolicy: that all of it is in
	// the cluster's store. It does not say that any pod is under it.
	conditionAsWritten = "contiv.io/AsWritten"

	// The reasons of events and of the condition.
	reasonWritten      = "Kept"
	reasonNotAsWritten = "NotAsWritten" // kept, but for what cannot be had
	reasonNotWritten   = "NotKept"      // another state of it, or none, is in the store

	// allWell is what a condition says where nothing is wrong.
	allWell = "The cluster's store has it as it is written."

	kindPolicy = "ClusterNetworkPolicy"

	maxNote      = 1024  // of events.k8s.io/v1
	maxMessage   = 32768 // of a condition
	maxEventName = 200   // of what is kept of an object's name; names may have 253
)

func reason(o Outcome) string {
	switch {
	case o.Event != nil:
		return o.Event.Reason
	case o.Err != nil:
		return reasonNotWritten
	case len(o.Problems) > 0:
		return reasonNotAsWritten
	}
	return reasonWritten
}

// event writes the event of a trouble. Its name is made of the object and the trouble:
// who tells it again, another replica too, finds it there.
func (n *Reporter) event(ctx context.Context, o Outcome) error {
	text := outcomeText(o)
	sum := sha256.Sum256([]byte(string(o.Object.GetUID()) + "\n" + text))
	name := o.Object.GetName()
	name = strings.TrimRight(name[:min(len(name), maxEventName)], ".-") + "." + hex.EncodeToString(sum[:8])
	namespace := o.Object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where events of what has none belong
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		EventTime:  metav1.NowMicro(), ReportingController: controller, ReportingInstance: n.instance,
		Action: "Keep", Reason: reason(o), Type: corev1.EventTypeWarning, Note: shortened(text, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: o.Version, Kind: o.Kind, Namespace: o.Object.GetNamespace(), Name: o.Object.GetName(),
			UID: o.Object.GetUID(), ResourceVersion: o.Object.GetResourceVersion(),
		},
	}
	if o.Event != nil && !o.Event.Warning {
		e.Type = corev1.EventTypeNormal
	}
	return n.request(ctx, n.limit, func(ctx context.Context) error {
		return n.events.Post().Namespace(namespace).Resource("events").Body(e).Do(ctx).Error()
	})
}

// condition writes the condition of a ClusterNetworkPolicy, unless it is there. Others'
// conditions stay (server-side apply).
func (n *Reporter) condition(ctx context.Context, o Outcome) error {
	c := metav1.Condition{
		Type: conditionAsWritten, Status: metav1.ConditionTrue, Reason: reason(o), Message: shortened(cmp.Or(outcomeText(o), allWell), maxMessage),
		ObservedGeneration: o.Object.GetGeneration(), LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	if c.Reason != reasonWritten {
		c.Status = metav1.ConditionFalse
	}
	if p, ok := o.Object.(*policyv1beta1.ClusterNetworkPolicy); ok {
		if old := meta.FindStatusCondition(p.Status.Conditions, c.Type); old != nil {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && old.ObservedGeneration == c.ObservedGeneration {
				return nil
			}
		}
	}
	patch := func(ctx context.Context, version string) error {
		body, err := json.Marshal(map[string]any{
			"apiVersion": version, "kind": o.Kind,
			"metadata": map[string]any{"name": o.Object.GetName(), "uid": o.Object.GetUID()}, // of the one that is meant, none that was made since
			"status":   map[string]any{"conditions": []metav1.Condition{c}},
		})
		if err != nil {
			return err
		}
		return n.policies.Patch(types.ApplyPatchType).AbsPath("/apis", version).Resource("clusternetworkpolicies").Name(o.Object.GetName()).SubResource("status").
			Param("fieldManager", controller).Param("force", "true").Body(body).Do(ctx).Error()
	}
	return n.request(ctx, n.limit, func(ctx context.Context) error {
		err := patch(ctx, o.Version)
		if later := policyv1beta1.GroupVersion.String(); apierrors.IsNotFound(err) && o.Version != later { // it may be served in that alone by now
			err = patch(ctx, later)
		}
		return err
	})
}

// outdated reports whether a Service's status has not the addresses that it is to have.
func outdated(o Outcome) bool {
	s, ok := o.Object.(*corev1.Service)
	if !ok || o.Balanced == nil {
		return false
	}
	return !slices.EqualFunc(s.Status.LoadBalancer.Ingress, *o.Balanced, func(in corev1.LoadBalancerIngress, a netip.Addr) bool {
		return in.IP == a.String() && in.Hostname == ""
	})
}

// status writes the addresses of a Service's load balancer.
func (n *Reporter) status(ctx context.Context, o Outcome) error {
	ingress := []corev1.LoadBalancerIngress{}
	for _, a := range *o.Balanced {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.Object.GetUID()}, // of the one that is meant, none that was made since
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return err
	}
	return n.request(ctx, n.statuses, func(ctx context.Context) error {
		return n.core.Patch(types.MergePatchType).Resource("services").Namespace(o.Object.GetNamespace()).Name(o.Object.GetName()).SubResource("status").
			Param("fieldManager", controller).Body(body).Do(ctx).Error()
	})
}
