package join

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/pki"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// config is a member in this process.
func config(t *testing.T, n int, name string) Config {
	t.Helper()
	return Config{
		Dir: filepath.Join(t.TempDir(), name), Name: name, Logger: slog.New(slog.DiscardHandler),
		Client: address(n, 23791), Peer: address(n, 23801), Door: address(n, 23781),
	}
}

// start starts a member in this process.
func start(t *testing.T, cfg Config) *Member {
	t.Helper()
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
	text, tok, err := m.NewToken(t.Context(), 0)
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

// TestRefused: whatever is wrong with a command line, a token or a directory is a
// sentence, and changes neither cluster nor directory.
func TestRefused(t *testing.T) {
	t.Parallel()
	a, other := start(t, config(t, 11, "a")), start(t, config(t, 12, "other"))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	used, usedToken := tokenOf(t, a)
	bCfg := config(t, 13, "b")
	bCfg.Token = used
	b := start(t, bCfg)

	unspent := func(tok Token) {
		t.Helper()
		if r, err := get[tokenRow](ctx, a.server.client, tokenRows+tok.ID); err != nil || r.value.Dir != "" {
			t.Errorf("a refusal spent the token: %+v, %v", r.value, err)
		}
	}
	try := func(what string, change func(*Config), kind error, words ...string) {
		t.Helper()
		cfg := config(t, 14, "new")
		change(&cfg)
		had := etcd.IsEmpty(cfg.Dir)
		m, err := Start(ctx, cfg)
		if m != nil {
			closed(t, m)
		}
		is(t, what, err, kind, words...)
		if etcd.IsEmpty(cfg.Dir) != had {
			t.Errorf("%s: a refusal changed the data", what)
		}
	}

	good, goodToken := tokenOf(t, a)
	try("no token", func(c *Config) { c.Addresses = goodToken.Addresses }, model.ErrInvalid, "netctl cluster token")
	try("half a token", func(c *Config) { c.Token = good[:len(good)-9] }, model.ErrInvalid, "in one line")
	try("another secret", func(c *Config) {
		x := newToken(goodToken.Addresses, goodToken.Authority)
		x.ID = goodToken.ID
		c.Token = x.Text()
	}, model.ErrInvalid, "does not know this token")
	try("a token of nobody", func(c *Config) { c.Token = newToken(goodToken.Addresses, goodToken.Authority).Text() }, model.ErrInvalid, "does not know this token")
	try("a token used twice", func(c *Config) { c.Token = used }, model.ErrConflict, "was used by b on", "works once")
	try("a name used twice", func(c *Config) { c.Token, c.Name = good, "b" }, model.ErrExists, "the name b is a member's already", "remove it first")
	unspent(goodToken)
	_, err := a.admit(ctx, request{ID: goodToken.ID, Secret: goodToken.secret, Dir: "x", Name: "new", Peer: bCfg.Peer, Door: bCfg.Door})
	is(t, "an address used twice", err, model.ErrExists, "the address "+bCfg.Peer)
	unspent(goodToken)

	if _, err := a.server.client.Delete(ctx, memberRows+"b"); err != nil { // b makes it again when it starts
		t.Fatal(err)
	}
	try("a name of etcd's", func(c *Config) { c.Token, c.Name = good, "b" }, model.ErrExists, "the name b is a member's already")
	unspent(goodToken)

	late, lateToken := tokenOf(t, a)
	r, err := get[tokenRow](ctx, a.server.client, tokenRows+lateToken.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.value.Expires = time.Now().Add(-time.Second)
	if _, err := a.server.client.Put(ctx, tokenRows+lateToken.ID, encode(r.value)); err != nil {
		t.Fatal(err)
	}
	try("a token too late", func(c *Config) { c.Token = late }, model.ErrInvalid, "the token ended on")

	foreign := goodToken
	foreign.Addresses = []string{other.cfg.Door}
	try("an address of another cluster", func(c *Config) { c.Token = foreign.Text() }, model.ErrConflict, other.cfg.Door+" is of another cluster", "nothing was told to it")
	silent := goodToken
	silent.Addresses = []string{address(14, 1)}
	try("an address of nobody", func(c *Config) { c.Token = silent.Text() }, model.ErrUnavailable, "no member answers", address(14, 1)+" does not answer", "netmaster runs there")
	unspent(goodToken)

	closed(t, other)
	try("a directory of another cluster", func(c *Config) { c.Dir, c.Name, c.Token = other.cfg.Dir, "other", good }, model.ErrConflict, "is of another cluster", "name an empty directory")
	try("an address in use", func(c *Config) { c.Token, c.Peer = good, a.cfg.Peer }, model.ErrConflict, a.cfg.Peer, "stop what has the address")
	try("a directory in use", func(c *Config) { c.Dir = a.cfg.Dir }, model.ErrConflict, "another process uses")
	try("an address for nobody", func(c *Config) { c.Peer = "0.0.0.0:2380" }, model.ErrInvalid, "other hosts reach")
	try("a bad name", func(c *Config) { c.Name = "-" }, model.ErrInvalid, "name")
	own := t.TempDir()
	s, err := etcd.StartServer(ctx, etcd.ServerConfig{DataDir: own, Listen: address(14, 23799), Logger: a.cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	try("a store of its own", func(c *Config) { c.Dir, c.Token = own, good }, model.ErrConflict, "has a store of its own")
	unspent(goodToken)

	// A directory that is about to join.
	half := filepath.Join(t.TempDir(), "half")
	try("nobody answers", func(c *Config) { c.Dir, c.Token = half, silent.Text() }, model.ErrUnavailable)
	try("an unfinished directory alone", func(c *Config) { c.Dir = half }, model.ErrConflict, "is about to join a cluster", "--join")
	try("an unfinished directory of another name", func(c *Config) { c.Dir, c.Token, c.Name = half, good, "x" }, model.ErrConflict, "keeps its name")
	try("an unfinished directory at another address", func(c *Config) { c.Dir, c.Token, c.Peer = half, good, address(15, 23801) }, model.ErrConflict, "repeat the former command line")
	foreign.Authority[0]++
	try("an unfinished directory of another cluster", func(c *Config) { c.Dir, c.Token = half, foreign.Text() }, model.ErrConflict, "about to join another cluster")

	// The data of a member is gone.
	closed(t, b)
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.Rename(filepath.Join(bCfg.Dir, "member"), kept); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", used, good} {
		try("data that is gone", func(c *Config) { *c = bCfg; c.Token = token }, model.ErrConflict, "data of the member b is gone", "netctl cluster remove b")
	}
	if err := os.Rename(kept, filepath.Join(bCfg.Dir, "member")); err != nil {
		t.Fatal(err)
	}
	b = start(t, bCfg) // by the token that is spent: it is a member
	all, err := b.List(ctx)
	if err != nil || len(all) != 2 || all[0].Role != Voter || all[1].Role != Voter {
		t.Errorf("members: %+v, %v", all, err)
	}
	if usedToken.ID == "" || strings.Contains(usedToken.String(), usedToken.secret) {
		t.Error("a token shows its secret")
	}
}

// TestOneToken: of two replicas that are shown one token by two hosts at once, one takes
// it; hosts that are admitted wait for their turn.
func TestOneToken(t *testing.T) {
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
				q := request{ID: tok.ID, Secret: tok.secret, Dir: tok.ID + string(rune('x'+i)), Name: tok.ID + string(rune('x'+i)), Peer: address(30+i, 1000+round), Door: address(30+i, 2000)}
				answers[i], errs[i] = m.admit(t.Context(), q)
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
	all, err := a.List(t.Context())
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
		if err := b.Remove(t.Context(), i.Name, false); err != nil {
			t.Error(err)
		}
	}
	if all, err = b.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("after removals: %+v, %v", all, err)
	}
	if w := Warnings(all); len(w) != 1 || !strings.Contains(w[0], "two members, which is weaker than one") {
		t.Errorf("warnings of two: %q", w)
	}
}

// TestFoundAgain: a founder that was killed before etcd wrote that it is the first member
// founds its cluster again; by that log etcd would wait for ever.
func TestFoundAgain(t *testing.T) {
	t.Parallel()
	cfg := config(t, 94, "a")
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
	if all, err := a.List(t.Context()); err != nil || len(all) != 1 || !all[0].lives() {
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

// TestPorts: the peer port speaks with members only, the door tells strangers nothing.
func TestPorts(t *testing.T) {
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
		return call(t.Context(), &http.Client{Transport: pool}, http.MethodGet, url, nil, into)
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
		if err := ask(c, "https://"+a.cfg.Door+statusPath, &version); err == nil || version != nil {
			t.Errorf("%s is answered by the door: %v", what, version)
		}
	}
	if err := ask(nil, "http://"+a.cfg.Peer+"/version", &version); err == nil || version != nil {
		t.Errorf("the peer port answers without TLS: %v", version)
	}
	if err := ask(own.Client(), "https://"+a.cfg.Peer+"/version", &version); err != nil {
		t.Errorf("a member is refused: %v", err)
	}
	var s Status
	if err := ask(own.Client(), "https://"+a.cfg.Door+statusPath, &s); err != nil || !s.Leads || s.Quota != DefaultQuota || s.Free == 0 {
		t.Errorf("a member asks, and gets %+v, %v", s, err)
	}
	post := func(body string) error {
		pool := transport.Pool(pinned(fingerprint(a.peers.auth)), 1, patient)
		defer pool.CloseIdleConnections()
		return call(t.Context(), &http.Client{Transport: pool}, http.MethodPost, "https://"+a.cfg.Door+joinPath, strings.NewReader(body), &version)
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

// TestSpace: what a full store will be is told before, and ended by relieving it.
func TestSpace(t *testing.T) {
	t.Parallel()
	cfg := config(t, 51, "a")
	cfg.Quota = 12 << 20
	a := start(t, cfg)
	ctx, c := t.Context(), a.server.client
	told := false
	value := strings.Repeat("x", 64<<10)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		if err = ctx.Err(); err == nil {
			_, err = c.Put(ctx, fmt.Sprintf("fill/%d", i), value)
		}
		a.server.etcd.Server.Backend().ForceCommit()
		if s := a.Status(); err == nil && !s.Full && s.Trouble() != "" {
			told = true
		}
	}
	is(t, "a full store", unavailable(err), model.ErrExhausted, "takes no writes")
	if !told {
		t.Error("the store was full without a word before")
	}
	_, _, err = a.NewToken(ctx, 0)
	is(t, "a token of a full store", err, model.ErrExhausted)
	if s := a.Status(); !s.Full || !strings.Contains(s.Trouble(), "takes no writes: delete") {
		t.Errorf("a full store says %+v: %s", s, s.Trouble())
	}
	is(t, "relieving what is in use", a.Relieve(ctx), model.ErrExhausted, "delete what is not needed")
	r, err := c.Delete(ctx, "fill/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	a.server.etcd.Server.Backend().ForceCommit()
	if err := a.Relieve(ctx); err != nil {
		t.Fatal(err)
	}
	if s := a.Status(); s.Full || s.Trouble() != "" {
		t.Errorf("a relieved store says %+v: %s", s, s.Trouble())
	}
	tokenOf(t, a)
}

// TestSnapshots: they are made on the schedule, whole and for their owner only, the
// oldest go; a store that was restored from one is the member's again.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	cfg := config(t, 61, "a")
	cfg.Backup = Schedule{Dir: filepath.Join(t.TempDir(), "snapshots"), Keep: 2}
	a := start(t, cfg)
	ctx := t.Context()
	eventually(t, "the first snapshot", func(context.Context) error {
		if all, err := cfg.Backup.files(); err != nil || len(all) != 1 {
			return errors.Join(errors.New("there is none"), err)
		}
		return nil
	})
	c, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + cfg.Client}, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Update(ctx, func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Incarnations.Put(tx, store.Incarnation{ID: "id", Epoch: 1}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(cfg.Backup.Dir, "."+snapshotPrefix+"x.db.new-1")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var last string
	for range 3 {
		if last, err = a.Snapshot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all, err := cfg.Backup.files()
	if err != nil || len(all) != 2 || all[1] != last {
		t.Errorf("of four, two are kept: %v, %v; the last is %s", all, err, last)
	}
	if entries, err := os.ReadDir(cfg.Backup.Dir); err != nil || len(entries) != 2 {
		t.Errorf("what a kill left is there: %v, %v", entries, err)
	}
	if st, err := os.Stat(last); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if due, err := cfg.Backup.filled().due(); err != nil || time.Until(due) < DefaultEvery-patient || time.Until(due) > DefaultEvery {
		t.Errorf("the next is due at %v, %v", due, err)
	}
	closed(t, a)
	r, err := etcd.Restore(ctx, etcd.RestoreConfig{File: last, DataDir: cfg.Dir, Logger: cfg.Logger, Now: time.Now()})
	if err != nil || r.ID != "id" || r.Epoch < 2 {
		t.Fatalf("restored %+v, %v", r, err)
	}
	// It may have moved meanwhile, too.
	cfg.Peer = address(62, 23801)
	cfg.PeerListen = cfg.Peer
	a = start(t, cfg)
	infos, err := a.List(ctx)
	if err != nil || len(infos) != 1 || infos[0].Peer != cfg.Peer || infos[0].Name != "a" || !infos[0].lives() {
		t.Errorf("members: %+v, %v", infos, err)
	}
	closed(t, a)
	rec, err := Recover(ctx, cfg)
	if err != nil || rec.ID != "id" || rec.Epoch <= r.Epoch || len(rec.Lost) != 0 {
		t.Errorf("recovered %+v, %v", rec, err)
	}
}

// TestRemovedWhileJoining: who is removed before it was answered is not admitted, at
// whichever step, and no learner stays of it; another token is of no use to it either.
func TestRemovedWhileJoining(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 81, "a"))
	ctx := t.Context()
	ask := func(tok Token, n int) request {
		name := fmt.Sprintf("new%d", n)
		return request{ID: tok.ID, Secret: tok.secret, Dir: "directory of " + name, Name: name, Peer: address(82, 1000+n), Door: address(82, 2000+n)}
	}
	for n, at := range []string{"spent", "added"} {
		_, tok := tokenOf(t, a)
		q := ask(tok, n)
		a.cfg.step = func(s string) {
			if s == at {
				if err := a.Remove(ctx, q.Name, false); at == "spent" && err != nil {
					t.Error(err)
				}
				if _, err := a.server.client.Delete(ctx, memberRows+q.Name); err != nil {
					t.Error(err)
				}
			}
		}
		for range 2 {
			_, err := a.admit(ctx, q)
			is(t, "removed at "+at, err, model.ErrConflict, "was removed from the cluster", "a new token")
			a.cfg.step = nil
		}
		if all, err := a.List(ctx); err != nil || len(all) != 1 {
			t.Errorf("removed at %s: members %+v, %v", at, all, err)
		}
	}

	// It was answered, and removed before it started; a learner that never came keeps
	// the next one waiting until it is removed.
	_, tok := tokenOf(t, a)
	first := ask(tok, 2)
	if got, err := a.admit(ctx, first); err != nil || got.Wait != "" || len(got.Members) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, tok = tokenOf(t, a)
	second := ask(tok, 3)
	if got, err := a.admit(ctx, second); err != nil || !strings.Contains(got.Wait, first.Name+" is still catching up") {
		t.Errorf("%+v, %v", got, err)
	}
	if err := a.Remove(ctx, first.Name, false); err != nil {
		t.Fatal(err)
	}
	_, err := a.admit(ctx, first)
	is(t, "removed when admitted", err, model.ErrConflict, "was removed from the cluster")
	// By another token the same directory goes on with what it has.
	other, _ := tokenOf(t, a)
	again, err := ParseToken(other)
	if err != nil {
		t.Fatal(err)
	}
	second.ID, second.Secret = again.ID, again.secret
	if got, err := a.admit(ctx, second); err != nil || got.Wait != "" {
		t.Errorf("%+v, %v", got, err)
	}
	third := ask(again, 4)
	_, err = a.admit(ctx, third)
	is(t, "a token that a directory went on by", err, model.ErrConflict, "was used by "+second.Name)
	moved := second
	moved.Peer = address(82, 999)
	_, err = a.admit(ctx, moved)
	is(t, "another address", err, model.ErrConflict, "repeat the former command line")
}

// TestRenewal: a certificate that ends soon is made anew while it is used.
func TestRenewal(t *testing.T) {
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
	all, err := a.List(t.Context())
	if err != nil || len(all) != 1 || !all[0].lives() {
		t.Errorf("with a renewed certificate, members: %+v, %v", all, err)
	}
	bCfg := config(t, 92, "b")
	bCfg.Token, _ = tokenOf(t, a)
	b := start(t, bCfg)
	if all, err = b.List(t.Context()); err != nil || len(all) != 2 || !all[0].lives() || !all[1].lives() {
		t.Errorf("after that, members: %+v, %v", all, err)
	}
}
