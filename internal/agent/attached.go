package agent

import "github.com/contiv/netplugin/v2/internal/attach"

// Attached returns what an attachment that stands was answered with.
func (a *Agent) Attached(k attach.Key) (attach.Result, bool) {
	e, ok := a.journal.get(k)
	if !ok || e.State != stateDone || e.Result == nil {
		return attach.Result{}, false
	}
	return *e.Result, true
}

// AttachedBy lists the attachments that stand and came from a source.
func (a *Agent) AttachedBy(source string) []attach.Key {
	var out []attach.Key
	for _, e := range a.journal.all() {
		if e.State == stateDone && e.Request.Source == source {
			out = append(out, e.key())
		}
	}
	return out
}
