package membership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// TestRefusedStartsChangeNothing: whatever is wrong with a command line, a token or a directory is a
// sentence, and changes neither cluster nor directory.
func TestRefusedStartsChangeNothing(t *testing.T) {
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
		had := IsEmpty(cfg.Dir)
		m, err := Start(ctx, cfg)
		if m != nil {
			closed(t, m)
		}
		is(t, what, err, kind, words...)
		if IsEmpty(cfg.Dir) != had {
			t.Errorf("%s: a refusal changed the data", what)
		}
	}

	good, goodToken := tokenOf(t, a)
	try("no token", func(c *Config) { c.Addresses = goodToken.Addresses }, model.ErrInvalid, "netctl cluster token")
	try("half a token", func(c *Config) { c.Token = good[:len(good)-9] }, model.ErrInvalid, "in one line")
	try("another secret", func(c *Config) {
		x := jointoken.New(goodToken.Addresses, goodToken.Authority)
		x.ID = goodToken.ID
		c.Token = x.Text()
	}, model.ErrInvalid, "does not know this token")
	try("a token of nobody", func(c *Config) { c.Token = jointoken.New(goodToken.Addresses, goodToken.Authority).Text() }, model.ErrInvalid, "does not know this token")
	try("a token used twice", func(c *Config) { c.Token = used }, model.ErrConflict, "was used by b on", "works once")
	try("a name used twice", func(c *Config) { c.Token, c.Name = good, "b" }, model.ErrExists, "the name b is the name of a member", "remove it first")
	unspent(goodToken)
	_, err := a.Enrolment.enrollMember(ctx, request{ID: goodToken.ID, Secret: goodToken.Secret, Dir: "x", Name: "new", Peer: bCfg.Peer, EnrollmentAddress: bCfg.EnrollmentAddress})
	is(t, "an address used twice", err, model.ErrExists, "the address "+bCfg.Peer)
	unspent(goodToken)

	if _, err := a.server.client.Delete(ctx, memberRows+"b"); err != nil { // b makes it again when it starts
		t.Fatal(err)
	}
	try("a name of etcd's", func(c *Config) { c.Token, c.Name = good, "b" }, model.ErrExists, "the name b is the name of a member")
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
	r.value.Made = time.Now().Add(time.Hour)
	r.value.Expires = r.value.Made.Add(time.Hour)
	if _, err := a.server.client.Put(ctx, tokenRows+lateToken.ID, encode(r.value)); err != nil {
		t.Fatal(err)
	}
	try("a token of a clock that was ahead", func(c *Config) { c.Token = late }, model.ErrInvalid, "later than it is here, since a clock was set", "netctl cluster token")

	foreign := goodToken
	foreign.Addresses = []string{other.cfg.EnrollmentAddress}
	try("an address of another cluster", func(c *Config) { c.Token = foreign.Text() }, model.ErrConflict, other.cfg.EnrollmentAddress+" belongs to another cluster", "the token was not sent")
	try("a token, and the address of another cluster", func(c *Config) { c.Token, c.Addresses = good, []string{other.cfg.EnrollmentAddress} }, model.ErrConflict, other.cfg.EnrollmentAddress+" belongs to another cluster", "the token was not sent")
	silent := goodToken
	silent.Addresses = []string{address(14, 1)}
	try("an address of nobody", func(c *Config) { c.Token = silent.Text() }, model.ErrUnavailable, "no member answers", address(14, 1)+" does not answer", "netmaster runs there")
	unspent(goodToken)

	closed(t, other)
	try("a directory of another cluster", func(c *Config) { c.Dir, c.Name, c.Token = other.cfg.Dir, "other", good }, model.ErrConflict, "belongs to another cluster", "name an empty directory")
	try("an address in use", func(c *Config) { c.Token, c.Peer = good, a.cfg.Peer }, model.ErrConflict, a.cfg.Peer, "stop the process that uses the address")
	try("a directory in use", func(c *Config) { c.Dir = a.cfg.Dir }, model.ErrConflict, "another process uses")
	try("an address for nobody", func(c *Config) { c.Peer = "0.0.0.0:2380" }, model.ErrInvalid, "other hosts reach")
	try("a bad name", func(c *Config) { c.Name = "-" }, model.ErrInvalid, "name")
	own := t.TempDir()
	s, err := Start(ctx, Config{Dir: own, Client: address(14, 23799), Logger: a.cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), os.RemoveAll(filepath.Join(own, "join"))); err != nil { // as of a version without members
		t.Fatal(err)
	}
	try("a store of its own", func(c *Config) { c.Dir, c.Token = own, good }, model.ErrConflict, "has a store of its own")
	unspent(goodToken)

	// A directory that is about to join.
	half := filepath.Join(t.TempDir(), "half")
	try("nobody answers", func(c *Config) { c.Dir, c.Token = half, silent.Text() }, model.ErrUnavailable)
	try("an unfinished directory alone", func(c *Config) { c.Dir = half }, model.ErrConflict, "is joining a cluster", "--join")
	try("an unfinished directory of another name", func(c *Config) { c.Dir, c.Token, c.Name = half, good, "x" }, model.ErrConflict, "keeps its name")
	try("an unfinished directory at another address", func(c *Config) { c.Dir, c.Token, c.Peer = half, good, address(15, 23801) }, model.ErrConflict, "repeat the former command line")
	foreign.Authority[0]++
	try("an unfinished directory of another cluster", func(c *Config) { c.Dir, c.Token = half, foreign.Text() }, model.ErrConflict, "is joining a cluster by another authority")

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
	all, err := b.Roster.List(ctx)
	if err != nil || len(all) != 2 || all[0].Role != Voter || all[1].Role != Voter {
		t.Errorf("members: %+v, %v", all, err)
	}
	if usedToken.ID == "" || strings.Contains(usedToken.String(), usedToken.Secret) {
		t.Error("a token shows its secret")
	}
}
