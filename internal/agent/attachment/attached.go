package attachment

import "github.com/contiv/netplugin/v2/internal/attach"

// Attached returns what an attachment that stands was answered with.
func (a *Service) Attached(k attach.Key) (attach.Result, bool) {
	e, ok := a.journal.get(k)
	if !ok || e.State != StateDone || e.Result == nil {
		return attach.Result{}, false
	}
	return *e.Result, true
}

// AttachedBy lists the attachments that stand and came from a source.
func (a *Service) AttachedBy(source string) []attach.Key {
	var out []attach.Key
	for _, e := range a.journal.all() {
		if e.State == StateDone && e.Request.Source == source {
			out = append(out, e.Key())
		}
	}
	return out
}
