package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Address6 is the IPv6 address of the machine that has an IPv4 address, where there are both.
func Address6(a netip.Addr) netip.Addr {
	b := netip.MustParseAddr("fd00:250::").As16()
	b[15] = a.As4()[3]
	return netip.AddrFrom16(b)
}

// addresses are those of a host, as kubelets take them.
func (n *Nodes) addresses(h *testcluster.Host) string {
	if n.cfg.Dual {
		return h.Address.String() + "," + Address6(h.Address).String()
	}
	return h.Address.String()
}

// Outside adds a machine to the nodes' link that is no node, numbered as
// testcluster.Lab.JoinUnderlay says, with addresses of the cluster's families.
func (n *Nodes) Outside(ctx context.Context, name string, number int) (*testcluster.Namespace, netip.Addr, error) {
	ns, err := n.Lab.AddNamespace(name)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	a, err := n.Lab.Network.JoinUnderlay(ns, number)
	if err == nil && n.cfg.Dual {
		_, err = ns.Command(ctx, "ip", "address", "add", Address6(a).String()+"/64", "dev", "eth0", "nodad").CombinedOutput()
	}
	return ns, a, err
}

// leadScript gives the link with the address $1 the addresses $2 and $5, and leads to $3 and
// $4 what no other route leads.
const leadScript = `set -e
link=$(ip -o -4 address show to "$1" | { read -r _ link _; echo "$link"; })
echo 0 >"/proc/sys/net/ipv6/conf/$link/disable_ipv6"
ip address add "$2/64" dev "$link" nodad
ip address add "$5" dev "$link"
[ "$1" = "$3" ] || { ip route replace default via "$3"; ip -6 route replace default via "$4"; }
`

// lead gives the machines of a cluster with both families IPv6 addresses and such as load
// balancers have, nodes a way to what is on none of their links, as nodes have one, which
// ends at the control plane's machine, and that one a way to pods, by the first node.
func (n *Nodes) lead(ctx context.Context) error {
	if !n.cfg.Dual {
		return nil
	}
	run := func(space *testcluster.Namespace, a netip.Addr) error {
		router := n.Lab.Masters.MasterAddress()
		out, err := space.Command(ctx, "/bin/sh", "-c", leadScript, "sh", a.String(), Address6(a).String(), router.String(), Address6(router).String(), beyond(a).String()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("give %s more addresses: %w: %s", a, err, out)
		}
		return nil
	}
	err := run(n.Lab.Master, n.Lab.Masters.MasterAddress())
	for _, h := range n.Lab.Hosts() {
		if err == nil {
			err = run(h.NS, h.Address)
		}
	}
	if err != nil || len(n.Lab.Hosts()) == 0 {
		return err
	}
	// The API server asks pods.
	first := n.Lab.Hosts()[0].Address
	for _, to := range []string{PodCIDR, podCIDR6} {
		by := first
		if netip.MustParsePrefix(to).Addr().Is6() {
			by = Address6(first)
		}
		if out, err := n.Lab.Master.Command(ctx, "ip", "route", "replace", to, "via", by.String()).CombinedOutput(); err != nil {
			return fmt.Errorf("lead %s to a node: %w: %s", to, err, out)
		}
	}
	return nil
}

//go:embed dns.yaml
var dnsManifest string

// buildDNS builds CoreDNS beside Kubernetes, where tools/kube.sh -nodes has left it out.
func buildDNS(ctx context.Context) error {
	program := filepath.Join(filepath.Dir(os.Getenv(Program)), "coredns")
	if _, err := os.Stat(program); err == nil {
		return nil
	}
	root, err := testcluster.Root(ctx, ".")
	if err != nil {
		return err
	}
	made := fmt.Sprintf("%s.%d", program, os.Getpid()) // whole or not at all
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "test/kube/coredns"), "build", "-trimpath", "-ldflags", "-s -w", "-o", made, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly -buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build CoreDNS: %w: %s", err, out)
	}
	return os.Rename(made, program)
}

// startDNS starts the cluster's DNS and returns when it answers.
func (n *Nodes) startDNS(ctx context.Context) error {
	file := filepath.Join(n.Control.dir, "dns.yaml")
	manifest := strings.ReplaceAll(dnsManifest, "IMAGE", Agnhost)
	if n.cfg.Internet {
		const cache = "        cache 30\n"
		manifest = strings.ReplaceAll(manifest, cache, "        forward . "+resolver+"\n"+cache)
	}
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	if out, err := n.Kubectl(ctx, "apply", "-f", file); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return testcluster.Until(ctx, "the cluster's DNS", func(ctx context.Context) error {
		var d *appsv1.Deployment
		d, err := n.Client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas < *d.Spec.Replicas {
			out, _ := n.Kubectl(ctx, "-n", "kube-system", "describe", "pods", "-l", "k8s-app=kube-dns")
			err = fmt.Errorf("%d of %d pods are ready: %s", d.Status.ReadyReplicas, *d.Spec.Replicas, out)
		}
		return err
	})
}
