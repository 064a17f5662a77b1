//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// world is a lab with containers that no mistake touches, their traffic, and
// victims.
type world struct {
	*testcluster.Lab
	t      *testing.T
	driver string
	pings  map[string]*testcluster.Pinger // "near" is on one host, "far" across hosts
	talks  map[string]*talk
	knocks *knocks
	truth  truth
	judged map[string]time.Time // until when a series of pings has been judged

	secure  string // by what the cluster is (-secure)
	victims int
	newest  string // victim, as conditions name it
	faults  []string
	longest map[string]time.Duration // outage by mistake and series, for the summary
	down    map[string]bool          // processes that a mistake has ended on purpose
	cut     bool                     // a mistake lasts that cuts hosts off each other
	backups []string                 // of netmaster's own etcd
	copied  string                   // an old copy of its directory
}

// netctl runs netctl; words are separated by spaces.
func (w *world) netctl(ctx context.Context, line string) error {
	out, err := w.Masters.Netctl(ctx, strings.Fields(line)...)
	if err != nil {
		return fmt.Errorf("netctl %s: %w", line, err)
	}
	_ = out
	return nil
}

func (w *world) fault(format string, args ...any) {
	w.t.Helper()
	text := fmt.Sprintf(format, args...)
	w.faults = append(w.faults, text)
	w.t.Error(text)
}

// build makes the lab: three hosts, the third with victims only; a tenant whose databases
// accept its web servers only, and another tenant with the same addresses.
func build(t *testing.T, name, driver string, change ...func(*testcluster.Config)) *world {
	t.Helper()
	ctx := t.Context()
	cfg := testcluster.Config{Name: name + driver, BinDir: bin, Hosts: 3, Driver: driver, Embedded: *kind == embedded}
	cfg.Environment = testcluster.ChooseEnvironment(t, *environment, driver, conformance.Choose)
	for _, f := range change {
		f(&cfg)
	}
	if missing := cfg.Missing(); len(missing) > 0 {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal(strings.Join(missing, "; "))
		}
		t.Skip(strings.Join(missing, "; "))
	}
	l, err := testcluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		Lab: l, t: t, driver: driver, pings: map[string]*testcluster.Pinger{}, talks: map[string]*talk{}, judged: map[string]time.Time{},
		knocks:  &knocks{seen: map[string]int{}, last: map[string]time.Time{}},
		longest: map[string]time.Duration{}, down: map[string]bool{},
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("CONTIV_TEST_KEEP") == "1" {
			return
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	for _, h := range l.Hosts() {
		w.must(h.SmallDisk(ctx, 32<<20))
	}
	for _, line := range []string{
		"tenant create blue", "tenant create red",
		"network create -t blue -e vxlan -s 10.1.1.0/24 net", "network create -t red -e vxlan -s 10.1.1.0/24 net",
		"group create -t blue net web", "policy create -t blue p", "group create -t blue net db", "group create -t blue net spare",
		"policy rule-add -t blue -d in -p 1 -j deny p everything-else",
		"policy rule-add -t blue -d in -p 10 -l tcp -P 81 -g web -j allow p tcp",
		"policy rule-add -t blue -d in -p 10 -l icmp -g web -j allow p ping",
	} {
		w.must(w.netctl(ctx, line))
	}
	for _, s := range []testcluster.ContainerSpec{
		{Name: "db1", Host: "h1", Tenant: "blue", Network: "net", Group: "db"},
		{Name: "db2", Host: "h2", Tenant: "blue", Network: "net", Group: "db"},
		{Name: "web1", Host: "h1", Tenant: "blue", Network: "net", Group: "web"},
		{Name: "other1", Host: "h1", Tenant: "blue", Network: "net", Group: "spare"},
		{Name: "red1", Host: "h1", Tenant: "red", Network: "net"},
	} {
		_, err := l.AddContainer(ctx, s)
		w.must(err)
	}
	w.start(ctx)
	w.must(w.keepSafe(ctx))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addr(container string) netip.Addr {
	w.t.Helper()
	a, err := w.Container(container)
	w.must(err)
	return a.IPv4
}

func (w *world) space(container string) *testcluster.Namespace {
	w.t.Helper()
	ns, err := w.Space(container)
	w.must(err)
	return ns
}

// start lets the traffic begin, and shows that what must not pass would be
// noticed: it passes until the policy is there.
func (w *world) start(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	const port = 7000
	for _, db := range []string{"db1", "db2"} {
		w.must(w.knocks.listen(ctx, w.space(db), port))
		for _, from := range []string{"other1", "red1"} {
			w.must(knock(ctx, w.space(from), from+" to "+db, netip.AddrPortFrom(w.addr(db), port)))
		}
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w.must(testcluster.Until(within, "what is not denied yet to pass", func(context.Context) error {
		if w.knocks.from("other1 to db1") == 0 || w.knocks.from("other1 to db2") == 0 {
			return errors.New("it does not")
		}
		return nil
	}))
	w.must(w.netctl(ctx, "group create -t blue --policy p net db"))
	w.must(testcluster.Until(within, "what is denied not to pass", func(context.Context) error {
		w.knocks.taken()
		select {
		case <-ctx.Done():
		case <-time.After(10 * knockEvery):
		}
		if s := w.knocks.taken(); len(s) > 0 {
			return errors.New(s[0])
		}
		return nil
	}))
	for name, to := range map[string]string{"near": "db1", "far": "db2"} {
		_, err := w.Serve(to, "tcp/81")
		w.must(err)
		w.pings[name], err = w.space("web1").StartPing(w.addr(to), pingEvery)
		w.must(err)
		w.talks[name] = &talk{name: name}
		go w.talks[name].converse(ctx, w.space("web1"), netip.AddrPortFrom(w.addr(to), 81))
	}
	w.t.Cleanup(func() {
		stop()
		<-w.truth.done
		for name, p := range w.pings {
			if err := p.Stop(); err != nil {
				w.t.Errorf("%s: %v", name, err)
			}
			w.t.Logf("pings %s in all: %s", name, p.Between(time.Time{}, time.Now()))
		}
	})
	w.must(w.flow(ctx, 100))
	w.truth.watch(ctx, w)
	for name := range w.pings {
		w.judged[name] = time.Now()
	}
}

// flow waits until so many more pings have been sent.
func (w *world) flow(ctx context.Context, pings int) error {
	begin := time.Now()
	return testcluster.Until(ctx, "pings to go on", func(context.Context) error {
		for name, p := range w.pings {
			if n := p.Between(begin, time.Now()).Sent; n < pings {
				return fmt.Errorf("%d of %d %s", n, pings, name)
			}
		}
		return nil
	})
}

// victim is a container on a host that no check depends on.
func (w *world) victim(ctx context.Context, h *testcluster.Host) (testcluster.ContainerSpec, error) {
	w.victims++
	s := testcluster.ContainerSpec{Name: fmt.Sprintf("v%d", w.victims), Host: h.Name, Tenant: "blue", Network: "net", Group: "spare"}
	w.newest = w.Config().Name + "-" + s.Name + "/"
	_, err := w.AddContainer(ctx, s)
	return s, err
}

// journal lists the files of a host's attachments.
func journal(h *testcluster.Host) ([]string, error) {
	return filepath.Glob(filepath.Join(h.StateDir(), "attach", "*.json"))
}
