package keeper

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/kube/mirror"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNamespaceTooLarge: a namespace that no store could have is known by what it was
// before, and told; its pods do not start, those of others do.
func TestNamespaceTooLarge(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.start(l.keeper.Run)
	fence := l.leader()
	l.start(func(ctx context.Context) error { return l.keeper.Lead(ctx, fence) })
	l.sources[mirror.Namespaces].Add(namespace("a", map[string]string{"x": "y"}))
	l.sources[mirror.Namespaces].Add(namespace("b", nil))
	l.want("namespace a map[x:y]", "namespace b map[]")
	many := map[string]string{"x": "z"}
	for n := range model.MaxLabels {
		many[fmt.Sprint("l", n)] = ""
	}
	l.sources[mirror.Namespaces].Modify(namespace("a", many))
	l.wantTold("pods of it do not start")
	l.sources[mirror.Pods].Add(podNamed("u1", nil))
	other := &corev1.Pod{ObjectMeta: meta("b", "one", nil)}
	l.sources[mirror.Pods].Add(other)
	for range 2 { // the second look, by what the first found
		l.unavailable("u1", time.Second, "behind with namespaces a")
		if _, err := l.keeper.Endpoint(t.Context(), "b", "one", string(other.UID)); err != nil {
			t.Error(err)
		}
	}
	l.want("namespace a map[x:y]", "namespace b map[]")
	delete(many, "l0")
	l.sources[mirror.Namespaces].Modify(namespace("a", many))
	if _, err := l.asks("u1", 10*time.Second); err != nil {
		t.Error(err)
	}
}
