package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// followed is a lab whose netmaster follows an API server, which is in the namespace of
// netmaster beside it. No kubelet is there: pods are objects that somebody attaches.
type followed struct {
	lab    *testcluster.Lab
	client *kubernetes.Clientset
}

// follow builds one with two hosts, whose pods are on default-net: native, as --pod-cidr
// makes it, where the data plane can.
func (b *bench) follow(ctx context.Context, name, driver string) (*followed, error) {
	dir, err := b.tempDir()
	if err != nil {
		return nil, err
	}
	args := []string{"--kubeconfig", filepath.Join(dir, "kubeconfig")}
	if driver == testcluster.DriverEBPF {
		args = append(args, "--pod-cidr", cluster.PodCIDR)
	}
	l, err := b.lab(ctx, testcluster.Config{Name: name, Hosts: 2, Driver: driver, Bare: true, MasterArgs: args})
	if err != nil {
		return nil, err
	}
	c, client, err := cluster.Beside(ctx, l, dir)
	if err != nil {
		return nil, err
	}
	b.OnClose(c.Close)
	f := &followed{l, client}
	if err := errors.Join(l.Store.StartEtcd(ctx), l.Masters.StartMaster(ctx)); err != nil {
		return nil, err
	}
	if driver != testcluster.DriverEBPF {
		if out, err := l.Masters.Netctl(ctx, "network", "create", "-e", "vxlan", "-s", cluster.PodCIDR, "default-net"); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	g, starting := errgroup.WithContext(ctx)
	for _, h := range l.Hosts() {
		g.Go(func() error { return h.StartAgent(starting) })
	}
	return f, g.Wait()
}

// namespace makes a namespace of Kubernetes, with the account that pods have there.
func (f *followed) namespace(ctx context.Context, name string) error {
	_, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = f.client.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	}
	return err
}

// pod makes a pod's object, and says how its runtime attaches it on a host.
func (f *followed) pod(ctx context.Context, namespace, name, host string, labels map[string]string) (testcluster.ContainerSpec, error) {
	p, err := f.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: host, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return testcluster.ContainerSpec{}, err
	}
	return testcluster.ContainerSpec{Name: name, Host: host, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", string(p.UID)},
	}}, nil
}

// drivers are the data planes that a section is run on, one after the other.
func (b *bench) drivers() []string {
	if b.given {
		return strings.Split(b.driver, ",")
	}
	return []string{testcluster.DriverEBPF, testcluster.DriverOVS}
}

// tempDir makes a directory that goes away at the section's end.
func (b *bench) tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "contiv-bench-")
	if err == nil {
		b.OnClose(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}
