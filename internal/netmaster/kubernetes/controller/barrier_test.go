package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// TestUnchangedStoreNeedsNoLook: where nothing has changed since it was seen that the store is in step,
// a question looks at no object, which would make copies; and each change is seen.
func TestUnchangedStoreNeedsNoLook(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	stop := l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	var rows []string
	for i := range 5 {
		l.sources[mirror.NetworkPolicies].Add(isolate("a", fmt.Sprint("p", i)))
		rows = append(rows, fmt.Sprintf("default:kubernetes.a.p%d kubernetes kubernetes 0", i))
	}
	l.want(append(rows, "namespace a map[]")...)
	question := func() []Object {
		turn, _ := l.ctrl.Current().Revisions.PolicyGeneration()
		return l.syncer.notSynced(turn, "a")
	}
	if out := question(); len(out) > 0 {
		t.Fatalf("behind with %s", summary(out))
	}
	turn, _ := l.ctrl.Current().Revisions.PolicyGeneration()
	if n := testing.AllocsPerRun(100, func() { l.syncer.notSynced(turn, "a") }); n > 0 {
		t.Errorf("%v allocations for a question where nothing has changed", n)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "late"))
	for end := time.Now().Add(10 * time.Second); len(question()) != 1; <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("behind with %s, want a policy that the store has not", summary(question()))
		}
	}
}
