//go:build integration

package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/tutorial"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// TestTutorial follows the tutorial on bare nodes, which have the image.
func TestTutorial(t *testing.T) {
	n, manifest := bareNodes(t, "kubetutorial")
	s := tutorial.NewShell(t, n.Lab, n.Lab.Hosts()[0])
	s.Run(t, fmt.Sprintf("kubectl() { '%s' kubectl --kubeconfig='%s' \"$@\"; }; mkdir contiv-kubernetes-2.0.0", os.Getenv(cluster.Program), n.Control.Kubeconfig))
	for _, name := range []string{"contiv.yaml", "uninstall.yaml"} {
		s.Run(t, fmt.Sprintf("cp '%s' contiv-kubernetes-2.0.0/", manifest(filepath.Join("../../packaging/kubernetes", name))))
	}
	tutorial.Follow(t, []*tutorial.Shell{s}, "docs/tutorials/kubernetes.md")
}
