package apiserver

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
)

// memberHandlers answers for the members of a store that netmasters are by themselves.
type memberHandlers struct {
	*serverContext
	members Members // nil = the store is not netmasters' own
}

// Members are the netmasters that are a replicated store by themselves.
type Members interface {
	Members(ctx context.Context) (api.Members, error)
	NewJoinToken(ctx context.Context, life time.Duration) (api.JoinToken, error)              // life 0 = the default
	NewHostToken(ctx context.Context, host string, life time.Duration) (api.JoinToken, error) // as NewJoinToken
	RemoveMember(ctx context.Context, member string, force bool) error
	RelieveMembers(ctx context.Context) error
	RenewAuthorities(ctx context.Context) error
}

// memberTime bounds a change of the members. It goes on when who asked has gone: half
// a change has to be repeated.
const memberTime = 28 * time.Second

func (s *server) handleMembers() {
	s.router.handle("GET", "/api/v1/cluster/members", access.View, nil, s.members.clusterMembers)
	s.router.handle("POST", "/api/v1/cluster/tokens", access.AdminOnly, nil, s.members.newJoinToken)
	s.router.handle("DELETE", "/api/v1/cluster/members/{name}", access.AdminOnly, namedResource("member", "name"), s.members.removeMember)
	s.router.handle("POST", "/api/v1/cluster/relieve", access.AdminOnly, nil, s.members.relieveMembers)
	s.router.handle("POST", "/api/v1/cluster/authorities/renew", access.AdminOnly, nil, s.members.renewAuthorities)
}

// embedded returns the members, or says whose matter they are.
func (s *memberHandlers) embedded() (Members, error) {
	if s.members == nil {
		return nil, model.Errorf(model.ErrConflict, "the cluster's state is in an external store (--etcd-endpoints, --consul-endpoints): manage its members there")
	}
	return s.members, nil
}

func (s *memberHandlers) clusterMembers(_ http.ResponseWriter, r *request) (any, error) {
	m, err := s.embedded()
	if err != nil {
		return nil, err
	}
	return m.Members(r.Context())
}

func (s *memberHandlers) newJoinToken(w http.ResponseWriter, r *request) (any, error) {
	var q api.JoinTokenRequest
	if _, err := decode(w, r, &q); err != nil {
		return nil, err
	}
	m, err := s.embedded()
	if err != nil {
		return nil, err
	}
	if q.ExpiresInSeconds < 0 || q.ExpiresInSeconds > math.MaxInt64/int64(time.Second) {
		return nil, model.InvalidField("expiresInSeconds", q.ExpiresInSeconds, "must be from 1 to 604800")
	}
	life := time.Duration(q.ExpiresInSeconds) * time.Second
	var t api.JoinToken
	if q.Host != "" {
		t, err = m.NewHostToken(r.Context(), q.Host, life)
	} else {
		t, err = m.NewJoinToken(r.Context(), life)
	}
	if err != nil {
		return nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	s.log.Info("a join token was created", "token", t.ID, "host", q.Host, "expires", t.Expires)
	return t, nil
}

func (s *memberHandlers) removeMember(_ http.ResponseWriter, r *request) (any, error) {
	force, err := boolQuery(r, "force")
	if err != nil {
		return nil, err
	}
	return s.changeMembers(r, func(ctx context.Context, m Members) error {
		return m.RemoveMember(ctx, r.PathValue("name"), force)
	})
}

// defragmentRequest is the body of a request that says all by its path.
type defragmentRequest struct{}

// renewRequest is as defragmentRequest.
type renewRequest struct{}

func (s *memberHandlers) relieveMembers(w http.ResponseWriter, r *request) (any, error) {
	if _, err := decode(w, r, &defragmentRequest{}); err != nil {
		return nil, err
	}
	return s.changeMembers(r, func(ctx context.Context, m Members) error { return m.RelieveMembers(ctx) })
}

func (s *memberHandlers) renewAuthorities(w http.ResponseWriter, r *request) (any, error) {
	if _, err := decode(w, r, &renewRequest{}); err != nil {
		return nil, err
	}
	return s.changeMembers(r, func(ctx context.Context, m Members) error { return m.RenewAuthorities(ctx) })
}

// changeMembers makes a change and answers with the members after it; a member that
// has removed itself cannot tell them.
func (s *memberHandlers) changeMembers(r *request, change func(context.Context, Members) error) (any, error) {
	m, err := s.embedded()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), memberTime)
	defer cancel()
	if err := change(ctx, m); err != nil {
		return nil, err
	}
	after, err := m.Members(ctx)
	if err != nil {
		s.log.Warn("the members have changed and cannot be listed now", "error", err)
		return api.Members{Members: []api.Member{}, Warnings: []string{"the members cannot be listed now: " + err.Error()}}, nil
	}
	return after, nil
}

// storeMembers are the members of a store of several, for the status: each is a
// server of it.
func (s *memberHandlers) storeMembers(ctx context.Context) (servers []api.StoreServer, warnings []string) {
	if s.members == nil {
		return nil, nil
	}
	m, err := s.members.Members(ctx)
	if err != nil { // what the store's server says tells more
		return nil, nil
	}
	embedded := false
	for _, x := range m.Members {
		if x.Role == "waiting" || x.Role == "removed" {
			continue
		}
		embedded = embedded || x.Version != "" // members beside an external store have no etcd
		server := api.StoreServer{Address: x.Name + " (" + x.Address + ")", Version: x.Version, Leads: x.Leads, Size: x.Size, Quota: x.Quota, Error: x.Error}
		if x.Full {
			server.Alarms = []string{model.AlarmEmbeddedFull}
		}
		servers = append(servers, server)
	}
	if len(servers) < 2 || !embedded {
		servers = nil
	}
	return servers, m.Warnings
}
