package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// apiServer is of a cluster, which may become another one.
type apiServer struct {
	mu  sync.Mutex
	uid string
	err error
}

func (a *apiServer) ask(context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uid, a.err
}

func (a *apiServer) is(uid string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uid, a.err = uid, err
}

func (a *apiServer) ours(ctrl *control.Controller, named string) *ClusterCheck {
	return NewClusterCheck(ClusterCheckConfig{Control: ctrl, Ask: a.ask, Named: named, Log: slog.New(slog.DiscardHandler)})
}

// TestStoreFollowsItsFirstCluster: the store follows the first cluster that it meets, and another one only in
// the hands of a netmaster that was started for it, once.
func TestStoreFollowsItsFirstCluster(t *testing.T) {
	ctx := t.Context()
	l := &lab{t: t, st: memory.New()}
	l.ctrl = control.New(l.st, control.Options{})
	l.start(l.ctrl.Run)
	a := &apiServer{err: errors.New("connection refused")}
	first := a.ours(l.ctrl, "")
	if err := first.Check(ctx); errors.Is(err, model.ErrConflict) || err == nil {
		t.Errorf("nobody answers: %v", err)
	}
	a.is("one", nil)
	if err := first.Check(ctx); err != nil || first.Err() != nil {
		t.Error(err, first.Err())
	}
	refused := func(o *ClusterCheck, parts ...string) {
		t.Helper()
		err := o.Check(ctx)
		if !errors.Is(err, model.ErrConflict) || o.Err() == nil || o.Err().Error() != err.Error() {
			t.Errorf("Check %v, Err %v", err, o.Err())
		}
		for _, p := range parts {
			if err != nil && !strings.Contains(err.Error(), p) {
				t.Errorf("%v: want %q", err, p)
			}
		}
	}
	a.is("two", nil)
	refused(first, "cluster two", "the store is bound to the cluster one", "--kubernetes-cluster two")
	refused(a.ours(l.ctrl, ""), "cluster two", "the store is bound to the cluster one", "--kubernetes-cluster two")
	refused(a.ours(l.ctrl, "one"), "cluster two", "--kubernetes-cluster names one")
	refused(a.ours(l.ctrl, "three"), "cluster two", "--kubernetes-cluster names three")
	a.is("", errors.New("connection refused"))
	if err := first.Check(ctx); errors.Is(err, model.ErrConflict) || first.Err() == nil {
		t.Errorf("away after it was another one: %v, %v", err, first.Err())
	}
	a.is("one", nil)
	if err := first.Check(ctx); err != nil || first.Err() != nil {
		t.Error("it is back", err, first.Err())
	}

	b := &apiServer{uid: "two"}
	second := b.ours(l.ctrl, "two")
	if err := second.Check(ctx); err != nil {
		t.Fatal(err)
	}
	hears := func(o *ClusterCheck) { // by its view of the store
		t.Helper()
		for end := time.Now().Add(time.Minute); o.Err() == nil; <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("who follows the former one goes on")
			}
		}
	}
	hears(first)
	refused(first, "cluster one", "the store is bound to the cluster two", "--kubernetes-cluster one")
	if err := a.ours(l.ctrl, "one").Check(ctx); err != nil { // the other way, by a start for it
		t.Fatal(err)
	}
	hears(second)
	refused(second, "cluster two", "the store is bound to the cluster one") // which does not take it back
}

// TestOtherClustersObjectsAreIgnored: of another cluster's API server nothing is kept, nothing that it
// lacks goes, and no pod of it gets an endpoint; who is started for it takes over.
func TestOtherClustersObjectsAreIgnored(t *testing.T) {
	st := memory.New()
	a := &apiServer{uid: "one"}
	on := func(named string) *lab {
		l := newLab(t, func(c *Config) {
			c.Control = control.New(st, control.Options{})
			c.Ours = a.ours(c.Control, named)
			c.Sources = mirror.Guarded(c.Sources, c.Ours.Check)
		})
		l.st, l.ctrl = st, l.syncer.config.Control
		l.start(l.ctrl.Run)
		l.start(l.syncer.Run)
		return l
	}
	l := on("")
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
	fence := l.leader()
	lead := func(l *lab) (stop func() error) {
		return l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	}
	stop := lead(l)
	kept := []string{"default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[]"}
	l.want(kept...)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	a.is("two", nil) // and it has other objects
	other := on("")
	other.sources[mirror.Namespaces].Add(namespace("b", nil))
	stop = lead(other)
	if err := other.syncer.mirror.Await(shortly(t), ""); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "--kubernetes-cluster two") {
		t.Errorf("the mirror: %v", err)
	}
	if _, err := other.syncer.Endpoint(t.Context(), "b", "p", "u"); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "--kubernetes-cluster two") {
		t.Errorf("a pod: %v", err)
	}
	other.want(kept...)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	stop = lead(l) // with what it knows of the first, until another takes over
	l.want(kept...)
	taker := on("two")
	taker.sources[mirror.Namespaces].Add(namespace("b", nil))
	if err := taker.syncer.mirror.AwaitLists(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); l.syncer.config.Ours.Err() == nil && time.Now().Before(end); <-time.After(time.Millisecond) {
	}
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "late")) // on a watch that goes on
	for end := time.Now().Add(time.Minute); l.syncer.mirror.Get(mirror.NetworkPolicies, mirror.Name{Namespace: "a", Name: "late"}) == nil && time.Now().Before(end); <-time.After(time.Millisecond) {
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	l.want(kept...)
	lead(taker)
	taker.want("namespace b map[]")
}

func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}
