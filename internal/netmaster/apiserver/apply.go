package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// MaxApplyBody is the largest body of POST /api/v1/apply, in bytes: some
// fifty thousand objects.
const MaxApplyBody = 16 << 20

// maxListed is how many objects a list has at most, and maxFaults is how many wrong ones
// are reported. A list of short objects takes ten times its size while it is read.
const (
	maxListed = 100_000
	maxFaults = 100
)

// applyTimeouts is how many times the time limit of other requests a list may take: less
// than what clients wait for (api.DefaultTimeout).
const applyTimeouts = 3

// applyTime is the time that a request for a list has.
type applyTime struct {
	begin, committed time.Time // committed: zero before the first commit
	timeout          time.Duration
	now              func() time.Time
}

// hasTime reports whether there is time for more of the list, after a commit: half a timeout
// at least, and as long as the check of the whole list took, so that a client that sends the
// list again and again does not wait for checks most of the time. The last timeout is for the
// commit under way when the time is over.
func (t *applyTime) hasTime() bool {
	now := t.now()
	if t.committed.IsZero() {
		t.committed = now
	}
	spent := now.Sub(t.committed)
	return spent < t.timeout/2 || spent < t.committed.Sub(t.begin) && now.Sub(t.begin) < (applyTimeouts-1)*t.timeout
}

func (s *server) handleApply() {
	rt := handleRead(s.router, "POST", "/api/v1/apply", access.OwnTenants, s.objects.readApply, applyResources, s.objects.apply)
	rt.limit, rt.body = applyTimeouts*s.timeout, MaxApplyBody
}

// applyRequest is a list of objects that is to be applied.
type applyRequest struct {
	list
	api.ApplyRequest
	begin time.Time
}

func (s *objectHandlers) readApply(w http.ResponseWriter, r *request) (req applyRequest, err error) {
	req.begin = time.Now()
	if _, err := decodeUpTo(w, r, &req.ApplyRequest, MaxApplyBody); err != nil {
		return req, err
	}
	req.list, err = s.changesOf(req.Objects)
	return req, err
}

func applyResources(r *request, req applyRequest) (access.Resource, error) {
	return listResources(r, req.list)
}

// listResources is about all objects of a list. Endpoints are not in a tenant admin's: one says on
// which host it is, and who has it there is shown that host; hosts write them.
func listResources(_ *request, l list) (res access.Resource, err error) {
	for i, o := range l.results {
		res.Objects = append(res.Objects, audit.Object{Kind: o.Kind, Key: o.Key})
		res.Tenants = append(res.Tenants, tenantOf(o.Key))
		if may := registry[o.Kind].access.write; may&access.OwnTenants == 0 && res.Hint == "" {
			res.Hint = fmt.Sprintf("objects[%d]: a tenant-admin's list has objects of tenants (%s), each with its kind and tenantName once", i, strings.Join(kindsOfTenants(), ", "))
		}
	}
	if res.Hint != "" {
		res.Tenants = nil
	}
	return res, nil
}

// apply makes a list of objects be as given.
func (s *objectHandlers) apply(_ http.ResponseWriter, r *request, req applyRequest) (any, error) {
	changes, results := req.changes, req.results
	if req.Set != "" {
		if err := model.ParseSetName(req.Set); err != nil {
			return nil, err
		}
		for i, of := range results {
			changes[i] = s.control.Ownership.InSet(r.actor, changes[i], req.Set, model.Owned{Kind: of.Kind, Key: of.Key})
		}
	}
	t := applyTime{begin: req.begin, timeout: s.timeout, now: time.Now}
	outcomes, done, rev, err := s.control.Apply(r.Context(), r.actor, changes, req.DryRun, t.hasTime)
	r.committed(rev)
	if errors.Is(err, context.DeadlineExceeded) && t.committed.IsZero() {
		return nil, model.Errorf(model.ErrUnavailable, "nothing is applied: checking %d objects takes more than %v, or the store does not answer: give fewer at a time, or try again", len(changes), applyTimeouts*s.timeout)
	}
	if err != nil {
		return nil, err
	}
	for i, o := range outcomes {
		if err := describeOutcome(&results[i], o, req.DryRun); err != nil {
			return nil, err
		}
	}
	answer := api.ApplyResponse{Results: results, Done: done}
	if req.Set != "" && done == len(changes) {
		err = s.compareSet(r.Context(), r.actor, req.Set, &answer)
	}
	return answer, err
}

// describeOutcome says in a result what becomes of its object, and if full how the object is
// before and after.
func describeOutcome(res *api.ApplyResult, o control.Outcome, full bool) (err error) {
	switch {
	case o.Unchanged():
		res.Action = api.ApplyUnchanged
	case o.Before == nil:
		res.Action = api.ApplyCreated
	default:
		res.Action = api.ApplyUpdated
	}
	if !full {
		return nil
	}
	render := func(m any) any { return networkRuleToAPI(m.(model.PolicyRule)) } //nolint:forcetypeassert // the only kind without a place in the registry
	if k := registry[res.Kind]; k != nil {
		render = k.render
	}
	if res.After, err = json.Marshal(render(o.After)); err != nil {
		return err
	}
	switch {
	case res.Action == api.ApplyUnchanged:
		res.Before = res.After
	case o.Before != nil:
		res.Before, err = json.Marshal(render(o.Before))
	}
	return err
}

// compareSet returns the differences between a request's objects and a set's.
func (s *objectHandlers) compareSet(ctx context.Context, a control.Actor, set string, answer *api.ApplyResponse) error {
	members, err := s.control.Ownership.SetMembers(ctx, a, set)
	if err != nil {
		return err
	}
	for _, r := range answer.Results {
		o := model.Owned{Kind: r.Kind, Key: r.Key}
		if !members[o] && r.Action != api.ApplyCreated {
			answer.Others = append(answer.Others, api.ObjectName(o))
		}
		delete(members, o)
	}
	for o := range members {
		answer.Left = append(answer.Left, api.ObjectName(o))
	}
	slices.SortFunc(answer.Left, func(a, b api.ObjectName) int { return strings.Compare(a.Kind+" "+a.Key, b.Kind+" "+b.Key) })
	return nil
}

// list is what the objects of a list are to become.
type list struct {
	changes []control.Change
	results []api.ApplyResult // each with kind, key and warnings
}

// changesOf reads the objects of a list.
func (s *objectHandlers) changesOf(objects []json.RawMessage) (l list, err error) {
	if n := len(objects); n > maxListed {
		return l, model.Errorf(model.ErrInvalid, "objects: must be at most %d in one list, and not %d: give several", maxListed, n)
	}
	l = list{make([]control.Change, len(objects)), make([]api.ApplyResult, len(objects))}
	var wrong control.ChangeErrors
	for i, object := range objects {
		k, body, err := kindOf(object)
		var want desiredWrite
		if err == nil {
			want, err = k.read(s.control, body)
		}
		if err != nil {
			wrong = append(wrong, &control.ChangeError{Index: i, Err: err})
			if len(wrong) > maxFaults { // the last is not told: see faultsOf
				break
			}
			continue
		}
		l.changes[i] = want.change
		l.results[i] = api.ApplyResult{Kind: k.name, Key: want.key, Warnings: append(want.warnings, clusterWarnings(s.control, want.object)...)}
	}
	if wrong != nil {
		return list{}, wrong
	}
	return l, nil
}

// kindOf finds an object's kind and returns its fields without it.
func kindOf(object []byte) (k *kind, body []byte, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, nil, model.Errorf(model.ErrInvalid, "must be a JSON object with a kind")
	}
	wrong := func(value string) error {
		return model.InvalidField("kind", value, "must be one of "+strings.Join(Kinds(), ", "))
	}
	var name string
	if err := json.Unmarshal(fields["kind"], &name); err != nil {
		return nil, nil, wrong(string(fields["kind"]))
	}
	k, ok := registry[name]
	switch {
	case slices.Contains(slices.Collect(maps.Values(unsupportedKinds)), name):
		return nil, nil, errUnsupported(name)
	case !ok:
		return nil, nil, wrong(name)
	}
	if err := k.names.unambiguous(object); err != nil {
		return nil, nil, err
	}
	for _, name := range append([]string{"kind"}, serverFields...) {
		delete(fields, name)
	}
	body, err = json.Marshal(fields)
	return k, body, err
}
