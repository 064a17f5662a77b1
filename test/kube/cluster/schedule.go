package cluster

import (
	"context"
	"os"
	"path/filepath"
)

// Schedule starts a controller manager and a scheduler beside the API server, each as
// the user that Kubernetes' own roles are for, and returns when both say that they are
// healthy. Then a Deployment gets pods, pods get nodes, and a namespace gets its service
// account; a node is whatever object says that it is one. It returns an error with the
// end of the log of what failed. It must be called once at most, after Start: both end at
// once when they find no roles, which the API server makes before it is ready.
func (c *Control) Schedule(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	file := func(name string) string { return filepath.Join(c.dir, name) }
	for _, d := range []struct {
		name  string
		flags []string
	}{
		{"kube-controller-manager", []string{
			"--use-service-account-credentials", // each controller has the rights of its own role only
			"--service-account-private-key-file=" + file("sa.key"), "--root-ca-file=" + file("ca.crt"),
		}},
		{"kube-scheduler", nil},
	} {
		config, err := c.user(d.name+".kubeconfig", "system:"+d.name)
		if err != nil {
			return err
		}
		port, err := c.at.freePort(ctx)
		if err != nil {
			return err
		}
		p, err := start(c.dir, d.name, append(c.at.command(
			os.Getenv(Program), d.name, "--kubeconfig="+config,
			"--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
			"--bind-address="+c.at.Address.String(), "--secure-port="+port, "--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"),
			"--leader-elect=false", // there is one of each
			"--kube-api-qps=200", "--kube-api-burst=400",
		), d.flags...)...)
		if err != nil {
			return err
		}
		c.others = append(c.others, p)
		if err := c.ready(ctx, p, port, "/healthz"); err != nil {
			return err
		}
	}
	return nil
}
