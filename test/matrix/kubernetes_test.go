//go:build integration

package matrix

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// kube is an API server that a row's netmasters follow, from outside of the lab.
type kube struct {
	*cluster.Control
	client kubernetes.Interface
	end    func() error // of the netmasters' way there
}

func startKube(ctx context.Context, dir string) (*kube, error) {
	c, err := cluster.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	k := &kube{Control: c, end: func() error { return nil }}
	config, err := c.Config()
	if err == nil {
		config.QPS = -1
		k.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return k, nil
}

func (k *kube) close() error { return errors.Join(k.end(), k.Close()) }

// pods are attached as a kubelet does, each with its object in the API server.
type pods struct{ *plugin }

func (*pods) publishes() bool { return true }
func (*pods) named() bool     { return true }

func (p *pods) attach(ctx context.Context, w *workload) error {
	labels := map[string]string{"io.contiv.network": network, "io.contiv.net-group": w.group}
	maps.Copy(labels, w.labels)
	o, err := p.kube.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: w.host.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	w.uid = string(o.UID)
	return p.plugin.attach(ctx, w)
}

func (p *pods) detach(ctx context.Context, w *workload) error {
	now := int64(0)
	return errors.Join(p.plugin.detach(ctx, w), p.kube.client.CoreV1().Pods(namespace).Delete(ctx, w.name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// namespace is where pods are.
const namespace = "default"

// kubernetesPolicy lets groups of pods in to the servers.
func (b *bed) kubernetesPolicy(ctx context.Context, groups ...string) error {
	port := intstr.FromInt32(80)
	o := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}}
	o.Spec.PodSelector.MatchLabels = map[string]string{"role": servers}
	o.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	for _, g := range groups {
		o.Spec.Ingress = append(o.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": g}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		})
	}
	in := b.kube.client.NetworkingV1().NetworkPolicies(namespace)
	_, err := in.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		_, err = in.Update(ctx, o, metav1.UpdateOptions{})
	}
	return err
}
