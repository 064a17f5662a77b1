package testcluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNamespacesAreRemovedBesideIproute: a namespace can be removed although iproute2 has made its
// first one of this boot later. The test runs itself again, with mounts of its own.
func TestNamespacesAreRemovedBesideIproute(t *testing.T) {
	const own = "CONTIV_TEST_OWN_MOUNTS"
	if os.Getenv(own) == "" {
		need(t)
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", os.Args[0], "-test.run", "^TestNamespacesAreRemovedBesideIproute$")
		cmd.Env = append(os.Environ(), own+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	n, err := newNamespace("first")
	if err != nil {
		t.Fatal(err)
	}
	n.close()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "netns", "add", "second").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"first", "second"} {
		if err := removeNamespace(name); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(netnsDir + "/" + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there after its removal: %v", name, err)
		}
	}
}
