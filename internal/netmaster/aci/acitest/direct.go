package acitest

import (
	"errors"
	"net/http"
	"net/http/httptest"
)

// Direct is a transport to a simulator without a network between, for many requests.
func Direct(h http.Handler) http.RoundTripper { return direct{h} }

type direct struct{ h http.Handler }

// recorder is what Direct's handler answers to.
type recorder struct {
	*httptest.ResponseRecorder
	broke bool
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	d.h.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if w.broke {
		return nil, errors.New("the connection was lost")
	}
	return w.Result(), nil
}

// cut breaks the connection that w answers on.
func cut(w http.ResponseWriter) {
	if r, ok := w.(*recorder); ok {
		r.broke = true
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close() // it is to break
	}
}
