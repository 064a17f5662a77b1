package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where iproute2 keeps named network namespaces, so that `ip netns
// exec` works on the lab's.
const netnsDir = "/run/netns"

// Namespace is a named network namespace.
type Namespace struct {
	Name string
	h    netns.NsHandle
	// machine is where processes of the namespace start besides; nil = where this one is.
	machine *machine
	cgroup  string // where processes and threads in it are in cgroup2; "" = where they were
}

// home is the network namespace of the process, opened once; threads return to it.
// It is the calling thread's, which must not be locked: the process's first thread may
// be in another one, of somebody who locked it.
var home = sync.OnceValues(func() (netns.NsHandle, error) {
	return netns.GetFromPath("/proc/thread-self/ns/net")
})

// Path returns the file that names the namespace, as CNI_NETNS wants it.
func (n *Namespace) Path() string { return filepath.Join(netnsDir, n.Name) }

// onThread runs fn on a locked thread, which goes back to the runtime only if fn says
// that it is in the home namespace again (clean); else it ends.
func onThread(fn func() (clean bool, err error)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		clean, err := fn()
		if clean {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Do runs fn with its thread inside the namespace. Sockets that fn opens stay
// in the namespace for their life; goroutines that fn starts do not enter it.
func (n *Namespace) Do(fn func() error) error {
	back, err := home()
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	return onThread(func() (bool, error) {
		if err := unix.Setns(int(n.h), unix.CLONE_NEWNET); err != nil {
			return true, fmt.Errorf("enter network namespace %s: %w", n.Name, err)
		}
		leave, err := n.joinCgroup()
		if err == nil {
			err = errors.Join(fn(), leave())
		}
		if e := unix.Setns(int(back), unix.CLONE_NEWNET); e != nil {
			return false, errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.Name, e))
		}
		return true, err
	})
}

// Dial connects from inside the namespace; the address's host must be an IP
// address. Its signature is net.Dialer.DialContext's, so that HTTP clients can
// use it.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	e := n.Do(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	if e != nil && c != nil {
		return nil, errors.Join(e, c.Close())
	}
	return c, e
}

// Command returns a command that Start, Run and CombinedOutput execute inside the
// namespace; exec.Cmd's own Output would not.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *Command {
	return &Command{Cmd: exec.CommandContext(ctx, name, args...), ns: n}
}

// Command is an exec.Cmd whose process starts inside a namespace.
type Command struct {
	*exec.Cmd
	ns *Namespace
}

// Start starts the process inside the namespace.
func (c *Command) Start() error {
	if c.ns.machine == nil {
		return c.ns.Do(c.Cmd.Start)
	}
	return onThread(func() (bool, error) { // which ends: it has left the others' file systems
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return false, err
		}
		if err := unix.Setns(int(c.ns.h), unix.CLONE_NEWNET); err != nil {
			return false, fmt.Errorf("enter network namespace %s: %w", c.ns.Name, err)
		}
		leave, err := c.ns.joinCgroup()
		if err != nil {
			return false, err
		}
		if err = c.ns.machine.enter(); err == nil {
			err = c.Cmd.Start()
		}
		return false, errors.Join(err, leave())
	})
}

// Run starts the process inside the namespace and waits for it.
func (c *Command) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// CombinedOutput runs the process and returns its output and error output; an
// error carries the command line and the last lines of the output.
func (c *Command) CombinedOutput() ([]byte, error) {
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s (in %s): %w\n%s", strings.Join(c.Args, " "), c.ns.Name, err, tail(out.String(), 20))
	}
	return []byte(out.String()), err
}

// shareNames makes the directory of names a mount of its own, as iproute2 does: if iproute2
// did so later, its mount would hide the earlier names, and they could not be removed. The
// lock is iproute2's too.
func shareNames() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // which unlocks
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", netnsDir, err)
	}
	return nil
}

// newNamespace makes a namespace, with its loopback up, and names it.
func newNamespace(name string) (*Namespace, error) {
	if err := shareNames(); err != nil {
		return nil, err
	}
	path := filepath.Join(netnsDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	back, err := home()
	if err != nil {
		return nil, err
	}
	n := &Namespace{Name: name}
	err = onThread(func() (bool, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return true, fmt.Errorf("unshare: %w", err)
		}
		self := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		err := unix.Mount(self, path, "none", unix.MS_BIND, "")
		if err == nil {
			n.h, err = netns.GetFromPath(path)
		}
		if err == nil {
			err = setUp("lo")
		}
		return unix.Setns(int(back), unix.CLONE_NEWNET) == nil, err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make network namespace %s: %w", name, err), removeNamespace(name))
	}
	return n, nil
}

// openNamespace opens a namespace that exists.
func openNamespace(name string) (*Namespace, error) {
	h, err := netns.GetFromPath(filepath.Join(netnsDir, name))
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	return &Namespace{Name: name, h: h}, nil
}

func (n *Namespace) close() {
	if n != nil && n.h.IsOpen() {
		_, _ = n.h.Close(), n.machine.close() // handles only
	}
}

// removeNamespace takes the name away; the kernel ends the namespace with its
// last process. Absent is fine.
func removeNamespace(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// namespacesWith lists named namespaces that begin with prefix.
func namespacesWith(prefix string) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// NamespaceAt opens a network namespace that others have made, by a file that is it,
// /proc/PID/ns/net for example. The caller calls Close.
func NamespaceAt(file string) (*Namespace, error) {
	h, err := netns.GetFromPath(file)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", file, err)
	}
	return &Namespace{Name: file, h: h}, nil
}

// Close ends the use of a namespace that NamespaceAt has opened.
func (n *Namespace) Close() { n.close() }
