package attachment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
)

const (
	// reportTimeout bounds how long a fact occupies its attachment, whose deletion
	// waits for that.
	reportTimeout = 3 * time.Second
	// maxPendingFacts is of how many attachments that do not stand facts are kept, and
	// pendingFactTime for how long.
	maxPendingFacts = 256
	pendingFactTime = 10 * time.Minute
)

// facts tells netmaster what orchestrators say of containers. It owns the facts of
// attachments that do not stand, and knows which ones netmaster refuses.
type facts struct {
	*deps
	pending pendingFacts
	refused refusedFacts
}

// Report is attach.Service's. It is the one way by which anything that an
// orchestrator tells reaches the cluster: the endpoint's name follows, its
// identity, and the services that its labels select.
func (a *facts) Report(ctx context.Context, f attach.Fact) error {
	if err := a.report(ctx, f); err != nil {
		return fmt.Errorf("report %s: %w", f.Key, err)
	}
	return nil
}

func (a *facts) report(ctx context.Context, f attach.Fact) error {
	if f.Container == "" || f.IfName == "" {
		return model.InvalidField("container and ifname", f.Key, "must not be empty")
	}
	if f.Health != "" && f.Health != attach.Healthy && f.Health != attach.Unhealthy {
		return model.InvalidField("health", f.Health, "must be healthy or unhealthy")
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	unlock, err := a.journal.turns.Lock(ctx, f.Key)
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "another request for it is in progress: %w", err)
	}
	defer unlock()
	e, ok := a.journal.get(f.Key)
	if !ok || e.State != StateDone {
		a.pending.add(f, time.Now())
		return nil
	}
	if f.Rev != 0 && f.Rev < e.Facts.Rev {
		return nil
	}
	before := labelsOf(e)
	changed := !f.Merge(e.Facts).Equal(e.Facts)
	e.Facts = f.Merge(e.Facts)
	err = a.update(ctx, e, before)
	if a.refused.note(f.Key, err) {
		a.agent.Kick("refused labels") // a problem tells people
	}
	if err != nil && !errors.Is(err, model.ErrNotFound) {
		return err // one that is not found gets it when it is put back
	}
	if changed {
		a.recordEntry(e)
	}
	return nil
}

// update tells netmaster what is known of an attachment; before is which labels
// it had been told.
func (a *facts) update(ctx context.Context, e Entry, before map[string]string) error {
	c := a.masters.API()
	if c == nil {
		return masterclient.ErrNone
	}
	req := api.UpdateEndpointRequest{
		Event: api.EventStart, Tenant: string(e.Endpoint.Network.Tenant), Network: string(e.Endpoint.Network.Name),
		EndpointID: string(e.Endpoint.ID), ContainerID: e.Facts.ID, EPCommonName: e.Facts.Name, Labels: labelsOf(e),
	}
	if e.Facts.Ended {
		req.Event = api.EventDie
	} else {
		req.Health = e.Facts.Health
		for _, k := range slices.Sorted(maps.Keys(before)) {
			if _, still := req.Labels[k]; !still {
				req.RemovedLabels = append(req.RemovedLabels, k)
			}
		}
	}
	if _, err := c.UpdateEndpoint(ctx, req); err != nil {
		return masterclient.FromAPI("update endpoint "+e.Endpoint.String(), err)
	}
	return nil
}

// problems names the containers whose name or labels netmaster refuses.
func (a *facts) problems() (problems []compile.Problem) {
	a.refused.mu.Lock()
	defer a.refused.mu.Unlock()
	for _, e := range a.journal.all() {
		if why := a.refused.all[e.Key()]; why != "" && e.State == StateDone {
			problems = append(problems, compile.Problem{
				Object: "endpoint " + e.Endpoint.String(),
				Text:   "no policy selects it by labels, since netmaster refuses the name or labels of " + e.title() + " (" + why + "): start it again with others",
			})
		}
	}
	maps.DeleteFunc(a.refused.all, func(k attach.Key, _ string) bool {
		_, attached := a.journal.get(k)
		return !attached
	})
	return problems
}

// labelsOf are the labels that an attachment's endpoint has by its request and by
// what was told since; nil = none.
func labelsOf(e Entry) map[string]string {
	if e.Facts.Ended {
		return nil
	}
	out := maps.Clone(e.Request.Labels)
	if told := usableLabels(e.Facts.Labels, model.MaxLabels-len(out)); out == nil && len(told) > 0 {
		out = told
	} else {
		maps.Copy(out, told)
	}
	return out
}

// unselectable names the labels that no selector can name.
func unselectable(labels map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !model.SelectableLabel(k, labels[k]) {
			out = append(out, k)
		}
	}
	return out
}

// usableLabels returns the labels that netmaster takes. All that policies can
// select by, by whatever list of generated labels, are among them, also when they
// are more than max: netmaster refuses these, since an endpoint that lacks a label
// by which it is denied would be open. Of the others come at most so many that it
// is max, by name.
func usableLabels(labels map[string]string, max int) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if model.SelectableLabel(k, v) {
			out[k] = v
		}
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if len(out) < max && model.ValidateLabels(map[string]string{k: labels[k]}) == nil {
			out[k] = labels[k]
		}
	}
	return out
}

// refusedFacts knows why netmaster refuses the last facts of attachments. The zero value is
// ready for use.
type refusedFacts struct {
	mu  sync.Mutex
	all map[attach.Key]string
}

// note records what netmaster has answered to facts, and reports whether that changes anything.
func (r *refusedFacts) note(k attach.Key, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.all[k]
	switch {
	case errors.Is(err, model.ErrInvalid):
		if r.all == nil {
			r.all = map[attach.Key]string{}
		}
		r.all[k] = err.Error()
	case err == nil || errors.Is(err, model.ErrNotFound):
		delete(r.all, k)
	}
	return r.all[k] != before
}

// pendingFacts keeps facts of attachments that do not stand, at most maxPendingFacts and each
// for pendingFactTime. The zero value is ready for use.
type pendingFacts struct {
	mu    sync.Mutex
	facts map[attach.Key]pendingFact
}

type pendingFact struct {
	attach.Fact
	since time.Time
}

// add adds a fact to what is known of its attachment, unless that is newer. When
// there are too many, the oldest go.
func (w *pendingFacts) add(f attach.Fact, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.facts[f.Key]
	if f.Rev != 0 && f.Rev < old.Rev {
		return
	}
	maps.DeleteFunc(w.facts, func(_ attach.Key, o pendingFact) bool { return now.Sub(o.since) >= pendingFactTime })
	if w.facts == nil {
		w.facts = map[attach.Key]pendingFact{}
	}
	w.facts[f.Key] = pendingFact{f.Merge(old.Fact), now}
	for len(w.facts) > maxPendingFacts {
		oldest := f.Key
		for k, o := range w.facts {
			if o.since.Before(w.facts[oldest].since) {
				oldest = k
			}
		}
		delete(w.facts, oldest)
	}
}

// addReplaced adds the reports about an attachment that is replaced, under later reports.
func (w *pendingFacts) addReplaced(f attach.Fact, now time.Time) {
	w.mu.Lock()
	o, ok := w.facts[f.Key]
	if ok {
		w.facts[f.Key] = pendingFact{o.Merge(f), o.since}
	}
	w.mu.Unlock()
	if !ok && f.Container != "" {
		w.add(f, now)
	}
}

// take returns what is known of an attachment that is being made, whose container
// therefore has not ended, whatever was told of a former run.
func (w *pendingFacts) take(k attach.Key, now time.Time) attach.Fact {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.facts[k]; now.Sub(o.since) < pendingFactTime {
		o.Ended = false
		return o.Fact
	}
	return attach.Fact{}
}

// forget drops what is known of an attachment that has it now.
func (w *pendingFacts) forget(k attach.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.facts, k)
}
