//go:build integration

package kube

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The controllers make a Deployment's pods and a namespace's service account; the
// scheduler says of pods that there is no node for them, and binds them when there is
// one; what is scaled down goes. The node is an object only: nothing runs the pods.
//
// 11 to 28 s on two busy cores, of which 4 s and more are the API server's start; the API
// server has 286 MB then, the controllers 130, the scheduler 105 (resident).
func TestPodsOfDeploymentsAreMadeAndBound(t *testing.T) {
	c, client := control(t)
	if err := c.Schedule(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const namespace, replicas = "shop", 3
	ok[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))
	until(t, "the namespace has its service account", func() bool {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	})

	count := int32(replicas)
	web := map[string]string{"app": "web"}
	deployments := client.AppsV1().Deployments(namespace)
	ok[*appsv1.Deployment](t)(deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: web},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}, metav1.CreateOptions{}))
	// pods counts the pods that are not being deleted and for which is holds.
	pods := func(is func(*corev1.Pod) bool) (n int) {
		list := ok[*corev1.PodList](t)(client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"}))
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && is(p) {
				n++
			}
		}
		return n
	}
	until(t, "the scheduler says that there is no node", func() bool {
		return pods(func(p *corev1.Pod) bool {
			for _, s := range p.Status.Conditions {
				if s.Type == corev1.PodScheduled && s.Reason == corev1.PodReasonUnschedulable {
					return true
				}
			}
			return false
		}) == replicas
	})

	room := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	now := metav1.Now()
	ok[*corev1.Node](t)(client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}},
		},
	}, metav1.CreateOptions{}))
	bound := func(p *corev1.Pod) bool { return p.Spec.NodeName == "n1" }
	until(t, "all pods are bound to the node", func() bool { return pods(bound) == replicas })

	// A patch, since the controller writes the object's status at any time.
	ok[*appsv1.Deployment](t)(deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{}))
	until(t, "one pod is left", func() bool { return pods(bound) == 1 })
}
