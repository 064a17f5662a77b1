package main

import (
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestEnvironmentLeadsToTheHostsNetplugin: a CNI call by hand on a host reaches that host's
// netplugin, and is spooled where that one looks, not on the machine.
func TestEnvironmentLeadsToTheHostsNetplugin(t *testing.T) {
	h := &testcluster.Host{Node: &testcluster.Node{Name: "h1", Dir: "/lab/h1"}}
	env := hostEnvironment(h)
	for _, want := range []string{cni.EnvSocket + "=/lab/h1/cni.sock", cni.EnvStateDir + "=/lab/h1/state"} {
		if !slices.Contains(env, want) {
			t.Errorf("%v lacks %s", env, want)
		}
	}
}
