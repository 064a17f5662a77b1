package access

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/access/refusal"
)

// TestStreamEndsWithToken: who watches by a token watches no more once that is revoked, and
// the stream can say why.
func TestStreamEndsWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Bool
		var why error
		h := New(Config{
			Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				why = context.Cause(r.Context())
			}),
			Bearers: []Bearer{Shared(func(string) bool { return !revoked.Load() })}, Log: discard(),
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/monitor", nil)
		r.Header.Set("Authorization", "Bearer of-somebody")
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-done:
			t.Fatal("it ends with a token that is good")
		case <-time.After(time.Minute):
		}
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
