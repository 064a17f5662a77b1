package apiserver

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// handlePending registers what is about changes that wait to be confirmed.
func (s *server) handlePending() {
	s.router.handle("GET", "/api/v1/pending", access.View, nil, s.objects.pending)
	// What can cut hosts off is for cluster admins.
	handleRead(s.router, "POST", "/api/v1/pending", access.AdminOnly, s.objects.readUnconfirmed, unconfirmedResources, s.objects.applyUnconfirmed).body = MaxApplyBody
	s.router.handle("POST", "/api/v1/pending/{id}/confirm", access.AdminOnly, namedResource("pending", "id"), s.objects.confirm)
	s.router.handle("DELETE", "/api/v1/pending/{id}", access.AdminOnly, namedResource("pending", "id"), s.objects.revert)
}

// confirmRequest is the body of a request that says all by its path.
type confirmRequest struct{}

func (s *objectHandlers) pending(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	out := []api.PendingChange{}
	for _, w := range v.Pending.Waiting() {
		out = append(out, s.pendingChange(w))
	}
	return out, nil
}

func (s *objectHandlers) pendingChange(w control.Waiting) api.PendingChange {
	p := api.PendingChange{
		ID: w.ID, Began: w.Began.UTC().Format(time.RFC3339), Within: int(w.Within / time.Second),
		Left: int(math.Ceil(w.Left.Seconds())), Objects: []api.PendingObject{},
	}
	// A netmaster of another version may have written them.
	if all, err := s.changesOf(w.Objects); err == nil {
		for _, res := range all.results {
			p.Objects = append(p.Objects, api.PendingObject{Kind: res.Kind, Key: res.Key})
		}
	}
	return p
}

// unconfirmedChange is a list of objects, and for how long they wait to be confirmed.
type unconfirmedChange struct {
	list
	objects []json.RawMessage
	within  time.Duration
}

func (s *objectHandlers) readUnconfirmed(w http.ResponseWriter, r *request) (t unconfirmedChange, err error) {
	var req api.PendingRequest
	if _, err := decodeUpTo(w, r, &req, MaxApplyBody); err != nil {
		return t, err
	}
	within, err := time.ParseDuration(req.Within)
	if err != nil {
		return t, model.InvalidField("within", req.Within, "must be a time such as 60s")
	}
	if within%time.Second != 0 { // the remaining time is shown in seconds
		return t, model.InvalidField("within", req.Within, "must be whole seconds")
	}
	t.objects, t.within = req.Objects, within
	t.list, err = s.changesOf(req.Objects)
	return t, err
}

func unconfirmedResources(r *request, t unconfirmedChange) (access.Resource, error) {
	return listResources(r, t.list)
}

// applyUnconfirmed applies a list of objects until it is confirmed or its time is over.
func (s *objectHandlers) applyUnconfirmed(_ http.ResponseWriter, r *request, t unconfirmedChange) (any, error) {
	waits, rev, err := s.control.Pending.Apply(r.Context(), r.actor, t.changes, t.objects, t.within)
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	return s.pendingChange(waits), nil
}

func (s *objectHandlers) confirm(w http.ResponseWriter, r *request) (any, error) {
	if _, err := decode(w, r, &confirmRequest{}); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	rev, err := s.control.Pending.Confirm(r.Context(), r.actor, id, func(objects []json.RawMessage) ([]control.Change, error) {
		all, err := s.changesOf(objects)
		return all.changes, err
	})
	r.committed(rev)
	return api.PendingResponse{ID: id}, err
}

func (s *objectHandlers) revert(_ http.ResponseWriter, r *request) (any, error) {
	id := r.PathValue("id")
	rev, err := s.control.Pending.Revert(r.Context(), r.actor, id)
	r.committed(rev)
	return api.PendingResponse{ID: id}, err
}
