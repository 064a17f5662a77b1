package membership

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// numbers maps numbers of members in this process to the tests that use them: tests run at
// the same time, and each number is an address.
var numbers sync.Map

// config is a member in this process. No test that runs meanwhile may use its number n.
func config(t *testing.T, n int, name string) Config {
	t.Helper()
	switch other, taken := numbers.LoadOrStore(n, t.Name()); {
	case !taken:
		t.Cleanup(func() { numbers.Delete(n) })
	case other != t.Name():
		t.Fatalf("%v has number %d: take another one", other, n)
	}
	return Config{
		Dir: filepath.Join(t.TempDir(), name), Name: name, Logger: slog.New(slog.DiscardHandler),
		Client: address(n, 23791), Peer: address(n, 23801), EnrollmentAddress: address(n, 23781),
	}
}

// start starts a member in this process.
func start(t *testing.T, cfg Config) *Member {
	t.Helper()
	testenv.SkipShort(t)
	// A process that another test forks has all listeners of a former member until it executes its program.
	eventually(t, cfg.Client+" is free", func(ctx context.Context) error {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Client)
		if err != nil {
			return err
		}
		return l.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	m, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, m) })
	return m
}

func closed(t *testing.T, m *Member) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func tokenOf(t *testing.T, m *Member) (string, Token) {
	t.Helper()
	text, tok, err := m.Enrolment.NewToken(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return text, tok
}

// is holds that an error has a kind, and all of the words.
func is(t *testing.T, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want it to be %v", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q, want %q in it", what, err, w)
		}
	}
}

// TestPlantedTokensAreDeleted: tokens in the store that no netmaster made are deleted and reported
// before they become valid. Tokens that a netmaster made stay, also if that netmaster's
// clock is ahead of this one's.
func TestPlantedTokensAreDeleted(t *testing.T) {
	t.Parallel()
	cfg := config(t, 113, "a")
	var log bytes.Buffer // of both members: the first one may find some already
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	m := start(t, cfg)
	_, good := tokenOf(t, m)
	now, day, year := time.Now(), 24*time.Hour, 365*24*time.Hour
	ahead := tokenRow{ID: "ahead", Made: now.Add(2 * day), Expires: now.Add(3 * day), Host: "h"}
	if _, err := m.server.client.Put(t.Context(), hostTokenRows+ahead.ID, encode(ahead)); err != nil {
		t.Fatal(err)
	}
	for id, row := range map[string]tokenRow{
		"later":   {Made: now.Add(year), Expires: now.Add(year + time.Hour), Host: "h"},
		"long":    {Made: now, Expires: now.Add(year)},
		"undated": {Expires: now.Add(year), Dir: "spent", Name: "x"},
	} {
		row.ID = id
		for _, rows := range []string{tokenRows, hostTokenRows} {
			if _, err := m.server.client.Put(t.Context(), rows+id, encode(row)); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed(t, m)
	m = start(t, cfg)
	until(t, "the planted ones are gone", func() bool {
		var ids []string
		for _, rows := range []string{tokenRows, hostTokenRows} {
			all, err := list[tokenRow](t.Context(), m.server.client, rows)
			if err != nil {
				return false
			}
			for _, r := range all {
				ids = append(ids, r.value.ID)
			}
		}
		return slices.Equal(ids, []string{good.ID, ahead.ID})
	})
	closed(t, m)
	if n := strings.Count(log.String(), "was not made by a netmaster"); n != 6 {
		t.Errorf("%d of 6 were told of: %s", n, &log)
	}
}

// TestTokenEnrolsOneHost: of two replicas that are shown one token by two hosts at once, one takes
// it; hosts that are admitted wait for their turn.
func TestTokenEnrolsOneHost(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 21, "a"))
	bCfg := config(t, 22, "b")
	bCfg.Token, _ = tokenOf(t, a)
	b := start(t, bCfg)
	learners, waiting := 0, 0
	for round := range 12 {
		_, tok := tokenOf(t, b)
		answers, errs := make([]answer, 2), make([]error, 2)
		var both sync.WaitGroup
		for i, m := range []*Member{a, b} {
			both.Go(func() {
				q := request{ID: tok.ID, Secret: tok.Secret, Dir: tok.ID + string(rune('x'+i)), Name: tok.ID + string(rune('x'+i)), Peer: address(30+i, 1000+round), EnrollmentAddress: address(30+i, 2000)}
				answers[i], errs[i] = m.Enrolment.enrollMember(t.Context(), q)
			})
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("two hosts, one token: %v, %v", errs[0], errs[1])
		}
		for i := range errs {
			switch {
			case errs[i] != nil:
				is(t, "the second", errs[i], model.ErrConflict, "the token was used by")
			case answers[i].Wait == "":
				learners++
				if len(answers[i].Members) != 3 || len(answers[i].Authority) == 0 {
					t.Errorf("a learner is told %d members", len(answers[i].Members))
				}
			default:
				waiting++
				if !strings.Contains(answers[i].Wait, "still catching up") {
					t.Errorf("who has to wait is told %q", answers[i].Wait)
				}
			}
		}
	}
	if learners != 1 || waiting != 11 {
		t.Errorf("%d learners, %d wait; etcd takes one at a time", learners, waiting)
	}
	all, err := a.Roster.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Role == Voter {
			continue
		}
		if i.Err == nil || !i.Since.Before(time.Now()) || i.Since.IsZero() {
			t.Errorf("%+v has not started", i)
		}
		if err := b.Roster.Remove(t.Context(), i.Name, false); err != nil {
			t.Error(err)
		}
	}
	if all, err = b.Roster.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("after removals: %+v, %v", all, err)
	}
	if w := Warnings(all); len(w) != 1 || !strings.Contains(w[0], "two members, which is weaker than one") {
		t.Errorf("warnings of two: %q", w)
	}
}

// TestFounderStartsAgainWithoutEtcdsFirstRecord: a founder that was killed before etcd wrote that it is the first member
// founds its cluster again; by that log etcd would wait for ever.
func TestFounderStartsAgainWithoutEtcdsFirstRecord(t *testing.T) {
	t.Parallel()
	cfg := config(t, 131, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cfg.step = func(s string) {
		if s == "authority" {
			w, err := wal.Create(zap.NewNop(), walDir(cfg.Dir), []byte{8, 1, 16, 1}) // of member 1, cluster 1
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	_, err := Start(ctx, cfg)
	is(t, "a start that was ended", err, model.ErrUnavailable, "the store waits for a majority")
	if r, err := ReachOf(cfg.Dir); err != nil || r.Votes {
		t.Errorf("it reaches %+v, %v", r, err)
	}
	cfg.step = nil
	a := start(t, cfg)
	if all, err := a.Roster.List(t.Context()); err != nil || len(all) != 1 || !all[0].isAlive() {
		t.Errorf("members: %+v, %v", all, err)
	}
	closed(t, a)
	if r, err := ReachOf(cfg.Dir); err != nil || !r.Votes || r.Index == 0 {
		t.Errorf("it reaches %+v, %v", r, err)
	}
	start(t, cfg)
	if r, err := ReachOf(t.TempDir()); err == nil {
		t.Errorf("an empty directory reaches %+v", r)
	}
}

// TestPeerPortSpeaksToMembersOnly: the peer port speaks with members only, the enrollment server tells strangers nothing.
func TestPeerPortSpeaksToMembersOnly(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 41, "a"))
	foreign, err := pki.Init(filepath.Join(t.TempDir(), "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := foreign.Issue(pki.Request{Name: "x", Role: pki.Netmaster})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := tls.LoadX509KeyPair(filepath.Join(cert.Dir, pki.CertFile), filepath.Join(cert.Dir, pki.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	own, err := transport.OpenDirectory(a.peers.own)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c *tls.Config, url string, into any) error {
		pool := transport.Pool(c, 1, patient)
		defer pool.CloseIdleConnections()
		return jointoken.Call(t.Context(), &http.Client{Transport: pool}, http.MethodGet, url, nil, into)
	}
	var version any
	for what, c := range map[string]*tls.Config{
		"nobody":      {InsecureSkipVerify: true},
		"a stranger":  {InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}},
		"an old peer": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, GetClientCertificate: own.Client().GetClientCertificate},
	} {
		if err := ask(c, "https://"+a.cfg.Peer+"/version", &version); err == nil || version != nil {
			t.Errorf("%s is answered by the peer port: %v", what, version)
		}
		if err := ask(c, "https://"+a.cfg.EnrollmentAddress+statusPath, &version); err == nil || version != nil {
			t.Errorf("%s is answered by the enrollment server: %v", what, version)
		}
	}
	if err := ask(nil, "http://"+a.cfg.Peer+"/version", &version); err == nil || version != nil {
		t.Errorf("the peer port answers without TLS: %v", version)
	}
	if err := ask(own.Client(), "https://"+a.cfg.Peer+"/version", &version); err != nil {
		t.Errorf("a member is refused: %v", err)
	}
	var s Status
	if err := ask(own.Client(), "https://"+a.cfg.EnrollmentAddress+statusPath, &s); err != nil || !s.Leads || s.Quota != DefaultQuota || s.Free == 0 {
		t.Errorf("a member asks, and gets %+v, %v", s, err)
	}
	post := func(body string) error {
		pool := transport.Pool(jointoken.Pinned(fingerprint(a.peers.auth.Load())), 1, patient)
		defer pool.CloseIdleConnections()
		return jointoken.Call(t.Context(), &http.Client{Transport: pool}, http.MethodPost, "https://"+a.cfg.EnrollmentAddress+joinPath, strings.NewReader(body), &version)
	}
	is(t, "nonsense", post("{"), model.ErrInvalid, "cannot be read")
	is(t, "nothing", post("{}"), model.ErrInvalid, "no token")
	is(t, "too much", post(`{"name":"`+strings.Repeat("x", maxBody)+`"}`), model.ErrInvalid, "cannot be read")

	for _, path := range []string{a.cfg.Dir, a.dir.own(""), a.peers.dir} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

// TestRemovedMemberIsNotEnrolled: who is removed before it was answered is not admitted, at
// whichever step, and no learner stays of it; another token is of no use to it either.
func TestRemovedMemberIsNotEnrolled(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 81, "a"))
	ctx := t.Context()
	ask := func(tok Token, n int) request {
		name := fmt.Sprintf("new%d", n)
		return request{ID: tok.ID, Secret: tok.Secret, Dir: "directory of " + name, Name: name, Peer: address(82, 1000+n), EnrollmentAddress: address(82, 2000+n)}
	}
	for n, at := range []string{"spent", "added"} {
		_, tok := tokenOf(t, a)
		q := ask(tok, n)
		a.cfg.step = func(s string) {
			if s == at {
				if err := a.Roster.Remove(ctx, q.Name, false); at == "spent" && err != nil {
					t.Error(err)
				}
				if _, err := a.server.client.Delete(ctx, memberRows+q.Name); err != nil {
					t.Error(err)
				}
			}
		}
		for range 2 {
			_, err := a.Enrolment.enrollMember(ctx, q)
			is(t, "removed at "+at, err, model.ErrConflict, "was removed from the cluster", "a new token")
			a.cfg.step = nil
		}
		if all, err := a.Roster.List(ctx); err != nil || len(all) != 1 {
			t.Errorf("removed at %s: members %+v, %v", at, all, err)
		}
	}

	// It was answered, and removed before it started; a learner that never came keeps
	// the next one waiting until it is removed.
	_, tok := tokenOf(t, a)
	first := ask(tok, 2)
	if got, err := a.Enrolment.enrollMember(ctx, first); err != nil || got.Wait != "" || len(got.Members) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, tok = tokenOf(t, a)
	second := ask(tok, 3)
	if got, err := a.Enrolment.enrollMember(ctx, second); err != nil || !strings.Contains(got.Wait, first.Name+" is still catching up") {
		t.Errorf("%+v, %v", got, err)
	}
	if err := a.Roster.Remove(ctx, first.Name, false); err != nil {
		t.Fatal(err)
	}
	_, err := a.Enrolment.enrollMember(ctx, first)
	is(t, "removed when admitted", err, model.ErrConflict, "was removed from the cluster")
	// By another token the same directory goes on with what it has.
	other, _ := tokenOf(t, a)
	again, err := ParseToken(other)
	if err != nil {
		t.Fatal(err)
	}
	second.ID, second.Secret = again.ID, again.Secret
	if got, err := a.Enrolment.enrollMember(ctx, second); err != nil || got.Wait != "" {
		t.Errorf("%+v, %v", got, err)
	}
	third := ask(again, 4)
	_, err = a.Enrolment.enrollMember(ctx, third)
	is(t, "a token that a directory went on by", err, model.ErrConflict, "was used by "+second.Name)
	moved := second
	moved.Peer = address(82, 999)
	_, err = a.Enrolment.enrollMember(ctx, moved)
	is(t, "another address", err, model.ErrConflict, "repeat the former command line")
}

// TestCertificateIsRenewedInUse: a certificate that ends soon is renewed while it is in use.
func TestCertificateIsRenewedInUse(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 91, "a"))
	p, err := openPeers(a.dir, a.cfg)
	if err != nil {
		t.Fatal(err)
	}
	had := p.cert
	var before [2][]byte
	for i, name := range []string{pki.CertFile, pki.KeyFile} {
		if before[i], err = os.ReadFile(filepath.Join(p.own, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.cert.End = time.Now().Add(pki.Soon / 2)
	if err := p.renew(); err != nil {
		t.Fatal(err)
	}
	own, err := transport.OpenDirectory(a.peers.own)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := tls.X509KeyPair(before[0], before[1]); err != nil || own.Leaf().Equal(now.Leaf) || p.cert.Due(time.Now()) {
		t.Errorf("%+v became %+v", had, p.cert)
	}
	all, err := a.Roster.List(t.Context())
	if err != nil || len(all) != 1 || !all[0].isAlive() {
		t.Errorf("with a renewed certificate, members: %+v, %v", all, err)
	}
	bCfg := config(t, 92, "b")
	bCfg.Token, _ = tokenOf(t, a)
	b := start(t, bCfg)
	if all, err = b.Roster.List(t.Context()); err != nil || len(all) != 2 || !all[0].isAlive() || !all[1].isAlive() {
		t.Errorf("after that, members: %+v, %v", all, err)
	}
	for _, i := range all { // one is asked at its enrollment server
		if e := i.Status.Ends; len(e) != 2 || e[0].Authority || !e[1].Authority || e[0].Ends.After(e[1].Ends) || time.Until(e[0].Ends) < pki.Soon {
			t.Errorf("%s tells the ends %+v", i.Name, e)
		}
	}
}
