package observe

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/agent/picture"
)

// grouped is how many problems of one kind are logged by name at a time: a
// cluster's endpoints may all have the same one.
const grouped = 3

// logProblems logs problems when they come and when they have gone, not at every
// pass; many of one kind (the first word of their objects) in one line.
func (a *Observer) logProblems(o picture.Outcome) {
	now := o.ProblemTexts()
	came, went := map[string][]string{}, map[string][]string{}
	for k, text := range now {
		if a.logged[k] != text {
			kind, _, _ := strings.Cut(k, " ")
			came[kind] = append(came[kind], k)
		}
	}
	for k := range a.logged {
		if _, still := now[k]; !still {
			kind, _, _ := strings.Cut(k, " ")
			went[kind] = append(went[kind], k)
		}
	}
	for _, kind := range sortedKeys(came) {
		objects := came[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			a.cfg.Log.Warn("the data plane is not as wanted", "kind", kind, "count", len(objects), "first", objects[0], "problem", now[objects[0]])
			continue
		}
		for _, k := range objects {
			a.cfg.Log.Warn("the data plane is not as wanted", "object", k, "problem", now[k])
		}
	}
	for _, kind := range sortedKeys(went) {
		objects := went[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			a.cfg.Log.Info("problems have gone", "kind", kind, "count", len(objects), "first", objects[0])
			continue
		}
		for _, k := range objects {
			a.cfg.Log.Info("a problem has gone", "object", k)
		}
	}
	a.logged = now
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
