package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// runner runs containers, and has them attached to the network.
type runner interface {
	// add returns when a container is attached, or takes away what it could not attach.
	add(ctx context.Context, s testcluster.ContainerSpec) error
	// del returns when a container is gone.
	del(ctx context.Context, s testcluster.ContainerSpec) error
	// at is the address of a container, and its network namespace until close.
	at(ctx context.Context, s testcluster.ContainerSpec) (netip.Addr, *testcluster.Namespace, error)
	// holds counts what the runtime itself has of the containers of a host.
	holds(ctx context.Context, h *testcluster.Host) (map[string]int, error)
	close() error
}

// byCNI attaches namespaces by CNI, as a container runtime does.
type byCNI struct{ l *testcluster.Lab }

func (c byCNI) add(ctx context.Context, s testcluster.ContainerSpec) error {
	_, err := c.l.AddContainer(ctx, s) // which deletes what it could not add
	return err
}

func (c byCNI) del(ctx context.Context, s testcluster.ContainerSpec) error {
	err := testcluster.Until(ctx, "DEL to succeed", func(ctx context.Context) error { return c.l.CNIDel(ctx, s) })
	return errors.Join(err, c.l.DropContainer(s.Name))
}

func (c byCNI) at(_ context.Context, s testcluster.ContainerSpec) (netip.Addr, *testcluster.Namespace, error) {
	a, err := c.l.Container(s.Name)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	ns, err := c.l.Space(s.Name)
	return a.IPv4, ns, err
}

func (byCNI) holds(context.Context, *testcluster.Host) (map[string]int, error) { return nil, nil }
func (byCNI) close() error                                                     { return nil }

// byDocker runs containers by a Docker Engine on each host, which lets them live when
// it ends (--live-restore).
type byDocker struct {
	engines map[string]*docker.Engine // by host
	network func(s testcluster.ContainerSpec) string
	opened  []*testcluster.Namespace
}

func (d *byDocker) add(ctx context.Context, s testcluster.ContainerSpec) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := d.engines[s.Host]
	_, err := e.Docker(ctx, "run", "-d", "--name", s.Name, "--network", d.network(s), docker.Image, "sleep", "1000000")
	if err != nil {
		_, _ = e.Docker(ctx, "rm", "-f", s.Name) // it may be away: the next try finds what is there
	}
	return err
}

func (d *byDocker) del(ctx context.Context, s testcluster.ContainerSpec) error {
	return testcluster.Until(ctx, "docker rm to succeed", func(ctx context.Context) error {
		out, err := d.engines[s.Host].Docker(ctx, "rm", "-f", s.Name)
		if strings.Contains(out, "No such container") {
			return nil
		}
		return err
	})
}

func (d *byDocker) at(ctx context.Context, s testcluster.ContainerSpec) (a netip.Addr, ns *testcluster.Namespace, err error) {
	e := d.engines[s.Host]
	text, err := e.Docker(ctx, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", s.Name)
	if err == nil {
		a, err = netip.ParseAddr(text)
	}
	if err == nil {
		ns, err = e.Space(ctx, s.Name)
	}
	if err == nil {
		d.opened = append(d.opened, ns)
	}
	return a, ns, err
}

func (d *byDocker) holds(ctx context.Context, h *testcluster.Host) (map[string]int, error) {
	ids, err := d.engines[h.Name].Docker(ctx, "ps", "-aq")
	return map[string]int{"containers of Docker": len(strings.Fields(ids))}, err
}

func (d *byDocker) close() (err error) {
	for _, ns := range d.opened {
		ns.Close()
	}
	for _, e := range d.engines {
		err = errors.Join(err, e.Close(context.Background())) // which has a time limit
	}
	return err
}

// byKubelet runs pods by the kubelets of a cluster's nodes.
type byKubelet struct {
	n      *cluster.Nodes
	leases string // directory of the stock plugin's addresses below a host's; empty = it is not used
	opened []*testcluster.Namespace
}

// add makes a pod and waits until it runs.
func (k *byKubelet) add(ctx context.Context, s testcluster.ContainerSpec) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := k.n.Client.CoreV1().Pods(metav1.NamespaceDefault)
	labels := map[string]string{}
	if s.Group != "" {
		labels[translate.LabelGroup] = s.Group
	}
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: s.Host, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"pause"}}},
		},
	}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		err = testcluster.Until(ctx, "pod "+s.Name+" to run", func(ctx context.Context) error {
			p, err := pods.Get(ctx, s.Name, metav1.GetOptions{})
			if err == nil && p.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", p.Status.Phase)
			}
			return err
		})
	}
	return err
}

// del deletes a pod and waits until its node has let go of it.
func (k *byKubelet) del(ctx context.Context, s testcluster.ContainerSpec) error {
	return testcluster.Until(ctx, "pod "+s.Name+" to be gone", func(ctx context.Context) error {
		err := k.n.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, s.Name, metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = errors.New("it is there")
		}
		return err
	})
}

func (k *byKubelet) at(ctx context.Context, s testcluster.ContainerSpec) (a netip.Addr, ns *testcluster.Namespace, err error) {
	p, err := k.n.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return a, nil, err
	}
	if a, err = netip.ParseAddr(p.Status.PodIP); err != nil {
		return a, nil, err
	}
	h, err := k.n.Lab.Host(s.Host)
	if err != nil {
		return a, nil, err
	}
	pid, err := k.process(ctx, h, s.Name)
	if err != nil {
		return a, nil, err
	}
	if ns, err = h.SpaceOf(pid); err == nil {
		k.opened = append(k.opened, ns)
	}
	return a, ns, err
}

// process is the number of a process of a pod, among its node's.
func (k *byKubelet) process(ctx context.Context, h *testcluster.Host, pod string) (string, error) {
	ids, err := k.ctr(ctx, h, "containers", "ls", "-q", fmt.Sprintf("labels.%q==%s", "io.kubernetes.pod.name", pod))
	if err != nil {
		return "", err
	}
	tasks, err := k.ctr(ctx, h, "tasks", "ls")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(tasks) { // TASK PID STATUS
		if f := strings.Fields(line); len(f) == 3 && f[2] == "RUNNING" && strings.Contains(ids, f[0]) {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("no process of pod %s runs: %s", pod, tasks)
}

func (k *byKubelet) ctr(ctx context.Context, h *testcluster.Host, args ...string) (string, error) {
	return h.Run(ctx, "ctr", append([]string{"--namespace=k8s.io"}, args...)...)
}

func (k *byKubelet) holds(ctx context.Context, h *testcluster.Host) (map[string]int, error) {
	ids, err := k.ctr(ctx, h, "containers", "ls", "-q")
	out := map[string]int{"containers of containerd": len(strings.Fields(ids))}
	if err != nil || k.leases == "" {
		return out, err
	}
	files, err := os.ReadDir(filepath.Join(h.Dir, k.leases))
	for _, f := range files {
		if _, err := netip.ParseAddr(f.Name()); err == nil { // others are its own
			out["addresses of host-local"]++
		}
	}
	return out, err
}

func (k *byKubelet) close() error {
	for _, ns := range k.opened {
		ns.Close()
	}
	return nil
}
