package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
)

const inNamespace = "N_AGENT_TEST_IN_NAMESPACE"

// TestMain runs the tests in a network namespace of their own: they make veths,
// which must not meet the machine's network.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) == "" && os.Geteuid() == 0 {
		os.Exit(reexec())
	}
	if os.Getenv(inNamespace) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bring up lo:", err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(pluginDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

func reexec() int {
	c := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), inNamespace+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// needNamespaces skips a test that cannot make network namespaces here, unless
// CI says that it must.
func needNamespaces(t *testing.T) {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal("network namespaces need root")
	}
	t.Skip("network namespaces need root")
}
