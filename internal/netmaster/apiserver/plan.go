package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

func (s *server) handlePlan() {
	rt := handleRead(s.router, "POST", "/api/v1/analysis/plan", access.OwnTenants, s.objects.readPlan, planResources, s.objects.plan)
	rt.limit, rt.body, rt.verb = applyTimeouts*s.timeout, MaxApplyBody, verbRead
	rt = handleRead(s.router, "POST", "/api/v1/apply/plan", access.OwnTenants, s.objects.readApplyPlan, applyPlanResources, s.objects.applyPlan)
	rt.limit, rt.body = applyTimeouts*s.timeout, MaxApplyBody
}

// networkRuleKind is the kind of a network policy's rules in plans.
const networkRuleKind = "networkRule"

// Manifests translates manifests of Kubernetes' objects for plans.
type Manifests interface {
	// Plan returns the changes that each manifest stands for. The error is control.ChangeErrors
	// where manifests cannot be planned.
	Plan(ctx context.Context, manifests []json.RawMessage) ([]control.PlannedObject, error)
}

// planRequest is a list of changes that are to be planned.
type planRequest struct {
	changes []control.Planned
	results []plannedResult
}

// plannedResult is an object of a plan: its kind, key and warnings, and which changes are its own.
type plannedResult struct {
	api.ApplyResult
	first, count int  // of the request's changes
	manifest     bool // it is an object of Kubernetes
}

// result returns the index of the object to which a change belongs.
func (p planRequest) result(change int) int {
	return slices.IndexFunc(p.results, func(r plannedResult) bool { return change < r.first+r.count })
}

// inObjects is what is wrong with changes, as an error about the request's objects; one by itself is
// refused in the words in which the change would be.
func (p planRequest) inObjects(err error) error {
	all, ok := err.(control.ChangeErrors) //nolint:errorlint // as Plan returns it
	if ok {
		for _, e := range all {
			e.Index = p.result(e.Index)
		}
	}
	return planError(err, len(p.results))
}

func (s *objectHandlers) readPlan(w http.ResponseWriter, r *request) (req planRequest, err error) {
	var in api.PlanRequest
	if _, err := decodeUpTo(w, r, &in, MaxApplyBody); err != nil {
		return req, err
	}
	return s.planRequestOf(r.Context(), in)
}

func (s *objectHandlers) planRequestOf(ctx context.Context, in api.PlanRequest) (req planRequest, err error) {
	switch n := len(in.Changes); {
	case n == 0:
		return req, model.Errorf(model.ErrInvalid, "changes: must have a change: there is nothing to plan")
	case n > maxListed:
		return req, model.Errorf(model.ErrInvalid, "changes: must be at most %d in one plan, and not %d: plan fewer at a time", maxListed, n)
	}
	var wrong control.ChangeErrors
	var manifests []json.RawMessage
	var at []int // their indexes
	req.results = make([]plannedResult, len(in.Changes))
	changes := make([][]control.Planned, len(in.Changes))
	for i, change := range in.Changes {
		if change.Manifest != nil && given(change) == 1 {
			manifests, at = append(manifests, change.Manifest), append(at, i)
			continue
		}
		p, result, err := s.plannedOf(change)
		if err != nil {
			wrong = append(wrong, &control.ChangeError{Index: i, Err: err})
			if len(wrong) > maxFaults {
				break
			}
			continue
		}
		changes[i], req.results[i].ApplyResult = []control.Planned{p}, result
	}
	objects, err := s.planManifests(ctx, manifests)
	refused, ok := err.(control.ChangeErrors) //nolint:errorlint // as planManifests returns it
	if err != nil && !ok {
		return req, err
	}
	for _, e := range refused {
		e.Index = at[e.Index]
	}
	if wrong = append(wrong, refused...); wrong != nil {
		slices.SortFunc(wrong, func(a, b *control.ChangeError) int { return a.Index - b.Index })
		return req, planError(wrong, len(in.Changes))
	}
	for i, o := range objects {
		changes[at[i]] = o.Changes
		req.results[at[i]] = plannedResult{manifest: true, ApplyResult: api.ApplyResult{Kind: o.Kind, Key: o.Key, Warnings: o.Warnings}}
	}
	for i, of := range changes {
		req.results[i].first, req.results[i].count = len(req.changes), len(of)
		req.changes = append(req.changes, of...)
	}
	return req, nil
}

// planManifests translates manifests of Kubernetes' objects.
func (s *objectHandlers) planManifests(ctx context.Context, manifests []json.RawMessage) ([]control.PlannedObject, error) {
	switch {
	case len(manifests) == 0:
		return nil, nil
	case s.manifests == nil:
		return nil, model.Errorf(model.ErrInvalid, "manifests of Kubernetes cannot be planned: this netmaster follows no Kubernetes (--kubeconfig)")
	}
	return s.manifests.Plan(ctx, manifests)
}

// planError is what is wrong with changes of a plan; one by itself is refused in the words in
// which the change would be.
func planError(err error, n int) error {
	all, ok := err.(control.ChangeErrors) //nolint:errorlint // as Plan returns it
	switch {
	case err == nil, ok && len(all) == 0:
		return nil
	case ok && n == 1:
		return all[0].Err
	}
	return err
}

// given returns how many fields a change has.
func given(c api.PlanChange) (n int) {
	for _, has := range []bool{c.Set != nil, c.Delete != nil, c.SetRule != nil, c.DeleteRule != nil, c.Manifest != nil} {
		if has {
			n++
		}
	}
	return n
}

// plannedOf reads one change, of no manifest.
func (s *objectHandlers) plannedOf(c api.PlanChange) (p control.Planned, result api.ApplyResult, err error) {
	if given(c) != 1 {
		return p, result, model.Errorf(model.ErrInvalid, "must have one of set, delete, setRule, deleteRule and manifest")
	}
	put := func(ch control.Change) control.Planned { return control.Planned{Put: &ch} }
	remove := func(d control.Deletion) control.Planned { return control.Planned{Delete: &d} }
	switch {
	case c.Set != nil:
		l, err := s.changesOf([]json.RawMessage{c.Set})
		if err != nil {
			return p, result, planError(err, 1)
		}
		return put(l.changes[0]), l.results[0], nil
	case c.Delete != nil:
		k, ok := registry[c.Delete.Kind]
		if !ok || k.collection == "" {
			return p, result, model.InvalidField("kind", c.Delete.Kind, "must be a kind that can be deleted by its key")
		}
		d, err := k.del(s.control, c.Delete.Key)
		return remove(d), api.ApplyResult{Kind: c.Delete.Kind, Key: c.Delete.Key, Action: api.ApplyDeleted}, err
	case c.DeleteRule != nil:
		k, err := ruleKeyOf(c.DeleteRule.Policy, c.DeleteRule.RuleID)
		if err != nil {
			return p, result, notFound("rule", c.DeleteRule.Policy+":"+c.DeleteRule.RuleID)
		}
		return remove(s.control.Policies.DeleteNetworkRule(k, model.OwnerUser)), api.ApplyResult{Kind: networkRuleKind, Key: k.String(), Action: api.ApplyDeleted}, nil
	}
	k, err := ruleKeyOf(c.SetRule.Policy, c.SetRule.RuleID)
	if err != nil {
		return p, result, err
	}
	valid, err := readNetworkRule(k, c.SetRule.Rule)
	return put(s.control.Policies.ChangeNetworkRule(valid, model.OwnerUser)), api.ApplyResult{Kind: networkRuleKind, Key: k.String()}, err
}

// planResources is about all objects that are to be changed, as the changes would be.
func planResources(_ *request, req planRequest) (res access.Resource, err error) {
	for i, o := range req.results {
		res.Objects = append(res.Objects, audit.Object{Kind: o.Kind, Key: o.Key})
		res.Tenants = append(res.Tenants, tenantOf(o.Key))
		k := registry[o.Kind]
		if (o.manifest || k != nil && k.access.write&access.OwnTenants == 0) && res.Hint == "" {
			res.Hint = fmt.Sprintf("changes[%d]: a tenant-admin changes objects of tenants (%s)", i, strings.Join(kindsOfTenants(), ", "))
		}
	}
	if res.Hint != "" {
		res.Tenants = nil
	}
	return res, nil
}

// maxPlanTries is how often a plan is made while others change the same objects.
const maxPlanTries = 4

// plan answers POST /api/v1/analysis/plan. Within a scope the answer has no other tenant's
// endpoints and policies.
func (s *objectHandlers) plan(_ http.ResponseWriter, r *request, req planRequest) (any, error) {
	out, effects, err := s.planOf(r.Context(), r.actor, req)
	if err == nil {
		out.Cuts, err = s.plannedCuts(r.Context(), r.actor, effects)
	}
	return out, err
}

func (s *objectHandlers) planOf(ctx context.Context, a control.Actor, req planRequest) (out api.Plan, effects analysis.Effects, err error) {
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) {
			err = model.Errorf(model.ErrUnavailable, "planning %d changes takes more than %v, or other questions do: plan fewer at a time, or try again", len(req.changes), applyTimeouts*s.timeout)
		}
	}()
	for tries := 1; ; tries++ {
		outcomes, rows, err := s.control.Plan(ctx, a, req.changes)
		if err != nil {
			return out, effects, req.inObjects(err)
		}
		effects, err = s.control.Analysis.Plan(ctx, rows, a.Scope())
		if errors.Is(err, analysis.ErrRowsMoved) && tries < maxPlanTries {
			continue
		}
		if err == nil {
			out, err = s.renderPlan(a, req, outcomes, effects)
		}
		return out, effects, err
	}
}

func (s *objectHandlers) renderPlan(a control.Actor, req planRequest, outcomes []control.Outcome, effects analysis.Effects) (out api.Plan, err error) {
	out = api.Plan{Objects: make([]api.ApplyResult, len(req.results)), Flows: []api.PlannedFlow{}, Services: []api.PlannedService{}}
	for i, r := range req.results {
		o := &out.Objects[i]
		*o = r.ApplyResult
		switch {
		case r.manifest:
			o.Action = manifestAction(req.changes[r.first:r.first+r.count], outcomes[r.first:])
		case o.Action != api.ApplyDeleted:
			if err := describeOutcome(o, outcomes[r.first], true); err != nil {
				return out, err
			}
		}
		out.Changes = out.Changes || o.Action != api.ApplyUnchanged
	}
	scope := flowScope{Scope: a.Scope()}
	for _, f := range effects.Flows {
		out.Flows = append(out.Flows, plannedFlow(scope, f))
	}
	for _, x := range effects.Services {
		p := api.PlannedService{Service: x.Service.String(), Before: x.Before, After: x.After, Effect: api.ApplyUpdated, LosesLast: x.Before > 0 && x.After == 0, Changes: x.Parts}
		switch {
		case x.Created:
			p.Effect = api.ApplyCreated
		case x.Gone:
			p.Effect = api.ApplyDeleted
		}
		for _, c := range x.Clients {
			clients := api.PlannedClients{Effect: api.FlowCloses, From: c.From, At: c.At}
			if c.Opens {
				clients.Effect = api.FlowOpens
			}
			p.Clients = append(p.Clients, clients)
		}
		out.Services = append(out.Services, p)
	}
	data, err := json.Marshal(out) // without its revision, nor what waits to be confirmed
	if err != nil {
		return out, err
	}
	sum := sha256.Sum256(data)
	out.ID, out.Revision, out.Unconfirmed = hex.EncodeToString(sum[:])[:32], int64(effects.Revision), effects.Unconfirmed
	return out, nil
}

// manifestAction says what the changes of a manifest, which may be in several tenants, come to.
func manifestAction(changes []control.Planned, outcomes []control.Outcome) string {
	action := api.ApplyUnchanged
	for i, ch := range changes {
		switch {
		case ch.Delete == nil && outcomes[i].Unchanged():
		case ch.Put != nil && outcomes[i].Before == nil && (action == api.ApplyUnchanged || action == api.ApplyCreated):
			action = api.ApplyCreated
		default:
			action = api.ApplyUpdated
		}
	}
	return action
}

func plannedFlow(scope flowScope, f analysis.Flow) api.PlannedFlow {
	out := api.PlannedFlow{Effect: api.FlowCloses, From: f.From, To: f.To, Before: plannedDecision(scope, f.Before), After: plannedDecision(scope, f.After)}
	if f.Opens {
		out.Effect = api.FlowOpens
	}
	out.Families, out.Ports = families(f.IPv4, f.IPv6), portTexts(f.Ports)
	return out
}

func plannedDecision(scope flowScope, d reachability.Decision) api.PlannedDecision {
	return api.PlannedDecision{Route: string(d.Route), Missing: string(d.Gap), Decisions: decisions(scope, d.Out, d.In)}
}

// applyPlanRequest is a plan that is to be applied.
type applyPlanRequest struct {
	planRequest
	set      string
	revision int64
	id       string
	begin    time.Time
}

func (s *objectHandlers) readApplyPlan(w http.ResponseWriter, r *request) (req applyPlanRequest, err error) {
	var in api.ApplyPlanRequest
	if _, err := decodeUpTo(w, r, &in, MaxApplyBody); err != nil {
		return req, err
	}
	req = applyPlanRequest{set: in.Set, revision: in.Revision, id: in.ID, begin: time.Now()}
	if in.Set != "" {
		if err := model.ParseSetName(in.Set); err != nil {
			return req, err
		}
	}
	for i, ch := range in.Changes {
		if ch.Manifest != nil {
			return req, model.Errorf(model.ErrInvalid, "changes[%d]: is a manifest of Kubernetes: plans show what it would do, and 'kubectl apply' applies it", i)
		}
	}
	req.planRequest, err = s.planRequestOf(r.Context(), api.PlanRequest{Changes: in.Changes})
	return req, err
}

func applyPlanResources(r *request, req applyPlanRequest) (access.Resource, error) {
	return planResources(r, req.planRequest)
}

// applyPlan answers POST /api/v1/apply/plan.
func (s *objectHandlers) applyPlan(_ http.ResponseWriter, r *request, req applyPlanRequest) (any, error) {
	now, _, err := s.planOf(r.Context(), r.actor, req.planRequest)
	if err != nil {
		return nil, err
	}
	if now.ID != req.id {
		return nil, model.Errorf(model.ErrConflict, "the plan is out of date: it was made for revision %d of the cluster, and at revision %d its changes would do something else; nothing is changed: plan again", req.revision, now.Revision)
	}
	for i, of := range req.results {
		if put := req.changes[i].Put; put != nil && req.set != "" {
			*put = s.control.Ownership.InSet(r.actor, *put, req.set, model.Owned{Kind: of.Kind, Key: of.Key})
		}
		now.Objects[i].Before, now.Objects[i].After = nil, nil
	}
	t := applyTime{begin: req.begin, timeout: s.timeout, now: time.Now}
	done, rev, err := s.control.ApplyPlanned(r.Context(), r.actor, req.changes, t.hasTime)
	r.committed(rev)
	if err == nil && done < len(req.changes) {
		err = model.Errorf(model.ErrUnavailable, "there was no time for all of it")
	}
	if err = req.inObjects(err); err != nil && rev != 0 {
		err = fmt.Errorf("%w; at least %d of %d changes are made: plan again for the others", err, done, len(req.changes))
	}
	return api.ApplyPlanResponse{Results: now.Objects}, err
}
