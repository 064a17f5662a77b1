package docker

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// The engine makes a container's endpoints before it starts the container, and
// lists the container with them only afterwards. The labels that policies select by
// must be known before the first packet. So in between they are found another way:
// the engine tells of a network which containers have joined it by which endpoints,
// and lists containers that do not run.

// preStart has the attachments whose containers have not been seen running, by the
// Docker network of each. The zero value is ready for use.
type preStart struct {
	mu       sync.Mutex
	networks map[attach.Key]string
}

func (s *preStart) add(k attach.Key, network string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.networks == nil {
		s.networks = map[attach.Key]string{}
	}
	s.networks[k] = network
}

// keep drops the attachments that are not among the given ones, or run, and returns
// the others.
func (s *preStart) keep(attached []attach.Key, runs map[attach.Key]attach.Fact) map[attach.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.networks, func(k attach.Key, _ string) bool {
		_, running := runs[k]
		return running || !slices.Contains(attached, k)
	})
	return maps.Clone(s.networks)
}

// created lists the containers, running or not, that have joined networks by
// endpoints of the given attachments, with these endpoints only.
func (e *engine) created(ctx context.Context, waiting map[attach.Key]string) ([]container, error) {
	endpoints := map[string][]string{} // by container
	for _, network := range slices.Compact(slices.Sorted(maps.Values(waiting))) {
		var n struct {
			Containers map[string]struct{ EndpointID string }
		}
		err := e.do(ctx, http.MethodGet, "/networks/"+url.PathEscape(network), nil, &n)
		if status, ok := errors.AsType[*engineError](err); ok && status.status == http.StatusNotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for id, c := range n.Containers {
			if _, waits := waiting[endpointAttachment(c.EndpointID)]; waits {
				endpoints[id] = append(endpoints[id], c.EndpointID)
			}
		}
	}
	if len(endpoints) == 0 {
		return nil, nil
	}
	filters, err := json.Marshal(map[string][]string{"id": slices.Sorted(maps.Keys(endpoints))})
	if err != nil {
		return nil, err
	}
	list, err := e.containers(ctx, "?all=1&filters="+url.QueryEscape(string(filters)))
	for i, c := range list {
		list[i].endpoints = endpoints[c.id] // none, if the engine ignores the filter
	}
	return list, err
}
