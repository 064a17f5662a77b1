//go:build integration

package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m, nil)) }

// build makes the packages of a version.
func build(t *testing.T, version string) (dir string) {
	t.Helper()
	testenv.Need(t)
	bin := os.Getenv("CONTIV_TEST_BIN")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "bin")
		if err := testcluster.Build(t.Context(), ".", bin); err != nil {
			t.Fatal(err)
		}
	}
	dir = t.TempDir()
	command(t, "../../tools/packages.sh", version, runtime.GOARCH, bin, dir)
	return dir
}

var blockRE = regexp.MustCompile("(?s)<!-- run: ([a-z ]+) -->\n```sh\n(.*?)```")

var tokenRE = regexp.MustCompile(`contiv-join-\S+`)

// page runs the blocks of docs/how-to/install.md with a mark, in a directory, and returns the
// token that the last one printed; with stands in for the page's.
func (m *machine) page(dir, mark, with string) (token string) {
	m.Helper()
	text, err := os.ReadFile("../../docs/how-to/install.md")
	if err != nil {
		m.Fatal(err)
	}
	n := 0
	for _, block := range blockRE.FindAllStringSubmatch(string(text), -1) {
		if block[1] == mark {
			out := m.run("cd " + dir + "\n" + strings.ReplaceAll(block[2], "contiv-join-...", with))
			m.Log(m.name, "\n", block[2], out)
			token = tokenRE.FindString(out)
			n++
		}
	}
	if n == 0 {
		m.Fatalf("install.md has no block %q", mark)
	}
	return token
}

// give copies packages that fit a pattern into a directory of the machine.
func (m *machine) give(from, to, pattern string) {
	m.Helper()
	files, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil || len(files) != 3 {
		m.Fatal(files, err)
	}
	m.run("mkdir -p " + to)
	for _, file := range files {
		command(m.T, "cp", file, "/proc/"+m.pid+"/root"+to)
	}
}

// files lists what is on the machine beyond what package managers and logs keep.
func (m *machine) files() string {
	return m.run(`
		find / -xdev -regextype egrep -regex '/(root|tmp|var/(log|cache|lib/(apt|dpkg|systemd)))' -prune -o ! -name '*-' -print | sort
		find /run /sys/fs/bpf -name '*contiv*' ! -path '/run/systemd/*'
		ip -brief link | cut -d' ' -f1
		cat /etc/passwd /etc/group`)
}

// reaches says what becomes of a connection to a port at which nothing listens: "refused"
// if policies let it through.
func (m *machine) reaches(netns, address string, port int) string {
	m.Helper()
	out, err := m.try(fmt.Sprintf("ip netns exec %s timeout 3 bash -c '</dev/tcp/%s/%d'", netns, address, port))
	switch {
	case err == nil:
		return "accepted"
	case strings.Contains(out, "refused"):
		return "refused"
	case out == "":
		return "no answer"
	}
	return out
}

// TestPackagesInstallUpgradeAndRemove installs, upgrades and removes the packages of both kinds.
func TestPackagesInstallUpgradeAndRemove(t *testing.T) {
	packages, upgrade := build(t, "2.0.0"), build(t, "2.0.1")
	t.Run("deb", func(t *testing.T) { deb(t, packages, upgrade) })
	t.Run("rpm", func(t *testing.T) { rpm(t, packages, upgrade) })
}

// deb follows docs/how-to/install.md from two bare machines to containers under a policy,
// through an upgrade, to machines on which nothing is left.
func deb(t *testing.T, packages, upgrade string) {
	t.Helper()
	machines := onLAN(t, "host", 2)
	for _, m := range machines {
		m.give(packages, "/root/packages", "*.deb")
		m.give(upgrade, "/root/upgrade", "*.deb")
	}
	one, two := machines[0], machines[1]
	before := []string{one.files(), two.files()}

	const unpack = "dpkg-deb --fsys-tarfile /root/packages/contiv-netctl_*.deb | tar -xO ./usr/bin/netctl >/root/netctl; chmod +x /root/netctl; "
	if out, err := one.try(unpack + "/root/netctl install"); err == nil || !strings.Contains(out, "netmaster is not installed") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a machine without packages is installed: %v %s", err, out)
	}
	one.page("/root/packages", "first machine", "")
	token := one.page("/root", "token", "")
	two.page("/root/packages", "second machine", token)
	one.run("netctl install --check; netctl install; netctl status")
	two.run("netctl install --check --token " + token)
	if out, err := two.try("netctl install"); err == nil || !strings.Contains(out, "/etc/contiv/netplugin.yaml has host: host2") && !strings.Contains(out, "netmaster is not installed") {
		t.Errorf("a host is made the first machine of another cluster: %v %s", err, out)
	}
	two.run("ip netns add web2 && netctl attach --netns /run/netns/web2 --label app=web --ip 10.100.0.12")
	for _, c := range []struct {
		m     *machine
		netns string
		port  int
		want  string
	}{{one, "web", 5432, "refused"}, {one, "web", 5433, "no answer"}, {two, "web2", 5432, "refused"}, {two, "web2", 5433, "no answer"}} {
		if got := c.m.reaches(c.netns, "10.100.0.2", c.port); got != c.want {
			t.Errorf("%s to port %d of db: %s, want %s", c.netns, c.port, got, c.want)
		}
	}

	ping := exec.CommandContext(t.Context(), "nsenter", "--target", one.pid, "--mount", "--net", "--pid", "ip", "netns", "exec", "db",
		"sh", "-c", "echo $$ >/run/ping.pid; exec ping -q -i 0.02 10.100.0.12")
	var said strings.Builder
	ping.Stdout, ping.Stderr = &said, &said
	if err := ping.Start(); err != nil {
		t.Fatal(err)
	}
	one.run("echo CONTIV_NETMASTER_LOG_LEVEL=debug >/etc/contiv/netmaster.env")
	two.run("echo 'NETPLUGIN_FLAGS=\"--log-level debug --vxlan-port 4789\"' >/etc/contiv/netplugin.env")
	for _, m := range machines {
		m.page("/root/upgrade", "upgrade", "")
		m.upgraded("dpkg-query -W contiv-netplugin")
	}
	one.run("kill -INT $(cat /run/ping.pid)")
	_ = ping.Wait() // what it says is judged
	if m := regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`).FindStringSubmatch(said.String()); m == nil || m[1] != m[2] {
		t.Errorf("traffic during the upgrade: %s", said.String())
	}

	for _, m := range machines {
		if out, err := m.try("apt-get purge -y contiv-netplugin"); err == nil || !strings.Contains(out, "attached on this host") {
			t.Errorf("%s is purged while containers are attached: %v %s", m.name, err, out)
		}
		m.until("goes on", func() error { _, err := m.try("systemctl is-active netplugin"); return err })
	}
	two.run("netctl detach --netns /run/netns/web2; ip netns del web2")
	two.page("/root", "remove", "")
	one.page("/root", "detach", "")
	one.page("/root", "remove", "")
	for i, m := range machines {
		if d := cmp.Diff(strings.Split(before[i], "\n"), strings.Split(m.files(), "\n")); d != "" {
			t.Errorf("a purge leaves on %s (-before +after):\n%s", m.name, d)
		}
		if tables := command(t, "nsenter", "--target", m.pid, "--net", "nft", "list", "tables"); strings.Contains(tables, "contiv") {
			t.Errorf("a purge leaves on %s: %s", m.name, tables)
		}
	}
}

// rpm compares the rpm packages with the deb packages, and has them installed, upgraded and
// removed by rpm on a Debian.
func rpm(t *testing.T, packages, upgrade string) {
	t.Helper()
	names := []string{"contiv-netmaster", "contiv-netplugin", "contiv-netctl"}
	for _, name := range names {
		want := contents(command(t, "dpkg-deb", "--contents", glob(t, packages, name+"_*.deb")))
		got := contents(command(t, "rpm", "--query", "--list", "--verbose", "--package", glob(t, packages, name+"-*.rpm")))
		const zsh = "/usr/share/zsh/"
		for _, files := range []map[string]string{want, got} {
			for file, mode := range files {
				if strings.HasPrefix(file, zsh) { // distributions differ
					delete(files, file)
					files[zsh] = mode
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-deb +rpm):\n%s", name, d)
		}
	}

	m := onLAN(t, "rpm", 1)[0]
	m.give(packages, "/root/packages", "*.rpm")
	m.give(upgrade, "/root/upgrade", "*.rpm")
	m.run(`
		rpm --install --nodeps /root/packages/*.rpm
		systemctl enable --now netmaster netplugin
		netctl --netmaster http://127.0.0.1:9999 network create --encap vxlan --subnet 10.100.0.0/24 default-net
		ip netns add web
		netctl attach --netns /run/netns/web
		rpm --upgrade --nodeps /root/upgrade/*.rpm`)
	m.upgraded("rpm --query contiv-netplugin")
	if out, err := m.try("rpm --erase contiv-netplugin"); err == nil || !strings.Contains(out, "attached on this host") {
		t.Errorf("it is removed while containers are attached: %v %s", err, out)
	}
	m.until("goes on", func() error { _, err := m.try("systemctl is-active netplugin"); return err })
	m.run("netctl detach --netns /run/netns/web; ip netns del web; rpm --erase " + strings.Join(names, " "))
	left := m.run(`
		find / -xdev ! -path '/root/*' ! -path '/var/lib/contiv/*' \( -name '*contiv*' -o -name '*netmaster*' -o -name '*netplugin*' -o -name '*netctl*' \)
		find /run /sys/fs/bpf -name '*contiv*' ! -path '/run/systemd/*'`)
	if left != "/var/lib/contiv\n" { // netmaster's state
		t.Errorf("rpm leaves\n%s", left)
	}
}

// upgraded waits until netplugin of the new version runs; query says which is installed.
func (m *machine) upgraded(query string) {
	m.Helper()
	m.until("runs the new version", func() error {
		out, err := m.try("systemctl is-active netplugin && ls -l /proc/$(systemctl show -P MainPID netplugin)/exe && " + query)
		if err == nil && (strings.Contains(out, "deleted") || !strings.Contains(out, "2.0.1")) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}

func glob(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files[0]
}

// contents returns the modes of files, by name, of lines as `ls -l` has them.
func contents(list string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if mode, file := words[0], words[len(words)-1]; mode[0] != 'd' {
			out[strings.TrimPrefix(file, ".")] = mode
		}
	}
	return out
}
