package testcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
)

// Each host has a cgroup of its own, to which its netplugin attaches programs, so that the
// machine's are left alone. It is a threaded one: threads of this process that do something
// on a host join it for that time.

// homeCgroup is where this process is in cgroup2; "" = the machine has none.
var homeCgroup = sync.OnceValues(func() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	root, err := hostservices.FindCgroup(mounts)
	if err != nil {
		return "", nil // then hosts lead their processes by rules
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(own)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(root, at), nil
		}
	}
	return "", nil
})

// cgroupOf is the cgroup of a namespace's processes; "" = none.
func cgroupOf(namespace string) (string, error) {
	home, err := homeCgroup()
	if home == "" || err != nil {
		return "", err
	}
	return filepath.Join(home, namespace), nil
}

// makeCgroup has the namespace's processes in a cgroup of their own.
func (n *Namespace) makeCgroup() error {
	dir, err := cgroupOf(n.Name)
	if dir == "" || err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("threaded"), 0); err != nil {
		return fmt.Errorf("make cgroup %s: %w", dir, err)
	}
	n.cgroup = dir
	return nil
}

// openCgroup is makeCgroup for a namespace that exists.
func (n *Namespace) openCgroup() error {
	dir, err := cgroupOf(n.Name)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); dir != "" && err == nil {
		n.cgroup = dir
	}
	return nil
}

// joinCgroup moves the calling thread, which is locked; leave moves it back, from whichever
// mount namespace. A thread that is about to end has to leave too: the first thread of a
// process does not end before the process does.
func (n *Namespace) joinCgroup() (leave func() error, err error) {
	if n.cgroup == "" {
		return func() error { return nil }, nil
	}
	home, err := homeCgroup()
	if err != nil {
		return nil, err
	}
	back, err := os.OpenFile(filepath.Join(home, "cgroup.threads"), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(n.cgroup, "cgroup.threads"), []byte("0"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("enter cgroup %s: %w", n.cgroup, err), back.Close())
	}
	return func() error {
		_, err := back.WriteString("0")
		if err = errors.Join(err, back.Close()); err != nil {
			return fmt.Errorf("leave cgroup %s: %w", n.cgroup, err)
		}
		return nil
	}, nil
}

// cgroupWait is how long processes that were killed may take to leave their cgroup, on a
// machine that has more to do.
const cgroupWait = 30 * time.Second

// removeCgroup takes a namespace's cgroup away; absent is fine.
func removeCgroup(namespace string) error {
	dir, err := cgroupOf(namespace)
	if dir == "" || err != nil {
		return err
	}
	for deadline := time.Now().Add(cgroupWait); ; <-time.After(5 * time.Millisecond) {
		err := os.Remove(dir)
		if errors.Is(err, unix.EBUSY) && time.Now().Before(deadline) {
			continue
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
}

// Cgroup is where the host's processes are in cgroup2; "" = in none of their own.
func (h *Host) Cgroup() string { return h.NS.cgroup }
