package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// groups is what the demo tells netmaster: a policy without rules decides nothing, and
// leaves all to Kubernetes' policies.
var groups = []string{
	"group create default-net web",
	"policy create to-db",
	"group create -p to-db default-net db",
}

// opened lets a group in: pods, Docker containers and processes alike.
const opened = "policy rule-add -d in -p 10 -l tcp -P 80 -g web -j allow to-db web"

// pods are made in namespace shop and answer at TCP port 80; a service db leads to the
// pod of that name.
const pods = `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  selector: {app: db}
  ports: [{port: 80}]
` + podDB + podWeb + podOther

const (
	podDB    = "---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db, io.contiv.net-group: db}}, spec: {nodeSelector: {kubernetes.io/hostname: h2}, ` + serves + "\n"
	podWeb   = "---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web, io.contiv.net-group: web}}, spec: {nodeSelector: {kubernetes.io/hostname: h1}, ` + serves + "\n"
	podOther = "---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: shop, labels: {app: other}}, spec: {nodeSelector: {kubernetes.io/hostname: h1}, ` + serves + "\n"
	serves   = `terminationGracePeriodSeconds: 1, containers: [{name: c, image: "` + cluster.Agnhost + `", imagePullPolicy: Never, args: [netexec, --http-port=80]}]}}`
)

// closed denies all connections to pods of the namespace.
const closed = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress]}}`

// webPolicy lets pods reach the pod web by their labels.
const webPolicy = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: to-web, namespace: shop},
  spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}}`

// The askers, and what each is.
var askers = [][2]string{
	{"web", "pod on h1, group web"},
	{"other", "pod on h1, no group at first"},
	{"box", "Docker container on h1, group web"},
	{"stray", "Docker container on h1, no group"},
	{"job", "process on h2, group web"},
}

// ask is one line of a table: who reaches the pod db, its service, and the pod web.
type ask map[string][3]bool

var targets = [3]string{"pod db", "service db", "pod web"}

func all(answer bool) ask {
	out := ask{}
	for _, a := range askers {
		out[a[0]] = [3]bool{answer, answer, answer}
	}
	return out
}

// let says in a table that who reaches the targets of these numbers.
func (a ask) let(who string, reached ...int) ask {
	row := a[who]
	for _, i := range reached {
		row[i] = true
	}
	a[who] = row
	return a
}

func (d *demo) show(ctx context.Context) error {
	fmt.Println("\nTelling netmaster two groups, and Kubernetes three pods with their labels, and a service:")
	if err := d.netctl(ctx, groups...); err != nil {
		return err
	}
	if err := d.makePods(ctx); err != nil {
		return err
	}
	fmt.Println("\nBeside them two Docker containers, and a process with a network namespace of its own:")
	if err := d.makeOthers(ctx); err != nil {
		return err
	}
	fmt.Println("\nWho reaches whom at TCP port 80, without any policy:")
	if err := d.table(ctx, all(true)); err != nil {
		return err
	}
	fmt.Println("\nA NetworkPolicy closes all pods of the namespace:")
	if err := d.apply(ctx, closed); err != nil {
		return err
	}
	if err := d.table(ctx, all(false)); err != nil {
		return err
	}
	fmt.Println("\nA rule lets the group web reach the group db, whoever is in it; a NetworkPolicy lets the pod other reach the pod web:")
	if err := d.netctl(ctx, opened); err != nil {
		return err
	}
	if err := d.apply(ctx, webPolicy); err != nil {
		return err
	}
	after := all(false).let("web", 0, 1).let("box", 0, 1).let("job", 0, 1).let("other", 2)
	if err := d.table(ctx, after); err != nil {
		return err
	}
	fmt.Println("\nThe pod other comes into the group web, while it runs:")
	if err := d.kubectl(ctx, "label pod -n shop other io.contiv.net-group=web"); err != nil {
		return err
	}
	if err := d.table(ctx, after.let("other", 0, 1)); err != nil {
		return err
	}
	return d.showGuest(ctx)
}

func (d *demo) netctl(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		fmt.Println("  $ netctl " + line)
		if out, err := d.n.Lab.Masters.Netctl(ctx, strings.Fields(line)...); err != nil {
			return fmt.Errorf("netctl %s: %w: %s", line, err, out)
		}
	}
	return nil
}

func (d *demo) kubectl(ctx context.Context, line string) error {
	fmt.Println("  $ kubectl " + line)
	if out, err := d.n.Kubectl(ctx, strings.Fields(line)...); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", line, err, out)
	}
	return nil
}

// apply has Kubernetes take an object, and prints it.
func (d *demo) apply(ctx context.Context, objects string) error {
	for line := range strings.Lines(strings.Trim(objects, "\n")) {
		fmt.Print("  | ", line)
	}
	fmt.Println()
	file := filepath.Join(filepath.Dir(d.n.Control.Kubeconfig), "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		return err
	}
	if out, err := d.n.Kubectl(ctx, "apply", "-f", file); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// makeNamespace makes a namespace, in which pods may be made then.
func (d *demo) makeNamespace(ctx context.Context, name string) error {
	if err := d.kubectl(ctx, "create namespace "+name); err != nil {
		return err
	}
	return until(ctx, "the namespace to have its service account", func(ctx context.Context) error {
		_, err := d.n.Kubectl(ctx, "get", "serviceaccount", "-n", name, "default")
		return err
	})
}

// makePods makes the pods, which have addresses then.
func (d *demo) makePods(ctx context.Context) error {
	if err := d.makeNamespace(ctx, "shop"); err != nil {
		return err
	}
	if err := d.apply(ctx, pods); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "wait pod -n shop --all --for=condition=Ready --timeout=120s"); err != nil {
		return err
	}
	d.address = map[string]string{}
	for target, args := range map[string]string{
		targets[0]: "pod db -o jsonpath={.status.podIP}", targets[1]: "service db -o jsonpath={.spec.clusterIP}", targets[2]: "pod web -o jsonpath={.status.podIP}",
	} {
		out, err := d.n.Kubectl(ctx, append([]string{"get", "-n", "shop"}, strings.Fields(args)...)...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		d.address[target] = out
	}
	return nil
}

// makeOthers starts what is no pod.
func (d *demo) makeOthers(ctx context.Context) error {
	networks := func(ctx context.Context) error {
		out, err := d.engine.Docker(ctx, "network", "inspect", "web", "default-net", "-f", "{{.Name}}")
		if err != nil {
			return errors.New(out)
		}
		return nil
	}
	if err := until(ctx, "groups to be networks of Docker", networks); err != nil {
		return err
	}
	for _, c := range [][2]string{{"box", "web"}, {"stray", "default-net"}} {
		args := []string{"run", "-d", "--name", c[0], "--net", c[1], docker.Image, "sleep", "1000000"}
		fmt.Println("  h1$ docker " + strings.Join(args, " "))
		if out, err := d.engine.Docker(ctx, args...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	h := d.n.Lab.Hosts()[1]
	for _, line := range []string{"ip netns add job", filepath.Join(d.bin, "netctl") + " attach --socket " + h.CNISocket() + " --netns /run/netns/job --group web"} {
		f := strings.Fields(line)
		fmt.Println("  h2$ " + strings.Join(append([]string{filepath.Base(f[0])}, f[1:]...), " "))
		if out, err := h.Run(ctx, f[0], f[1:]...); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// reaches reports whether a connection to TCP port 80 of an address begins within a second.
func (d *demo) reaches(ctx context.Context, who, address string) bool {
	var err error
	knock := []string{"nc", "-w", "1", address, "80"}
	switch {
	case who == "job":
		_, err = d.n.Lab.Hosts()[1].Run(ctx, "ip", append([]string{"netns", "exec", who, "/bin/busybox"}, knock...)...)
	case slices.Contains([]string{"box", "stray"}, who):
		_, err = d.engine.Docker(ctx, append([]string{"exec", who}, knock...)...)
	default:
		_, err = d.n.Kubectl(ctx, "exec", "-n", "shop", who, "--", "/agnhost", "connect", address+":80", "--timeout=1s")
	}
	return err == nil
}

var words = map[bool]string{true: "yes", false: "no"}

// table asks all and prints what was seen, which the intent says after a second at most;
// a busy machine has longer to say so.
func (d *demo) table(ctx context.Context, want ask) error {
	fmt.Printf("\n  %-7s %-34s", "from", "")
	for _, t := range targets {
		fmt.Printf(" %-22s", t+" "+d.address[t])
	}
	fmt.Println()
	for _, a := range askers {
		fmt.Printf("  %-7s %-34s", a[0], a[1])
		for i, t := range targets {
			if a[0] == "web" && t == "pod web" {
				fmt.Printf(" %-22s", "itself")
				continue
			}
			err := until(ctx, a[0]+" to "+t, func(ctx context.Context) error {
				if got := d.reaches(ctx, a[0], d.address[t]); got != want[a[0]][i] {
					return fmt.Errorf("seen is %s, and the intent says %s", words[got], words[want[a[0]][i]])
				}
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Printf(" %-22s", words[want[a[0]][i]])
		}
		fmt.Println()
	}
	return nil
}

func until(ctx context.Context, what string, is func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testcluster.Until(ctx, what, is)
}
