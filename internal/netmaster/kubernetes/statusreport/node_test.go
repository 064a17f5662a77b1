package statusreport

import "testing"

// TestNodeEventsDifferByReason: events of a node are kept apart by reason. A replica reports the same once, and
// another replica gives it the same name.
func TestNodeEventsDifferByReason(t *testing.T) {
	w, n := serve(t)
	for range 2 {
		n.Report(OfNode("n1", Event{Reason: "HostAway", Note: "since 1", Warning: true}))
		n.Report(OfNode("n1", Event{Reason: "HostBack", Note: "at 2"}))
	}
	idle(t, n)
	n.Reset()
	n.Report(OfNode("n1", Event{Reason: "HostAway", Note: "since 1", Warning: true}))
	idle(t, n)
	n.Report(OfNode("n1", Event{Reason: "HostAway", Note: "since 3", Warning: true}))
	idle(t, n)
	w.mu.Lock()
	defer w.mu.Unlock()
	names, types := map[string][]string{}, map[string]string{}
	for i, b := range w.bodies {
		regarding, _ := b["regarding"].(map[string]any)
		meta, _ := b["metadata"].(map[string]any)
		if w.paths[i] != "POST /apis/events.k8s.io/v1/namespaces/default/events" || regarding["kind"] != "Node" || regarding["name"] != "n1" || regarding["uid"] != "n1" {
			t.Errorf("%s %v", w.paths[i], b)
		}
		what := b["reason"].(string) + " " + b["note"].(string)
		names[what] = append(names[what], meta["name"].(string))
		types[what] = b["type"].(string)
	}
	if a := names["HostAway since 1"]; len(w.bodies) != 4 || len(a) != 2 || a[0] != a[1] || len(names["HostAway since 3"]) != 1 || names["HostAway since 3"][0] == a[0] {
		t.Errorf("%v", names)
	}
	if types["HostAway since 1"] != "Warning" || types["HostBack at 2"] != "Normal" {
		t.Errorf("%v", types)
	}
}
