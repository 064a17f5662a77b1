package httpguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

func TestRefusalsHaveStatusAndHeaders(t *testing.T) {
	secret := errors.New("the cause")
	for _, tc := range []struct {
		r      *Refusal
		status int
		kind   string
		after  string
		header string // that there must be
	}{
		{Unauthorized("who is %q?", "x\ny"), 401, api.KindUnauthorized, "", "WWW-Authenticate"},
		{Forbidden("no"), 403, api.KindForbidden, "", ""},
		{TooLarge(7), 413, api.KindTooLarge, "", "Connection"},
		{TooMany(1500*time.Millisecond, "slow down"), 429, "tooMany", "2", "Retry-After"},
		{Unavailable(time.Millisecond, secret, "later"), 503, api.KindUnavailable, "1", "Retry-After"},
		{RefusalOf(model.Errorf(model.ErrUnavailable, "the store is away")), 503, api.KindUnavailable, "1", ""},
		{RefusalOf(secret), 503, api.KindUnavailable, "1", ""},
		{RefusalOf(fmt.Errorf("wrapped: %w", Forbidden("no"))), 403, api.KindForbidden, "", ""},
	} {
		for _, accept := range []string{"", "application/json"} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			req.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			tc.r.Write(w, req)
			text := w.Body.String()
			if accept != "" {
				var e api.Error
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Kind != tc.kind {
					t.Errorf("%v: %s: %v", tc.r, w.Body, err)
				}
				text = e.Message + "\n"
			}
			if w.Code != tc.status || w.Header().Get("Retry-After") != tc.after || strings.Contains(text, secret.Error()) || strings.Count(text, "\n") != 1 {
				t.Errorf("%v: %d, Retry-After %q, %q", tc.r, w.Code, w.Header().Get("Retry-After"), text)
			}
			if tc.header != "" && w.Header().Get(tc.header) == "" {
				t.Errorf("%v: no %s", tc.r, tc.header)
			}
		}
	}
	if !errors.Is(RefusalOf(secret), secret) {
		t.Error("the cause is lost to logs")
	}
}

// Whatever a client sends, a sentence stays one line of bounded text.
func TestRefusalStaysOneLine(t *testing.T) {
	for _, s := range []string{"", "a", "a\x00\x1b[31mb\r\nc", strings.Repeat("é", 3*maxText), "\xff\xfe", strings.Repeat("\n", 2000)} {
		for _, got := range []string{plain(s), Clip(s)} {
			if !utf8.ValidString(got) || len(got) > maxText+3 || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q becomes %q", s, got)
			}
		}
	}
	if len(Clip(strings.Repeat("a", 500))) > 83 {
		t.Error("Clip does not")
	}
}
