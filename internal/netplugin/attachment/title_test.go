package attachment

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestContainersAreNamedAsPeopleKnowThem: by the pod, the name that a runtime tells, or
// the id as Docker prints it.
func TestContainersAreNamedAsPeopleKnowThem(t *testing.T) {
	const id = "4f1c7a2d9b3e8f60a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718"
	docker := attach.Request{Key: attach.Key{Container: "e0d7", IfName: "eth0"}, Source: attach.SourceDocker}
	for want, e := range map[string]Entry{
		"pod shop/web":           {Request: attach.Request{Key: attach.Key{Container: id}, Name: "web", Pod: attach.Pod{Namespace: "shop", Name: "web"}}},
		"container web":          {Request: docker, Facts: attach.Fact{ID: id, Name: "web"}},
		"container 4f1c7a2d9b3e": {Request: docker, Facts: attach.Fact{ID: id}},
		"container e0d7":         {Request: docker},
	} {
		if got := e.title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
