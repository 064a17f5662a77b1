//go:build integration

package slice

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/tutorial"
)

// TestInstallationOfReadmeWorks runs the README's installation, on programs that are built.
func TestInstallationOfReadmeWorks(t *testing.T) {
	shared(t)
	onOne(t, both, func(t *testing.T, driver string) {
		shells := follow(t, driver, "readme", 1, "README.md")
		shells[0].Run(t, `until [ "$(bin/netctl host ls -q)" ] && bin/netctl status; do sleep 1; done`)
	})
}

// TestTutorialsWorkAsWritten runs the tutorials as a reader would, and the guide to a secure cluster.
func TestTutorialsWorkAsWritten(t *testing.T) {
	for name, of := range map[string]struct {
		machines int
		pages    []string
	}{
		"first":  {1, []string{"docs/tutorials/first-cluster.md", "docs/tutorials/denied-connection.md"}},
		"two":    {2, []string{"docs/tutorials/two-machines.md"}},
		"secure": {2, []string{"docs/tutorials/secure-cluster.md"}},
		"lost":   {3, []string{"docs/tutorials/three-machines.md"}},
		"three":  {3, []string{"docs/how-to/secure.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			shared(t)
			onOne(t, both, func(t *testing.T, driver string) { follow(t, driver, "t"+name, of.machines, of.pages...) })
		})
	}
}

// follow runs pages on bare machines. A machine has one address for everything: with Open
// vSwitch's userspace datapath netplugin talks to netmaster and etcd through its own switch.
func follow(t *testing.T, driver, name string, machines int, pages ...string) []*tutorial.Shell {
	t.Helper()
	c := up(t, driver, name, machines, func(cfg *testcluster.Config) { cfg.Bare = true })
	var shells []*tutorial.Shell
	for _, h := range c.Hosts() {
		shells = append(shells, tutorial.NewShell(t, c.Lab, h))
	}
	tutorial.Follow(t, shells, pages...)
	return shells
}
