package httpguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxText is the longest sentence, in bytes.
const maxText = 1000

// Refusal is an error that says what a client is answered.
type Refusal struct {
	Status int           // of HTTP: 400, 401, 403, 413, 429 or 503
	Kind   string        // of api.Error
	Text   string        // a sentence, with what to do
	After  time.Duration // until it is worth another try; 0 = nothing is said of it
	Cause  error         // for logs, not for the client; nil = none
}

func (r *Refusal) Error() string { return r.Text }

func (r *Refusal) Unwrap() error { return r.Cause }

func refuse(status int, kind, format string, args []any) *Refusal {
	return &Refusal{Status: status, Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Unauthorized says that the client is not authenticated: 401.
func Unauthorized(format string, args ...any) *Refusal {
	return refuse(http.StatusUnauthorized, api.KindUnauthorized, format, args)
}

// Forbidden says that who asks may not: 403.
func Forbidden(format string, args ...any) *Refusal {
	return refuse(http.StatusForbidden, api.KindForbidden, format, args)
}

// TooLarge says that a body is larger than limit bytes: 413.
func TooLarge(limit int64) *Refusal {
	return refuse(http.StatusRequestEntityTooLarge, api.KindTooLarge, "body: must be at most %d bytes", []any{limit})
}

// TooMany says that a client asks too often: 429.
func TooMany(after time.Duration, format string, args ...any) *Refusal {
	r := refuse(http.StatusTooManyRequests, api.KindTooMany, format, args)
	r.After = after
	return r
}

// Unavailable says that it cannot be found out now, for a cause: 503.
func Unavailable(after time.Duration, cause error, format string, args ...any) *Refusal {
	r := refuse(http.StatusServiceUnavailable, api.KindUnavailable, format, args)
	r.After, r.Cause = after, cause
	return r
}

// RefusalOf makes a Refusal of any error: one that is none is model.ErrUnavailable, whose
// text is for clients, or a fault of ours, whose text is not.
func RefusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	if errors.Is(err, model.ErrUnavailable) {
		return Unavailable(time.Second, err, "%v", err)
	}
	return Unavailable(time.Second, err, "it could not be found out who asks, or what may be done: see the server's log")
}

// Write answers with the refusal: as JSON to who accepts that, otherwise as text.
func (r *Refusal) Write(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	switch r.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="netmaster"`)
	case http.StatusRequestEntityTooLarge:
		h.Set("Connection", "close") // the rest of the body is not read
	}
	if r.After > 0 {
		h.Set("Retry-After", strconv.Itoa(int((r.After+time.Second-1)/time.Second)))
	}
	text := plain(r.Text)
	body, contentType := []byte(text), "text/plain; charset=utf-8"
	if strings.Contains(req.Header.Get("Accept"), "application/json") {
		if b, err := json.Marshal(api.Error{Kind: r.Kind, Message: text}); err == nil {
			body, contentType = b, "application/json"
		}
	}
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(r.Status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

// Clip shortens what a client has sent, so that it can be part of a sentence.
func Clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "..."
	}
	return plain(s)
}

func plain(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
}
