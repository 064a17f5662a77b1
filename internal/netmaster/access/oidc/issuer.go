package oidc

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// How often the issuer is asked: a token with a key that is not known is worth a
// look at the issuer's keys, and anybody can make such tokens.
const (
	requestInterval = 5 * time.Second
	requestBurst    = 4
	retryAfter      = requestInterval
)

// maxAnswer is the longest answer of the issuer that is read, in bytes.
const maxAnswer = 1 << 20

// errTooManyRequests is that the issuer was asked enough.
var errTooManyRequests = errors.New("the issuer was asked for its keys moments ago")

// issuer is the way to an issuer.
type issuer struct {
	client  *http.Client
	limiter *rate.Limiter
	now     func() time.Time
}

// awayError is that the issuer could not be asked, or does not answer as it should.
type awayError struct{ error }

func (e *awayError) Unwrap() error { return e.error }

func newIssuer(cfg Config, now func() time.Time) *issuer {
	i := &issuer{limiter: rate.NewLimiter(rate.Every(requestInterval), requestBurst), now: now}
	base := http.DefaultTransport
	if cfg.Client != nil && cfg.Client.Transport != nil {
		base = cfg.Client.Transport
	}
	i.client = &http.Client{Timeout: cfg.Timeout, Transport: &transport{issuer: i, base: base}}
	return i
}

// transport is the way of every request to the issuer: not too often, and with an
// answer of bounded length.
type transport struct {
	issuer *issuer
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("ask the issuer at %s: not without TLS", r.URL.Host)
	}
	if !t.issuer.limiter.AllowN(t.issuer.now(), 1) {
		return nil, errTooManyRequests
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
