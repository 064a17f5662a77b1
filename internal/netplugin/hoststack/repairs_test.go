package hoststack

import (
	"log/slog"
	"slices"
	"sync"
)

// repairs are what was put back, each once.
type repairs struct {
	mu    sync.Mutex
	names []string
}

// restart begins with a stack that knows nothing, and nothing that was put back.
func (s *site) restart(forward bool) {
	s.repairs = &repairs{}
	s.stack = New(slog.New(slog.DiscardHandler), forward, nil, s.repairs)
}

func (r *repairs) Rules(table string) { r.add("rules " + table) }
func (r *repairs) Device(name string) { r.add("device " + name) }

func (r *repairs) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
}

// take returns whether something was put back since it was taken last.
func (r *repairs) take(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := slices.Contains(r.names, name)
	r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == name })
	return had
}
