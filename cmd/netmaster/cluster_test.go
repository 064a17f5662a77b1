package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestFlagsOfTheEmbeddedClusterReachTheMember: each flag of the embedded store's cluster reaches the member by itself,
// and defaults follow from the address of --internal-address. A netmaster that is alone
// opens no port that other processes could miss.
func TestFlagsOfTheEmbeddedClusterReachTheMember(t *testing.T) {
	def := membership.Config{
		Dir: "/var/lib/contiv/etcd", Client: "127.0.0.1:2379", Backup: membership.Schedule{Dir: "/var/lib/contiv/etcd/snapshots", Every: membership.DefaultEvery, Keep: membership.DefaultKeep},
		Peer: "10.1.1.1:9004", PeerListen: "10.1.1.1:9004", EnrollmentAddress: "10.1.1.1:9005", EnrollmentListen: "10.1.1.1:9005", Spare: true,
	}
	with := func(change func(*membership.Config)) membership.Config {
		c := def
		c.Spare = false
		change(&c)
		return c
	}
	for args, want := range map[string]membership.Config{
		"":                def,
		"--member-name m": with(func(c *membership.Config) { c.Name, c.Spare = "m", true }),
		"--peer-listen none": with(func(c *membership.Config) {
			c.Peer, c.PeerListen, c.EnrollmentAddress, c.EnrollmentListen = "", "", "", ""
		}),
		"--peer-listen 0.0.0.0:1": with(func(c *membership.Config) {
			c.Peer, c.PeerListen, c.EnrollmentAddress, c.EnrollmentListen = "10.1.1.1:1", "0.0.0.0:1", "10.1.1.1:9005", "0.0.0.0:9005"
		}),
		"--join-listen 10.1.1.2:1":                   with(func(c *membership.Config) { c.EnrollmentAddress, c.EnrollmentListen = "10.1.1.2:1", "10.1.1.2:1" }),
		"--peer-address a.example:1":                 with(func(c *membership.Config) { c.Peer = "a.example:1" }),
		"--join-address a.example:1":                 with(func(c *membership.Config) { c.EnrollmentAddress = "a.example:1" }),
		"--join b:9005,c:9005 --token T":             with(func(c *membership.Config) { c.Addresses, c.Token = []string{"b:9005", "c:9005"}, "T" }),
		"--token T":                                  with(func(c *membership.Config) { c.Token = "T" }),
		"--snapshot-dir /x --snapshot-every 30m":     with(func(c *membership.Config) { c.Backup.Dir, c.Backup.Every, c.Spare = "/x", 30*time.Minute, true }),
		"--snapshot-keep 2 --etcd-listen 10.1.1.1:2": with(func(c *membership.Config) { c.Backup.Keep, c.Client, c.Spare = 2, "10.1.1.1:2", true }),
	} {
		o, err := parse(t, nil, append([]string{"--internal-address", "10.1.1.1:9999"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", o.member())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	for args, word := range map[string]string{
		"--join b:9005":                              "netctl cluster token",
		"--join b:9005 --token T --recover":          "give one",
		"--join b:9005 --recover":                    "--config none",
		"--peer-listen none --join-address a:1":      "omit one",
		"--peer-listen none --join b:9005 --token T": "omit one",
		"--snapshot-every 1s":                        "a minute or more",
		"--etcd-endpoints http://e:1 --recover":      "is for the embedded etcd",
		"--consul-endpoints http://e:1 --join b:1":   "is for the embedded etcd",
	} {
		if _, err := parse(t, nil, append([]string{"--internal-address", "10.1.1.1:9999"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want it to say %q", args, err, word)
		}
	}
}

// embeddedMember is a netmaster's command line.
type embeddedMember struct {
	dir  string
	args []string
}

func newEmbeddedMember(t *testing.T, name string) embeddedMember {
	t.Helper()
	m := embeddedMember{dir: filepath.Join(t.TempDir(), name)}
	m.args = []string{
		"--data-dir", m.dir, "--etcd-listen", storetest.FreePort(t), "--member-name", name, "--internal-address", storetest.FreePort(t),
		"--peer-listen", storetest.FreePort(t), "--join-listen", storetest.FreePort(t),
	}
	return m
}

func (m embeddedMember) with(more ...string) []string { return slices.Concat(m.args, more) }

func (p *process) joinToken() string {
	p.t.Helper()
	tok, err := p.NewJoinToken(p.t.Context(), api.JoinTokenRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return tok.Token
}

// kill ends it at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it has ended, or it does
	<-p.done
}

// names are the members, as one of them tells.
func (p *process) names() string {
	all, err := p.Members(p.t.Context())
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, m := range all.Members {
		out = append(out, m.Name+" "+m.Role)
	}
	return strings.Join(out, ", ")
}

// writer creates tenants through any netmaster that answers, until it is stopped.
type writer struct {
	mu      sync.Mutex
	masters []*process
	acked   []string
	end     context.CancelFunc
	done    chan struct{}
}

func startWriter(t *testing.T, p *process) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{masters: []*process{p}, end: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for n := 0; ctx.Err() == nil; n++ {
			w.mu.Lock()
			p := w.masters[n%len(w.masters)]
			w.mu.Unlock()
			name := fmt.Sprintf("t%d", n)
			if _, err := p.Tenants().Create(ctx, api.Tenant{TenantName: name}); err == nil {
				w.mu.Lock()
				w.acked = append(w.acked, name)
				w.mu.Unlock()
			}
			select {
			case <-time.After(20 * time.Millisecond): // the test is of members, not of load
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *writer) to(masters ...*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.masters = masters
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// goesOn waits until more is written.
func (w *writer) goesOn(p *process, when string) {
	p.t.Helper()
	had := w.count()
	p.until("writes "+when, func() bool { return w.count() > had+2 })
}

func (w *writer) stop() {
	w.end()
	<-w.done
}

// TestClusterGrows is what a user does with netmasters that keep the state by
// themselves: one, three, one lost and replaced under another name, most of them lost;
// all the time something is written, and nothing that was answered is missing.
func TestClusterGrows(t *testing.T) {
	t.Parallel()
	snapshots := filepath.Join(t.TempDir(), "snapshots")
	ma := newEmbeddedMember(t, "a")
	a := start(t, nil, ma.with("--snapshot-dir", snapshots)...)
	a.ready()
	a.until("makes a snapshot", func() bool {
		files, err := filepath.Glob(filepath.Join(snapshots, "contiv-store-*.db"))
		return err == nil && len(files) == 1
	})
	w := startWriter(t, a)
	w.goesOn(a, "alone")

	token := a.joinToken()
	b := start(t, []string{"CONTIV_NETMASTER_TOKEN=" + token}, newEmbeddedMember(t, "b").args...)
	b.ready()
	two, err := b.Members(t.Context())
	if err != nil || len(two.Members) != 2 || len(two.Warnings) != 1 || !strings.Contains(two.Warnings[0], "weaker than one") {
		t.Errorf("two members: %+v, %v", two, err)
	}
	s, err := a.Status(t.Context())
	if err != nil || len(s.Stores) != 2 || !slices.ContainsFunc(s.Notices, func(n string) bool { return strings.Contains(n, "weaker than one") }) {
		t.Errorf("the status of two members: %+v, %v", s, err)
	}
	again := newEmbeddedMember(t, "again")
	if code, _, text := finished(t, nil, again.with("--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t), "--token", token)...); code == 0 || !strings.Contains(text, "used") {
		t.Errorf("a token that is used: exit code %d, %s", code, text)
	}
	first, err := a.NewJoinToken(t.Context(), api.JoinTokenRequest{ExpiresInSeconds: 600})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, nil, newEmbeddedMember(t, "c").with("--join", first.Addresses[0], "--token", first.Token)...)
	c.ready()
	if got := c.names(); got != "a voter, b voter, c voter" {
		t.Errorf("three members: %s", got)
	}
	w.to(a, b, c)
	w.goesOn(a, "with three")

	c.kill()
	w.to(a, b)
	w.goesOn(a, "when one of three is lost")
	a.until("tells that c is silent", func() bool {
		all, err := a.Members(t.Context())
		return err == nil && len(all.Members) == 3 && all.Members[2].Error != "" && strings.Contains(strings.Join(all.Warnings, "\n"), "netctl cluster remove")
	})
	if left, err := b.RemoveMember(t.Context(), "c", false); err != nil || len(left.Members) != 2 {
		t.Errorf("c removed: %+v, %v", left, err)
	}
	md := newEmbeddedMember(t, "d")
	d := start(t, nil, md.with("--token", b.joinToken())...)
	d.ready()
	w.to(a, b, d)
	w.goesOn(d, "when it has replaced c")
	if left, err := d.DefragmentMembers(t.Context()); err != nil || len(left.Members) != 3 {
		t.Errorf("relieved: %+v, %v", left, err)
	}
	w.stop()
	holds(d, w)

	// Most of them are lost.
	a.kill()
	b.kill()
	d.unready("store")
	d.kill()
	lost := start(t, nil, md.args...)
	lost.until("lives and waits for the others", func() bool {
		return lost.Do(t.Context(), "GET", "/healthz", nil, nil) == nil && lost.Do(t.Context(), "GET", "/readyz", nil, nil) != nil
	})
	lost.kill()
	code, _, text := finished(t, nil, md.with("--recover")...)
	if code != 0 || !strings.Contains(text, "this is now the cluster's only member") {
		t.Fatalf("--recover: exit code %d, %s", code, text)
	}
	d = start(t, nil, md.args...)
	d.ready()
	if got := d.names(); got != "d voter" {
		t.Errorf("after the recovery: %s", got)
	}
	holds(d, w)
	e := start(t, nil, newEmbeddedMember(t, "e").with("--token", d.joinToken())...)
	e.ready()
	holds(e, w)
	e.stop()
	if _, err := os.Stat(filepath.Join(md.dir, "join", "state.json")); err != nil {
		t.Error(err)
	}
}

// holds looks that all that was answered is there.
func holds(p *process, w *writer) {
	p.t.Helper()
	list, err := p.Tenants().List(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, x := range list {
		there[x.TenantName] = true
	}
	for _, name := range w.acked {
		if !there[name] {
			p.t.Errorf("tenant %s was answered, and is not there", name)
		}
	}
}
