package testenv

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

// inside is set in the environment of the process that runs in the namespace.
const inside = "CONTIV_TEST_IN_NAMESPACE"

// Run runs a package's tests as root in a network namespace of their own whose loopback
// interface is up, and in a mount namespace of their own. Then it runs clean (nil =
// nothing) and returns the exit code for TestMain. A goroutine that outlives the tests is a
// failure, unless ignore names it.
func Run(m *testing.M, clean func() error, ignore ...goleak.Option) int {
	if os.Getenv(inside) == "" && os.Geteuid() == 0 {
		return reexec()
	}
	if os.Getenv(inside) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return failed(fmt.Errorf("bring up lo: %w", err))
		}
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return failed(fmt.Errorf("keep mounts to the tests: %w", err))
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(ignore...); err != nil {
			code = failed(err)
		}
	}
	if clean != nil {
		if err := clean(); err != nil {
			return failed(err)
		}
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func reexec() int {
	c := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		return failed(err)
	}
	return 0
}

// SkipShort skips a test that needs a kernel, a server or a whole program when only -short
// tests run: `make check` answers while one waits.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not among the -short tests")
	}
}

// Need skips a test outside such a namespace, unless CI says that it must run, and among
// -short tests.
func Need(t testing.TB) {
	t.Helper()
	SkipShort(t)
	if os.Getenv(inside) != "" {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal("network namespaces need root")
	}
	t.Skip("network namespaces need root")
}
