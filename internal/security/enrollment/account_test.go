package enrollment

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// vouching is a member that knows of which host tokens are.
func vouching(t *testing.T, vouch func(ctx context.Context, token string) (host, by string, err error)) (m *membership.Member, door string) {
	t.Helper()
	door = storetest.FreePort(t)
	m, err := membership.Start(t.Context(), membership.Config{
		Dir: t.TempDir(), Client: storetest.FreePort(t), Peer: storetest.FreePort(t), EnrollmentAddress: door,
		Secure: []string{"127.0.0.1"}, Logger: slog.New(slog.DiscardHandler), TokenReviewer: vouch,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, door
}

func authority(m *membership.Member) string {
	return filepath.Join(m.Dir(), "join", "authority", pki.BundleFile)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestServiceAccountGetsItsNodesCertificate: a service account's token gets the certificate of its node's host only, and
// only from members of the authority. The token is read again while no member can check it.
// A valid certificate is kept. One that can no longer be renewed, or belongs to another
// cluster, is replaced without an operator.
func TestServiceAccountGetsItsNodesCertificate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tmp := t.TempDir()
	file := filepath.Join(tmp, "token")
	var asked atomic.Int64
	m, door := vouching(t, func(_ context.Context, token string) (host, by string, err error) {
		switch n := asked.Add(1); token {
		case "early":
			if n == 2 {
				write(t, file, "good\n") // the kubelet has a newer one
			}
			return "", "", model.Errorf(model.ErrUnavailable, "the API server is away")
		case "good":
			return "host1", "pod x", nil
		}
		return "", "", model.Errorf(model.ErrInvalid, "of somebody else")
	})
	other, elsewhere := vouching(t, nil)
	cfg := Config{Dir: filepath.Join(tmp, "tls"), Name: "host1", Servers: []string{door}, Account: Account{TokenFile: file, Authority: authority(m)}}
	with := func(change func(*Config)) Config {
		c := cfg
		c.Dir = filepath.Join(t.TempDir(), "x")
		change(&c)
		return c
	}
	serial := func() string {
		t.Helper()
		d, err := transport.OpenDirectory(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check([]string{"host1"}, pki.Host); err != nil {
			t.Error(err)
		}
		return d.Leaf().SerialNumber.String()
	}

	write(t, file, "early\n")
	var waits []string
	cfg.Waits = func(why error) { waits = append(waits, why.Error()) }
	if err := Join(ctx, cfg); err != nil || asked.Load() != 3 || len(waits) != 1 || !strings.Contains(waits[0], "the API server is away") {
		t.Fatalf("%v, asked %d times, waited because of %q", err, asked.Load(), waits)
	}
	first := serial()
	if err := Join(ctx, cfg); err != nil || asked.Load() != 3 || serial() != first {
		t.Errorf("it asks though it has a good one: %v", err)
	}
	refused(t, "for another host", Join(ctx, with(func(c *Config) { c.Name = "host2" })), "pod x on the node host1, and this is the host host2", "--host host1")
	refused(t, "for another host, with the certificate of this one", Join(ctx, with(func(c *Config) { c.Dir, c.Name = copyDir(t, cfg.Dir), "host2" })), "this is the host host2")
	write(t, file, "bad")
	refused(t, "a bad one", Join(ctx, with(func(*Config) {})), "of somebody else")
	if _, err := os.Stat(filepath.Join(cfg.Dir, nextFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key is left: %v", err)
	}
	write(t, file, "good")
	before := asked.Load()
	refused(t, "at another cluster", Join(ctx, with(func(c *Config) { c.Servers = []string{elsewhere}; c.Account.Authority = authority(m) })), "another cluster")
	refused(t, "a member of another authority", Join(ctx, with(func(c *Config) { c.Account.Authority = authority(other) })), "another cluster")
	if asked.Load() != before {
		t.Error("the token was told to a cluster of another authority")
	}
	refused(t, "where none are taken", Join(ctx, with(func(c *Config) { c.Servers = []string{elsewhere}; c.Account.Authority = authority(other) })), "--enroll-service-account", "netctl cluster token --host host1")
	write(t, filepath.Join(tmp, "none"), "x")
	refused(t, "no authority", Join(ctx, with(func(c *Config) { c.Account.Authority = filepath.Join(tmp, "none") })), "has no authority")
	if len(waits) != 1 {
		t.Errorf("it does not wait where it is refused, and says so: %q", waits)
	}

	// Its next certificates it gets by the former ones.
	var out bytes.Buffer
	k := &renewer{dir: cfg.Dir, log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return time.Now().AddDate(0, 0, 61) }, rejoin: func(ctx context.Context) error { return requestByAccount(ctx, cfg) }}
	k.check(ctx)
	if serial() == first || asked.Load() != before {
		t.Errorf("it is not renewed by the certificate: asked %d times more: %s", asked.Load()-before, out.String())
	}
	// A thief renewed it: the host gets another, and the thief's renews nothing more.
	stolen := copyDir(t, cfg.Dir)
	if err := Renew(ctx, stolen, nil); err != nil {
		t.Fatal(err)
	}
	k.last = time.Time{}
	k.check(ctx)
	if !strings.Contains(out.String(), "was stolen") || asked.Load() != before+1 {
		t.Errorf("nothing tells of the thief, or nobody was asked: %s", out.String())
	}
	refused(t, "the thief's", Renew(ctx, stolen, nil), "was replaced")
	if err := Renew(ctx, cfg.Dir, nil); err != nil {
		t.Error(err)
	}
	// One that has ended, at the start.
	testenv.ExpireCertificate(t, membership.AuthorityDir(m.Dir()), cfg.Dir)
	if err := Join(ctx, cfg); err != nil || Renew(ctx, cfg.Dir, nil) != nil {
		t.Errorf("one that has ended is kept: %v", err)
	}
	// The cluster was founded again: a starting host belongs to the new one, and a running
	// one gets its certificate and exits. Another pod of the same cluster is no reason to
	// exit.
	anew, at := vouching(t, func(context.Context, string) (host, by string, err error) { return "host1", "pod y", nil })
	former := copyDir(t, cfg.Dir)
	runs := cfg
	runs.Dir = former
	k = &renewer{dir: former, log: k.log, now: time.Now, rejoin: func(ctx context.Context) error { return requestByAccount(ctx, runs) }, authority: cfg.Account.Authority}
	for _, why := range []string{"nothing", "one that has ended"} {
		if k.check(ctx); k.replaced {
			t.Errorf("it would end because of %s", why)
		}
		testenv.ExpireCertificate(t, membership.AuthorityDir(m.Dir()), former)
		k.last = time.Time{}
	}
	k.check(ctx)
	cfg.Servers, cfg.Account.Authority = []string{at}, authority(anew)
	runs.Servers, runs.Account.Authority = cfg.Servers, cfg.Account.Authority
	for _, how := range []func() error{
		func() error { return Join(ctx, cfg) },
		func() error {
			if err := Keep(ctx, runs, func([]string) {}, k.log); !errors.Is(err, ErrJoinAgain) {
				t.Errorf("one that runs: %v", err)
			}
			return nil
		},
	} {
		if err := how(); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{cfg.Dir, runs.Dir} {
		if doors, err := Servers(dir); err != nil || doors[0] != at {
			t.Errorf("it is still of the former cluster: %v, %v", doors, err)
		}
	}
}

// TestAccountAsksEachServerOnce: the servers of the command line, then learnt ones. Waits may
// be missing.
func TestAccountAsksEachServerOnce(t *testing.T) {
	tmp := t.TempDir()
	if _, err := pki.Init(filepath.Join(tmp, "pki")); err != nil {
		t.Fatal(err)
	}
	given, learnt := storetest.FreePort(t), storetest.FreePort(t)
	writeState(t, tmp, state{Name: "host1", Servers: []string{given, learnt}})
	write(t, filepath.Join(tmp, "token"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Join(ctx, Config{Dir: tmp, Name: "host1", Servers: []string{given}, Account: Account{TokenFile: filepath.Join(tmp, "token"), Authority: filepath.Join(tmp, "pki", pki.BundleFile)}})
	if !errors.Is(err, model.ErrUnavailable) || strings.Count(err.Error(), given+" does not answer") != 1 || strings.Count(err.Error(), learnt+" does not answer") != 1 {
		t.Errorf("it fails with %v", err)
	}
}

// TestAccountNeedsItsFiles: what cannot be read or written is an error at once.
func TestAccountNeedsItsFiles(t *testing.T) {
	tmp := t.TempDir()
	if _, err := pki.Init(filepath.Join(tmp, "pki")); err != nil {
		t.Fatal(err)
	}
	file, known := filepath.Join(tmp, "token"), filepath.Join(tmp, "pki", pki.BundleFile)
	write(t, file, "x")
	odd := filepath.Join(tmp, "odd")
	write(t, odd, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	taken := filepath.Join(tmp, "taken")
	if err := os.MkdirAll(filepath.Join(taken, nextFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"read the netmasters' authority":        {Dir: tmp, Account: Account{TokenFile: file, Authority: filepath.Join(tmp, "none")}},
		"has no authority":                      {Dir: tmp, Account: Account{TokenFile: file, Authority: odd}},
		"read the token of the service account": {Dir: tmp, Account: Account{TokenFile: filepath.Join(tmp, "none"), Authority: known}},
		"save the host's certificate":           {Dir: filepath.Join(file, "x"), Account: Account{TokenFile: file, Authority: known}},
		"save the host's key":                   {Dir: taken, Account: Account{TokenFile: file, Authority: known}},
	} {
		cfg.Name = "host1"
		refused(t, want, Join(t.Context(), cfg), want)
	}
}

// TestUnknownClientsDoNotDelayHosts: who floods the enrollment server with tokens of no service account, which Kubernetes is
// asked about for as long as that takes, keeps no other address's pod from its certificate,
// and from all addresses no host that has a token of the cluster's, or a certificate.
func TestUnknownClientsDoNotDelayHosts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var held, answered atomic.Int64
	m, door := vouching(t, func(ctx context.Context, token string) (host, by string, err error) {
		if token == "good" {
			return "host1", "pod x", nil
		}
		held.Add(1)
		<-ctx.Done()
		return "", "", model.Errorf(model.ErrUnavailable, "the API server is slow")
	})
	dir := t.TempDir()
	_, csr, err := nextKey(dir, "host1", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(jointoken.HostRequest{Account: "bad", Name: "host1", CSR: csr})
	if err != nil {
		t.Fatal(err)
	}
	flooding, stop := context.WithCancel(ctx)
	var floods sync.WaitGroup
	defer floods.Wait()
	defer stop()
	const each = 20
	tried := int64(0)
	flood := func(from string) {
		t.Helper()
		pool := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a stranger verifies nothing
			DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		}
		t.Cleanup(pool.CloseIdleConnections)
		for range each {
			floods.Go(func() {
				defer answered.Add(1)
				q, err := http.NewRequestWithContext(flooding, http.MethodPost, "https://"+door+jointoken.HostPath, bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if r, err := (&http.Client{Transport: pool}).Do(q); err == nil {
					_ = r.Body.Close()
				}
			})
		}
		for tried += each; held.Load()+answered.Load() < tried; <-time.After(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("of %d strangers %d are held and %d answered", tried, held.Load(), answered.Load())
			}
		}
	}
	file := filepath.Join(dir, "token")
	write(t, file, "good")
	cfg := Config{Dir: filepath.Join(dir, "tls"), Name: "host1", Servers: []string{door}, Account: Account{TokenFile: file, Authority: authority(m)}}
	flood("127.0.0.2")
	at, end := context.WithTimeout(ctx, 20*time.Second)
	defer end()
	if err := Join(at, cfg); err != nil {
		t.Errorf("a pod beside strangers: %v", err)
	}
	for _, from := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"} {
		flood(from)
	}
	if err := Join(at, Config{Dir: filepath.Join(dir, "other"), Name: "host2", Token: token(t, m, "host2", 0)}); err != nil {
		t.Errorf("a host with a token beside strangers: %v", err)
	}
	if err := Renew(at, cfg.Dir, nil); err != nil {
		t.Errorf("a host with a certificate beside strangers: %v", err)
	}
}
