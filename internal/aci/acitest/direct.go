package acitest

import (
	"errors"
	"net/http"
	"net/http/httptest"
)

// Direct is a transport to a handler without a network between, for many requests.
// A handler that aborts is a connection that breaks.
func Direct(h http.Handler) http.RoundTripper { return direct{h} }

type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			resp, err = nil, errors.New("the connection broke")
		}
	}()
	d.h.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}
