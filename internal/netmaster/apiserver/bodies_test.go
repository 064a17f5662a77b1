package apiserver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
)

// Large bodies are read a few at a time, per client and in total; small ones always, and an
// answer makes room. Anonymous clients are refused, and take no room.
func TestLargeBodiesAreReadAFewAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := startAsking(t, nil)
	f.s.routeOf(t, "POST /api/v1/apply").prepare = func(_ http.ResponseWriter, r *request) (access.Resource, func() (any, error), error) {
		return access.Resource{Tenants: []string{"blue"}}, func() (any, error) {
			if r.Header.Get("Hold") != "" {
				entered <- struct{}{}
				<-leave
			}
			return "", nil
		}, nil
	}
	list := []byte(`{"objects":[{"kind":"network","tenantName":"blue"}]` + strings.Repeat(" ", MaxApplyBody-100) + "}")
	ask := func(who string, body []byte, length int64, hold string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/apply", bytes.NewReader(body))
		r.ContentLength = length
		r.Header.Set("Authorization", "Bearer is-"+who)
		r.Header.Set("Hold", hold)
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		return w
	}
	large := int64(len(list))
	ended := make(chan int)
	hold := func(who string) {
		t.Helper()
		go func() { ended <- ask(who, list, -1, "yes").Code }()
		select {
		case <-entered:
		case code := <-ended:
			t.Fatalf("%s is answered %d", who, code)
		}
	}
	refused := func(who, text string, length int64) {
		t.Helper()
		w := ask(who, list, length, "")
		if after, err := strconv.Atoi(w.Header().Get("Retry-After")); w.Code != http.StatusTooManyRequests || err != nil || after < 1 || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d %q, Retry-After %d", who, w.Code, w.Body, after)
		}
	}
	hold("blue")
	hold("blue")
	refused("blue", "of yours", large)
	refused("blue", "of yours", -1)
	small := list[:len(`{"objects":[{"kind":"network","tenantName":"blue"}]`)]
	small = append(bytes.Clone(small), '}')
	if w := ask("blue", small, int64(len(small)), ""); w.Code != http.StatusOK {
		t.Errorf("a small list: %d %s", w.Code, w.Body)
	}
	hold("root")
	hold("root")
	refused("both", "large requests are", large)
	if w := ask("stranger", list, large, ""); w.Code != http.StatusUnauthorized {
		t.Errorf("who is not known: %d %s", w.Code, w.Body)
	}
	if w := ask("viewer", list, large, ""); w.Code != http.StatusForbidden {
		t.Errorf("who may not: %d %s", w.Code, w.Body)
	}
	for range 4 {
		leave <- struct{}{}
		if code := <-ended; code != http.StatusOK {
			t.Errorf("a large list is answered %d", code)
		}
	}
	if w := ask("blue", list, large, ""); w.Code != http.StatusOK {
		t.Errorf("when all are answered: %d %s", w.Code, w.Body)
	}
}

// Who has one of two large bodies answered has room for one more, and not for two; when all
// are answered, nothing is counted.
func TestAnsweredBodiesMakeRoom(t *testing.T) {
	var b bodyBudget
	var done []func()
	r := &http.Request{ContentLength: MaxApplyBody}
	for i, yes := range []bool{true, true, false, true, false} {
		if i == 3 {
			done[0]()
		}
		end, err := b.take(somebody("blue"), r, MaxApplyBody)
		if (err == nil) != yes {
			t.Errorf("body %d: %v", i, err)
		}
		if err == nil {
			done = append(done, end)
		}
	}
	for _, end := range done[1:] {
		end()
	}
	if b.all != 0 || len(b.of) > 0 {
		t.Errorf("%d are counted, %v", b.all, b.of)
	}
}

// Without authentication all clients are one, and bodies are not counted.
func TestBodiesAreNotCountedWithoutAuthentication(t *testing.T) {
	f := startAsking(t, func(c *Config) { c.Authenticate = nil })
	f.s.router.bodies.all = maxAllBodies
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/apply", strings.NewReader(`{"objects":[]}`))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	if f.h.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A list of very many objects is refused before they are looked at.
func TestLongListsAreRefusedUnread(t *testing.T) {
	f := startAsking(t, nil)
	body := `{"objects":[` + strings.Repeat(`{"kind":"x"},`, maxListed) + `{}]}`
	for who, want := range map[string]string{"blue": "must be at most 100000", "root": "must be at most 100000"} {
		w := f.ask(who, http.MethodPost, "/api/v1/apply", body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) || w.Body.Len() > 1000 {
			t.Errorf("%s: %d, %d bytes: %.200s", who, w.Code, w.Body.Len(), w.Body)
		}
	}
}
