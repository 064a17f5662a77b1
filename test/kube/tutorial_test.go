//go:build integration

package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/internal/testcluster/tutorial"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// TestTutorialsWorkAsWritten follows the tutorials on bare nodes, which have the image, and a host with a
// Docker engine. An image of the machine's busybox stands in for Docker Hub's.
func TestTutorialsWorkAsWritten(t *testing.T) {
	n, manifest := bareNodes(t, "kubetutorial", 1)
	hosts := n.Lab.Hosts()
	e, err := docker.New(hosts[2], docker.Isolated...)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close(t.Context())) })
	must(t, e.Start(t.Context()))
	must(t, e.Import(t.Context()))
	if out, err := e.Docker(t.Context(), "tag", docker.Image, "busybox"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var shells []*tutorial.Shell
	for _, h := range hosts {
		shells = append(shells, tutorial.NewShell(t, n.Lab, h, append(e.Env(), "DOCKER_HOST=unix://"+e.Socket(), "DOCKER_CONFIG="+filepath.Dir(e.Socket()))...))
	}
	s := shells[0]
	s.Run(t, fmt.Sprintf("kubectl() { '%s' kubectl --kubeconfig='%s' \"$@\"; }; mkdir contiv-kubernetes-2.0.0", os.Getenv(cluster.Program), n.Control.Kubeconfig))
	for _, name := range []string{"contiv.yaml", "uninstall.yaml"} {
		s.Run(t, fmt.Sprintf("cp '%s' contiv-kubernetes-2.0.0/", manifest(filepath.Join("../../packaging/kubernetes", name))))
	}
	tutorial.Follow(t, shells, "docs/tutorials/kubernetes.md", "docs/tutorials/one-policy.md")
}
