//go:build integration

package packages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// machine is a Debian with systemd as process 1, in namespaces of its own.
type machine struct {
	*testing.T
	name string
	pid  string
}

// boot makes process 1 of a machine of root $1 and control group $2. Settings of the kernel
// other than the network's are read-only, since they are the real machine's too.
const boot = `
echo 0 >"$2/cgroup.procs"
exec unshare --cgroup sh -ec '
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t proc proc mnt
mount --bind mnt/sys/net proc/sys/net
umount mnt
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t bpf bpf sys/fs/bpf
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
pivot_root . mnt
exec chroot . /bin/sh -ec "
umount -l /mnt
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio /sbin/init"
' sh "$1"
`

// start boots a machine.
func start(t *testing.T, name string) *machine {
	t.Helper()
	debian := os.Getenv("CONTIV_DEBIAN")
	if debian == "" {
		t.Fatal("CONTIV_DEBIAN must be an archive that tools/debian.sh has made, as in make test-packages")
	}
	root := filepath.Join(t.TempDir(), name)
	command(t, "mkdir", root)
	command(t, "tar", "-C", root, "-xf", debian)
	id := strings.ReplaceAll(uuid.NewString(), "-", "")
	for file, text := range map[string]string{"etc/machine-id": id, "etc/hostname": name, "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 " + name} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cgroups := strings.TrimSpace(command(t, "findmnt", "--noheadings", "--first-only", "--output", "TARGET", "--types", "cgroup2"))
	group := filepath.Join(cgroups, fmt.Sprintf("contiv-packages-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := exec.CommandContext(context.Background(), "sh", "-ec", boot, "sh", root, group) // until the cleanup
	c.Stdout, c.Stderr = &log, &log
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // the rest of its namespace with it
		_ = c.Wait()
		var groups []string
		_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		for _, path := range slices.Backward(groups) {
			if err := os.Remove(path); err != nil {
				t.Errorf("remove the machine's control group: %v", err)
			}
		}
	})
	m := &machine{t, name, strconv.Itoa(c.Process.Pid)}
	m.until("is booted", func() error {
		out, err := m.try("systemctl is-system-running || true")
		if state := strings.TrimSpace(out); err == nil && state != "running" && state != "degraded" {
			err = fmt.Errorf("%s: %s", state, log.String())
		}
		return err
	})
	return m
}

// onLAN boots machines NAME1, NAME2 and so on, with the addresses 10.0.0.1, 10.0.0.2 and so
// on at one switch.
func onLAN(t *testing.T, name string, n int) (machines []*machine) {
	t.Helper()
	lan := name + "-lan"
	command(t, "ip", "link", "add", lan, "up", "type", "bridge")
	for i := 1; i <= n; i++ {
		m := start(t, fmt.Sprintf("%s%d", name, i))
		command(t, "ip", "link", "add", m.name, "up", "master", lan, "type", "veth", "peer", "eth0", "netns", m.pid)
		m.run(fmt.Sprintf("ip link set eth0 up; ip addr add 10.0.0.%d/24 dev eth0; ip route add default via 10.0.0.254", i))
		machines = append(machines, m)
	}
	return machines
}

// try runs lines of a shell in the machine.
func (m *machine) try(script string) (string, error) {
	c := exec.CommandContext(m.Context(), "nsenter", "--target", m.pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
		"env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "bash", "-ec", script)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("on %s: %s: %w\n%s", m.name, script, err, out)
	}
	return string(out), err
}

// run is try of what has to succeed.
func (m *machine) run(script string) string {
	m.Helper()
	out, err := m.try(script)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// until waits for a state of the machine.
func (m *machine) until(what string, check func() error) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 2*time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, m.name+" "+what, func(context.Context) error { return check() }); err != nil {
		m.Fatal(err)
	}
}

// command runs a program beside the machines.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
