package membership

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// TestSingleMemberOpensNoPeerPort: a member that is alone opens no peer port and makes no token. A start with
// addresses gives it peers. It is alone again when another process has ports that no flag
// asked for. A member of several is never started alone.
func TestSingleMemberOpensNoPeerPort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cfg := config(t, 71, "a")
	with := cfg
	cfg.Peer, cfg.EnrollmentAddress, cfg.Name = "", "", ""
	a := start(t, cfg)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if a.Name() != name {
		t.Errorf("it is called %q, on the host %q", a.Name(), name)
	}
	_, _, err = a.Enrolment.NewToken(ctx, 0)
	is(t, "a token of one that is alone", err, model.ErrConflict, "--peer-listen", "--join-listen")
	again := cfg
	_, err = Start(ctx, again)
	is(t, "clients' port in use", err, model.ErrConflict, "an etcd 3.", "--etcd-endpoints http://"+cfg.Client, "--etcd-listen")
	again.Client = "127.0.0.1:0"
	_, err = Start(ctx, again)
	is(t, "a directory in use", err, model.ErrConflict, "--data-dir")
	closed(t, a)

	with.Name, with.Spare = "", true
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", with.EnrollmentAddress)
	if err != nil {
		t.Fatal(err)
	}
	a = start(t, with)
	_, _, err = a.Enrolment.NewToken(ctx, 0)
	is(t, "a token of one whose port is taken", err, model.ErrConflict, "--join-listen")
	closed(t, a)
	asked := with
	asked.Spare = false
	_, err = Start(ctx, asked)
	is(t, "a port that was asked for", err, model.ErrConflict, with.EnrollmentAddress, "stop the process that uses the address")
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}

	a = start(t, with)
	text, _ := tokenOf(t, a)
	b := config(t, 72, "b")
	b.Token = text
	if all, err := start(t, b).Roster.List(ctx); err != nil || len(all) != 2 || all[0].Name != "b" && all[1].Name != "b" {
		t.Errorf("members: %+v, %v", all, err)
	}
	closed(t, a)
	_, err = Start(ctx, cfg)
	is(t, "one of two alone", err, model.ErrConflict, "a cluster of 2 members")
	if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", with.Peer); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }() // of the test's own
	_, err = Start(ctx, with)
	is(t, "one of two whose port is taken", err, model.ErrConflict, "a cluster of 2 members", with.Peer)
	lonely := config(t, 73, "c")
	lonely.Peer, lonely.EnrollmentAddress, lonely.Token = "", "", text
	_, err = Start(ctx, lonely)
	is(t, "joining without addresses", err, model.ErrInvalid, "--peer-listen")
	if _, err := os.Stat(filepath.Join(lonely.Dir, "join", "state.json")); err == nil {
		t.Error("the refused one has an identity")
	}
}

// TestDefragmentReachesAllMembers: a member asks the others too, who refuse strangers.
func TestDefragmentReachesAllMembers(t *testing.T) {
	a := start(t, config(t, 74, "a"))
	text, _ := tokenOf(t, a)
	cfg := config(t, 75, "b")
	cfg.Token = text
	b := start(t, cfg)
	if err := a.Roster.DefragmentAll(t.Context()); err != nil {
		t.Error(err)
	}
	stranger := &http.Client{Transport: transport.Pool(jointoken.Pinned(fingerprint(a.peers.auth.Load())), 1, patient)}
	defer stranger.CloseIdleConnections()
	err := jointoken.Call(t.Context(), stranger, http.MethodPost, transport.HTTPS+"://"+a.cfg.EnrollmentAddress+defragmentPath, nil, &Status{})
	is(t, "a stranger", err, model.ErrInvalid, "only members")
	b.enrollmentServer.close()
	is(t, "one that does not answer", a.Roster.DefragmentAll(t.Context()), model.ErrUnavailable, "b does not answer", "repeat")
}
