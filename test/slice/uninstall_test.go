//go:build integration

package slice

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// TestUninstall: netplugin --uninstall refuses while netplugin runs and while a
// container is attached, takes everything off the host, says what it removed,
// and can be repeated; a netplugin that comes and goes after it leaves nothing.
func TestUninstall(t *testing.T) { on(t, 2, both, uninstall) }

func uninstall(t *testing.T, driver string) {
	c := up(t, driver, "uninstall", 1)
	h := c.host("h1")
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
		"network create -t blue -e vxlan -s 10.1.1.0/24 --gateway 10.1.1.254 net",
		"network create -t blue -e vlan -s 10.1.2.0/24 vnet",
	)
	c.add(spec("a", "h1", "blue/net"), spec("b", "h1", "blue/vnet"))
	run("a netplugin runs")
	if !agent.Alive() {
		t.Error("the netplugin that ran has ended")
	}
	stop := func(p *lab.Process) {
		t.Helper()
		if err := p.Stop(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	stop(agent)
	before := traced(t, h)
	run("containers are attached")
	if diff := cmp.Diff(before, traced(t, h)); diff != "" {
		t.Errorf("a refused --uninstall has changed (-before +after):\n%s", diff)
	}
	if said := run("netctl host rm h1", "--force"); !strings.Contains(said, "removed the interfaces of 2 containers") {
		t.Errorf("it said\n%s", said)
	}
	clean := traced(t, h)
	for what, text := range clean {
		for line := range strings.SplitSeq(text, "\n") {
			if ours.MatchString(line) {
				t.Errorf("%s still has: %s", what, line)
			}
		}
	}
	run("nothing of netplugin's was on this host")

	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(h.Agent())
	run("netctl host rm h1")
	if diff := cmp.Diff(clean, traced(t, h)); diff != "" {
		t.Errorf("a netplugin that came and went has left (-clean +after):\n%s", diff)
	}
}

// ours is what names of netplugin's look like.
var ours = regexp.MustCompile(`contiv|\bcv[a-z2-7]{13}\b|\bcw[a-z2-7]{13}\b|172\.19\.`)

// traced is what a host has of all that a netplugin may leave.
func traced(t *testing.T, h *lab.Host) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, line := range map[string]string{
		"links": "ip -o link show", "addresses": "ip -o addr show", "routes": "ip route show table all", "routes of IPv6": "ip -6 route show table all",
		"rules": "ip rule show", "queueing": "tc qdisc show",
	} {
		args := strings.Fields(line)
		text, err := h.Run(t.Context(), args[0], args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = changing.ReplaceAllString(text, "")
	}
	var chains []string
	if err := h.NS.Do(func() error {
		nft, err := nftables.New()
		if err != nil {
			return err
		}
		list, err := nft.ListChains()
		for _, ch := range list {
			rules, err := nft.GetRules(ch.Table, ch)
			if err != nil {
				return err
			}
			chains = append(chains, fmt.Sprintf("%s %s: %d rules", ch.Table.Name, ch.Name, len(rules)))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	out["nftables"] = strings.Join(chains, "\n")
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
	if h.Driver() == lab.DriverOVS {
		text, err := h.Vsctl(t.Context(), "list-br")
		if err != nil {
			t.Fatal(err)
		}
		out["bridges"] = text
	}
	var files []string
	for _, dir := range []string{h.StateDir(), h.PinDir()} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // one that is not there has none
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

// changing is what changes by itself: counters and numbers of interfaces.
var changing = regexp.MustCompile(`packets \d+ bytes \d+|(?m)^\d+: |if\d+|link-netnsid \d+|valid_lft \S+|preferred_lft \S+`)
