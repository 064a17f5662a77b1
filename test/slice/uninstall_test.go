//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestUninstallLeavesTheHostAsBefore: netplugin --uninstall refuses while netplugin runs and while a
// container is attached, says what it removed, and can be repeated; the host is
// as before the first netplugin then, and again when another has come and gone.
func TestUninstallLeavesTheHostAsBefore(t *testing.T) {
	shared(t)
	onOne(t, both, uninstall)
}

func uninstall(t *testing.T, driver string) {
	plugins := t.TempDir()
	c := up(t, driver, "uninstall", 1, func(cfg *testcluster.Config) {
		cfg.Bare, cfg.AgentArgs = true, []string{"--mode", "docker", "--docker-socket-dir", plugins, "--docker-endpoint", "none"}
	})
	h := c.host("h1")
	if out, err := h.Run(t.Context(), "sysctl", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil { // which stays, and much follows from it
		t.Fatal(err, out)
	}
	for _, rule := range []string{"-P FORWARD DROP", "-N DOCKER-USER", "-A DOCKER-USER -j RETURN", "-A FORWARD -j DOCKER-USER"} {
		for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
			if out, err := h.Run(t.Context(), program, strings.Fields(rule)...); err != nil {
				t.Fatal(err, out)
			}
		}
	}
	virgin := traced(t, h, plugins)
	if err := errors.Join(c.Store.StartEtcd(t.Context()), c.Masters.StartMaster(t.Context()), h.StartAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	run := func(want string, flags ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := h.LaunchAgentWith(append([]string{"--uninstall"}, flags...))
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Wait(ctx) // what it said tells more
		said := p.Tail(20)
		if !strings.Contains(said, want) {
			t.Errorf("netplugin --uninstall %s said\n%s\nwant %q", strings.Join(flags, " "), said, want)
		}
		return said
	}
	agent := h.Agent()
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --gateway 10.1.1.254 --subnetv6 2001:db8:1::/64 net",
		"network create -t blue -e vlan -s 10.1.2.0/24 vnet",
	)
	c.add(spec("a", "h1", "blue/net"), spec("b", "h1", "blue/vnet"))
	c.until("h1 to be as it should be", func(ctx context.Context) error {
		text, good, err := h.Healthz(ctx)
		if err == nil && !good {
			err = errors.New(text)
		}
		return err
	})
	run("a netplugin runs")
	if driver == testcluster.DriverEBPF { // without the flags that it runs with
		strange := t.TempDir()
		running := traced(t, h, plugins)
		run("another netplugin uses the pin directory", "--force", "--state-dir", strange, "--cni-socket", filepath.Join(strange, "cni.sock"), "--docker-socket-dir", strange)
		if diff := cmp.Diff(running, traced(t, h, plugins)); diff != "" {
			t.Errorf("--uninstall beside a netplugin that runs has changed (-before +after):\n%s", diff)
		}
	}
	if !agent.Alive() {
		t.Error("the netplugin that ran has ended")
	}
	stop := func(p *testcluster.Process) {
		t.Helper()
		if err := p.Stop(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	stop(agent)
	for _, half := range []string{".store.json.new-1", ".new-2"} { // as a kill leaves them
		if err := os.WriteFile(filepath.Join(h.StateDir(), half), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := traced(t, h, plugins)
	for what, text := range before { // a trace that netplugin has not left cannot be missed later
		if text == virgin[what] && slices.Contains(marked[driver], what) {
			t.Errorf("netplugin has left no trace in %s: this test shows nothing of them", what)
		}
	}
	run("containers are attached")
	if diff := cmp.Diff(before, traced(t, h, plugins)); diff != "" {
		t.Errorf("a refused --uninstall has changed (-before +after):\n%s", diff)
	}
	c.refusesNewer(h)
	if diff := cmp.Diff(before, traced(t, h, plugins)); diff != "" {
		t.Errorf("a netplugin that found what a newer one has left has changed (-before +after):\n%s", diff)
	}
	if said := run("netctl host rm h1", "--force"); !strings.Contains(said, "removed the interfaces of 2 containers") {
		t.Errorf("it said\n%s", said)
	}
	same := func(when string) {
		t.Helper()
		now := traced(t, h, plugins)
		if diff := cmp.Diff(virgin, now); diff != "" {
			t.Errorf("%s the host is not as before the first netplugin (-before +now):\n%s", when, diff)
		}
	}
	same("after --uninstall")
	run("nothing of netplugin's was on this host")

	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(h.Agent())
	run("netctl host rm h1")
	same("after another netplugin has come and gone")
}

// refusesNewer starts a netplugin where the store says that a newer one has run:
// it ends by itself, with a sentence.
func (c *cluster) refusesNewer(h *testcluster.Host) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	etcd, err := c.Store.Etcd(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer etcd.Close()
	key := tables.Hosts.Key(model.HostName(h.Name))
	got, err := etcd.Get(ctx, key)
	if err != nil || len(got.Kvs) != 1 {
		c.t.Fatal(got, err)
	}
	record := string(got.Kvs[0].Value)
	newer := strings.Replace(record, `"format":1`, `"format":2`, 1)
	if newer == record {
		c.t.Fatalf("the host's record has no format: %s", record)
	}
	if _, err := etcd.Put(ctx, key, newer); err != nil {
		c.t.Fatal(err)
	}
	p, err := h.LaunchAgent()
	if err == nil {
		err = p.Wait(ctx)
	}
	if said := p.Tail(1); err != nil || !strings.Contains(said, `netplugin: host "h1" was run by a newer netplugin`) {
		c.t.Errorf("netplugin said, %v\n%s", err, said)
	}
	if _, err := etcd.Put(ctx, key, record); err != nil {
		c.t.Fatal(err)
	}
}

// marked are the traces that a running netplugin leaves.
var marked = map[string][]string{
	testcluster.DriverEBPF: {"links", "addresses", "routes", "routes of IPv6", "queueing", "filters of eth1 ingress", "nftables", "nftables of IPv6", "files"},
	testcluster.DriverOVS:  {"links", "addresses", "routes", "routes of IPv6", "nftables", "nftables of IPv6", "files", "Bridge", "Port", "Interface"},
}

// traced is what a host has of all that a netplugin may leave.
func traced(t *testing.T, h *testcluster.Host, plugins string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, line := range map[string]string{
		"links": "ip -o -d link show", "addresses": "ip -o addr show", "routes": "ip route show table all", "routes of IPv6": "ip -6 route show table all",
		"rules": "ip rule show", "rules of IPv6": "ip -6 rule show", "queueing": "tc qdisc show",
		"tunnels' neighbours": "ip neigh show nud permanent", "offloads of eth0": "ethtool -k eth0", "offloads of eth1": "ethtool -k eth1",
		"settings": "sysctl -a --pattern ^net[.](core|ipv4|ipv6|netfilter)",
	} {
		args := strings.Fields(line)
		text, err := h.Run(t.Context(), args[0], args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = changing.ReplaceAllString(text, "")
	}
	if err := h.NS.Do(func() error {
		nft, err := nftables.New()
		if err != nil {
			return err
		}
		list, err := nft.ListChains()
		for _, ch := range list {
			family := "nftables"
			if ch.Table.Family == nftables.TableFamilyIPv6 {
				family = "nftables of IPv6"
			}
			rules, err := nft.GetRules(ch.Table, ch)
			if err != nil {
				return err
			}
			lines := fmt.Sprintf("%s %s\n", ch.Table.Name, ch.Name)
			for _, r := range rules {
				text, bad := json.Marshal(r.Exprs)
				lines, err = lines+string(text)+"\n", errors.Join(err, bad)
			}
			out[family] += changing.ReplaceAllString(lines, "")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	links, err := h.Run(t.Context(), "ls", "/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.FieldsSeq(links) {
		for _, hook := range []string{"ingress", "egress"} {
			text, err := h.Run(t.Context(), "tc", "filter", "show", "dev", l, hook)
			if err == nil { // else it has none
				out["filters of "+l+" "+hook] = text
			}
		}
	}
	if h.Driver() == testcluster.DriverOVS {
		for table, columns := range map[string]string{
			"Open_vSwitch": "external_ids other_config manager_options ssl", "Bridge": "name datapath_type external_ids other_config fail_mode protocols controller mirrors",
			"Port": "name external_ids other_config tag trunks", "Interface": "name type options external_ids other_config mtu_request",
			"Controller": "target", "Manager": "target", "Mirror": "name", "QoS": "type", "Queue": "other_config", "Flow_Table": "name",
		} {
			text, err := h.Run(t.Context(), "ovsdb-client", append([]string{"-f", "csv", "dump", h.DB(), "Open_vSwitch", table}, strings.Fields(columns)...)...)
			if err != nil {
				t.Fatal(err, text)
			}
			out[table] = text
		}
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.Dir) || strings.Contains(line, filepath.Dir(h.PinDir())) || strings.Contains(line, "/sys/fs/bpf") || strings.Contains(line, plugins) {
			out["mounts"] += line
		}
	}
	var files []string
	for _, dir := range []string{h.StateDir(), filepath.Dir(h.PinDir()), plugins} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // a directory that is not there has no files
			if err == nil {
				files = append(files, strings.TrimPrefix(path, filepath.Dir(dir)))
			}
			return nil
		})
	}
	if _, err := os.Stat(h.CNISocket()); err == nil {
		files = append(files, h.CNISocket())
	}
	out["files"] = strings.Join(files, "\n")
	return out
}

// changing is what changes by itself: counters, numbers of interfaces, addresses
// that the kernel has not tried yet, what ip says of other tests' namespaces that go.
var changing = regexp.MustCompile(`packets \d+ bytes \d+|(?m)^\d+: |if\d+|link-netnsid \d+|valid_lft \S+|preferred_lft \S+|"(Bytes|Packets)":\d+| tentative|(?m)^(local|anycast) fe80::\S* dev contiv.*\n|(?m)^net\.netfilter\.nf_conntrack_count.*$|(?m)^Error: Peer netns reference is invalid\.\n`)
