package observe

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// grouped is how many problems of one kind are logged by name at a time: a
	// cluster's endpoints may all have the same one.
	grouped = 3
	// logDelay is how long a problem may last without being logged. Rows that belong
	// together may arrive one after the other.
	logDelay = 2 * time.Second
)

// problemLog logs problems when they come and when they have gone, not at every
// pass; many of one kind (the first word of their objects) in one line.
type problemLog struct {
	log   *slog.Logger
	delay time.Duration

	mu     sync.Mutex
	now    map[string]string // object -> sentence
	since  map[string]time.Time
	logged map[string]string
	timer  *time.Timer // looks again; nil = nothing is to be logged later
}

// update takes the present problems.
func (l *problemLog) update(now map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := map[string]time.Time{}
	for k := range now {
		if at, known := l.since[k]; known {
			since[k] = at
		} else {
			since[k] = time.Now()
		}
	}
	l.now, l.since = now, since
	l.logDue()
}

// logDue logs what is due. The caller holds l.mu.
func (l *problemLog) logDue() {
	came, went := map[string][]string{}, map[string][]string{}
	var later time.Duration
	logged := map[string]string{}
	for k, text := range l.now {
		wait := l.delay - time.Since(l.since[k])
		switch {
		case wait > 0:
			if later == 0 || wait < later {
				later = wait
			}
			continue
		case l.logged[k] != text:
			kind, _, _ := strings.Cut(k, " ")
			came[kind] = append(came[kind], k)
		}
		logged[k] = text
	}
	for k := range l.logged {
		if _, still := l.now[k]; !still {
			kind, _, _ := strings.Cut(k, " ")
			went[kind] = append(went[kind], k)
		}
	}
	l.logged = logged
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if later > 0 {
		l.timer = time.AfterFunc(later, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.logDue()
		})
	}
	for _, kind := range sortedKeys(came) {
		objects := came[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			l.log.Warn("the data plane has a problem", "kind", kind, "count", len(objects), "first", objects[0], "problem", l.now[objects[0]])
			continue
		}
		for _, k := range objects {
			l.log.Warn("the data plane has a problem", "object", k, "problem", l.now[k])
		}
	}
	for _, kind := range sortedKeys(went) {
		objects := went[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			l.log.Info("problems are solved", "kind", kind, "count", len(objects), "first", objects[0])
			continue
		}
		for _, k := range objects {
			l.log.Info("a problem is solved", "object", k)
		}
	}
}

// close has nothing logged later.
func (l *problemLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
