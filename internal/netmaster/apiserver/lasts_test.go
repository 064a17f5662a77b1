package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/refusal"
)

// lookup is a Bearer whose tokens are good unless there is an error.
type lookup func() error

func (lookup) Takes(string) bool { return true }

func (l lookup) Identify(context.Context, string) (access.Identity, error) {
	return access.Identity{Name: "anna", Grants: []access.Grant{{Role: access.ClusterAdmin}}}, l()
}

// TestStreamEndsWithToken: who watches by a token watches no more once that is revoked, and
// the stream can say why.
func TestStreamEndsWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked, unknown atomic.Bool
		var why error
		bearer := lookup(func() error {
			switch {
			case unknown.Load():
				return refusal.Unavailable(0, nil, "the store is away")
			case revoked.Load():
				return refusal.Unauthorized("it was revoked")
			}
			return nil
		})
		s := &router{core: &core{}, mux: http.NewServeMux(), authenticate: func(r *http.Request) (access.Identity, error) {
			return access.Identify(r, []access.Bearer{bearer})
		}}
		s.handleStream("GET", "/api/v1/monitor", access.View, nil, func(_ http.ResponseWriter, r *request) {
			<-r.Context().Done()
			why = context.Cause(r.Context())
		}).lasts = true
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/monitor", nil)
		r.Header.Set("Authorization", "Bearer of-somebody")
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.mux.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-done:
			t.Fatal("it ends with a token that is good")
		case <-time.After(time.Minute):
		}
		unknown.Store(true)
		select {
		case <-done:
			t.Fatal("it ends because the token cannot be looked up")
		case <-time.After(time.Minute):
		}
		unknown.Store(false)
		revoked.Store(true)
		select {
		case <-done:
		case <-time.After(lookAgain + time.Second):
			t.Fatal("it goes on with a token that was revoked")
		}
		if no, ok := errors.AsType[*refusal.Refusal](why); !ok || no.Status != http.StatusUnauthorized {
			t.Errorf("the stream ends because of %v", why)
		}
	})
}
