package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine is a host's part of the kernel besides its network: its mounts, its processes
// and its name, as a machine has its own.
type machine struct{ mounts, pids, names int }

// machineFlags are the namespaces that the first process of a machine begins.
const machineFlags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// initReady is the file in a host's directory by which Config.HostInit says that it is
// ready.
const initReady = "init-ready"

// isolate starts Config.HostInit, and has the host's later processes in its namespaces.
func (h *Host) isolate(ctx context.Context) error {
	env := []string{"HOST=" + h.Name, "DIR=" + h.Dir, "LAB=" + h.lab.st.Config.Name, "READY=" + filepath.Join(h.Dir, initReady)}
	p, err := h.lab.processes.launch(h.NS, h.Name+"-init", h.Dir, env, machineFlags, h.lab.st.Config.HostInit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.ready(ctx, "the first process of "+h.Name, func(context.Context) error {
		_, err := os.Stat(filepath.Join(h.Dir, initReady))
		return err
	}); err != nil {
		return err
	}
	return h.join(p)
}

// join has the host's later processes in the namespaces of its first process.
func (h *Host) join(first *Process) (err error) {
	m := &machine{mounts: -1, pids: -1, names: -1}
	for name, fd := range map[string]*int{"mnt": &m.mounts, "pid": &m.pids, "uts": &m.names} {
		if *fd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/%s", first.PID, name), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return errors.Join(fmt.Errorf("open the %s namespace of %s: %w", name, h.Name, err), m.close())
		}
	}
	h.NS.machine = m
	return nil
}

// enter moves the calling thread's mounts and name, and its children, into the machine.
// The thread must be locked, and share its root and its directory with no other.
func (m *machine) enter() error {
	if m == nil {
		return nil
	}
	if err := unix.Setns(m.mounts, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter a host's mounts: %w", err)
	}
	if err := unix.Setns(m.pids, unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("enter a host's processes: %w", err)
	}
	if err := unix.Setns(m.names, unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("enter a host's name: %w", err)
	}
	return nil
}

// homeMachine is the process's own; as with home, threads return to it, and it is
// opened before any has left.
var homeMachine = sync.OnceValues(func() (*machine, error) {
	m := &machine{}
	var err [3]error
	m.mounts, err[0] = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	m.pids, err[1] = unix.Open("/proc/thread-self/ns/pid_for_children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	m.names, err[2] = unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return m, errors.Join(err[:]...)
})

func (m *machine) close() (err error) {
	if m == nil {
		return nil
	}
	for _, fd := range []int{m.mounts, m.pids, m.names} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// Start starts a daemon inside the host.
func (h *Host) Start(name string, env []string, argv ...string) (*Process, error) {
	return h.lab.processes.start(h.NS, h.Name+"-"+name, h.Dir, env, argv...)
}

// Process returns a daemon of the host by its name; nil when it was never started.
func (h *Host) Process(name string) *Process { return h.process(name) }

// SpaceOf opens the network namespace of a process, by its number among the host's
// processes, which are its own by Config.HostInit. The caller calls Close.
func (h *Host) SpaceOf(pid string) (*Namespace, error) {
	root := ""
	if first := h.process("init"); first != nil {
		root = fmt.Sprintf("/proc/%d/root", first.PID)
	}
	return NamespaceAt(filepath.Join(root, "/proc", pid, "ns/net"))
}
