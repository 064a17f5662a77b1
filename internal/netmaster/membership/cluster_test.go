package membership

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Tests that start processes run before tests that run in parallel: between fork and exec a
// child holds the listeners of this process too.

// TestClusterGrowsAndReplacesMembers is a cluster's life: it grows, and members are lost and replaced, in the end
// all but one. The member at work is killed at each step.
func TestClusterGrowsAndReplacesMembers(t *testing.T) {
	a, b, c, d := grow(t)
	e, acked := replace(t, a, b, c, d)
	recoverOne(t, a, e, acked)
}

// grow makes a cluster of four: it writes after each kill, and the same command line
// goes on.
func grow(t *testing.T) (a, b, c, d *node) {
	t.Helper()
	a = newNode(t, 1, "a")
	for _, step := range []string{"founding", "authority", "booted", "founded"} {
		a.startKilledAt(step)
	}
	a.start().ready()
	writes(t, a)

	b = newNode(t, 2, "b").join(a.token())
	for _, step := range []string{"asked", "answered", "admitted", "booted", "started", "promoting"} {
		b.startKilledAt(step)
		writes(t, a)
		if step == "admitted" { // as etcd is, when it is killed before it has a log
			if err := os.MkdirAll(filepath.Join(b.cfg.Dir, "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.start().ready()
	writes(t, b, a)

	c = newNode(t, 3, "c").join(b.token())
	c.startKilledAt("promoted")
	writes(t, a, b)
	c.start().ready()
	writes(t, c, a, b)

	// The admitting member is killed at each step; the token leads to no other.
	full := c.token()
	token, err := ParseToken(full)
	if err != nil {
		t.Fatal(err)
	}
	if len(token.Addresses) != 3 {
		t.Errorf("a token of three members has the addresses %v", token.Addresses)
	}
	token.Addresses = []string{a.cfg.EnrollmentAddress}
	d = newNode(t, 4, "d").join(token.Text())
	for _, step := range []string{"spent", "added", "recorded"} {
		a.kill()
		a.run(order{Kill: step}).ready()
		d.start()
		a.killedAt(step)
		writes(t, b, c)
		d.refused(model.ErrUnavailable, "no member answers", a.cfg.EnrollmentAddress)
		a.start().ready()
	}
	// By the token as it was, another member goes on with what a began.
	a.kill()
	d.join(full).start()
	eventuallyRoles(t, b, "a voter, b voter, c voter, d learner")
	writes(t, b, c) // d gets no vote while a is away: with four members two would be too few
	a.start().ready()
	d.ready()
	writes(t, d, a, b, c)
	if got := a.roles(); got != "a voter, b voter, c voter, d voter" {
		t.Errorf("members: %s", got)
	}
	return a, b, c, d
}

// replace loses members for good and replaces them while writes go on. It ends with a
// alone of a and e, and returns what was written.
func replace(t *testing.T, a, b, c, d *node) (e *node, acked []string) {
	t.Helper()
	stop := writer(t, a, b, c)
	d.kill()
	if err := os.RemoveAll(d.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	e = newNode(t, 5, "e").join(a.token())
	e.start().ready()

	a.kill()
	a.run(order{Kill: "removed"}).ready()
	a.say("remove d")
	a.killedAt("removed")
	writes(t, b, c, e)
	a.start().ready()
	if got := b.roles(); got != "a voter, b voter, c voter, d removed, e voter" {
		t.Errorf("after a removal that was interrupted, members: %s", got)
	}
	b.must("remove d")

	c.kill()
	b.must("remove " + c.cfg.Peer)
	if got := b.roles(); got != "a voter, b voter, e voter" {
		t.Errorf("after removals, members: %s", got)
	}
	// The same name again, in a directory of its own; its member was removed.
	c = newNode(t, 3, "c").join(a.token())
	c.start().ready()
	writes(t, c, a, b, e)
	wants(t, "a member that is alive", a.do("remove c"), model.ErrConflict, "c is alive", "--force")
	a.must("remove --force c")
	c.refused(model.ErrConflict, "was removed from its cluster")

	acked = stop()
	e.kill()
	writes(t, a, b)
	wants(t, "a member that is needed", a.do("remove b"), model.ErrConflict, "without b the cluster could not write", "e do not", "--force")
	wants(t, "nobody", a.do("remove nobody"), model.ErrNotFound, `no member "nobody"`, "a, b, e")
	writes(t, a, b)
	wants(t, "a removal by force", a.do("remove --force b"), model.ErrUnavailable, "most of them are down", "permanently lost")
	b.refused(model.ErrConflict, "was removed from its cluster")
	return e, acked
}

// recoverOne makes a cluster of what a has, which alone is left of two.
func recoverOne(t *testing.T, a, e *node, acked []string) {
	t.Helper()
	wants(t, "a without majority", a.do("token"), model.ErrUnavailable, "permanently lost")
	wants(t, "a directory in use", newNodeOf(t, a, 6).run(order{Recover: true}).next(), model.ErrConflict, "another process uses")
	a.kill()
	far, err := ReachOf(a.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if less, err := ReachOf(e.cfg.Dir); err != nil || far.Compare(less) <= 0 || less.Compare(far) >= 0 || less.Index == 0 {
		t.Errorf("a reaches %+v, e, which was killed before, %+v, %v", far, less, err)
	}
	a.run(order{Recover: true, Kill: "forced"})
	a.killedAt("forced")
	if s := a.run(order{Recover: true}).next(); s.OK != "recovered without b,e" {
		t.Fatalf("recovery: %+v", s)
	}
	<-a.done
	a.start().ready()
	writes(t, a)
	r, err := client(t, a).Get(t.Context(), "acked/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(acked) < 20 {
		t.Errorf("only %d writes while members were replaced", len(acked))
	}
	have := map[string]bool{}
	for _, kv := range r.Kvs {
		have[string(kv.Key)] = true
	}
	for _, k := range acked {
		if !have[k] {
			t.Errorf("%s was acknowledged and is lost", k)
		}
	}
	e.start().refused(model.ErrConflict, "was removed from its cluster")
	if got := a.roles(); got != "a voter" {
		t.Errorf("after recovery, members: %s", got)
	}
	wants(t, "the only member", a.do("remove a"), model.ErrConflict, "only member")
	f := newNode(t, 6, "f").join(a.token())
	f.start().ready()
	writes(t, f, a)
	if s := f.do("remove --force f"); s.Error != "" && s.Kind != "unavailable" { // itself: its store may end before the answer
		t.Errorf("a member removes itself: %s", s.Error)
	}
	f.refused(model.ErrConflict, "was removed from its cluster")
	writes(t, a)
}

// writer writes one key after the other through the nodes. stop ends it and returns the
// acknowledged keys.
func writer(t *testing.T, nodes ...*node) (stop func() []string) {
	t.Helper()
	c := client(t, nodes...)
	ctx, cancel := context.WithCancel(t.Context())
	var acked []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("acked/%d", i)
			pctx, done := context.WithTimeout(ctx, 2*time.Second)
			if _, err := c.Put(pctx, key, ""); err == nil {
				acked = append(acked, key)
			}
			done()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() []string {
		cancel()
		<-done
		return acked
	}
}

// TestLearnerAloneMakesNoCluster: what a learner has makes no cluster, and says so; the founder goes on
// without it.
func TestLearnerAloneMakesNoCluster(t *testing.T) {
	a := newNode(t, 71, "a").start().ready()
	b := newNode(t, 72, "b").join(a.token())
	writes(t, a)
	b.startKilledAt("promoting")
	a.kill()
	b.run(order{Recover: true}).refused(model.ErrConflict, "b never was a voter", "--restore")
	a.run(order{Recover: true})
	if s := a.next(); s.OK != "recovered without b" {
		t.Fatalf("recovery: %+v", s)
	}
	<-a.done
	a.start().ready()
	writes(t, a)
	b.start().refused(model.ErrConflict, "was removed from its cluster")
}
