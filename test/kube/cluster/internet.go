package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// internet are the addresses of the Internet that Kubernetes' own tests ask, and their names.
const internet = `8.8.8.8 dns.google
2001:4860:4860::8888 dns.google
8.8.4.4 google.com
2001:4860:4860::8844 google.com
`

const resolver = "8.8.8.8" // among them: the cluster's DNS asks it for what it does not know

// internetDNS answers for names by UDP and TCP at each of the addresses, and by HTTP with its health.
const internetDNS = `.:53 {
	errors
	health :80
	hosts %s {
		fallthrough
	}
	template ANY ANY {
		rcode NXDOMAIN
	}
}
`

const internetScript = `set -e
echo 0 >/proc/sys/net/ipv6/conf/lo/disable_ipv6
while read -r address _; do ip address add "$address" dev lo; done <"$1"
`

// startInternet has the control plane's machine, at which nodes' way to elsewhere ends,
// answer for addresses of the Internet: nothing of these tests leads there.
func (n *Nodes) startInternet(ctx context.Context) error {
	hosts, corefile := filepath.Join(n.Control.dir, "internet.hosts"), filepath.Join(n.Control.dir, "internet.corefile")
	if err := write(hosts, []byte(internet)); err != nil {
		return err
	}
	if err := write(corefile, fmt.Appendf(nil, internetDNS, hosts)); err != nil {
		return err
	}
	if out, err := n.Lab.Master.Command(ctx, "/bin/sh", "-c", internetScript, "sh", hosts).CombinedOutput(); err != nil {
		return fmt.Errorf("give the control plane's machine addresses of the Internet: %w: %s", err, out)
	}
	p, err := start(n.Control.dir, "internet", n.Control.at.command(filepath.Join(filepath.Dir(os.Getenv(Program)), "coredns"), "-conf", corefile)...)
	if err != nil {
		return err
	}
	n.Control.others = append(n.Control.others, p)
	return testcluster.Until(ctx, "what answers for the Internet", func(ctx context.Context) error {
		c, err := n.Lab.Master.Dial(ctx, "tcp", net.JoinHostPort(resolver, "53"))
		if err != nil {
			return p.failed(err)
		}
		return c.Close()
	})
}
