package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultTimeout bounds one exchange when the context has no earlier deadline.
const DefaultTimeout = 30 * time.Second

// DefaultPort is netmaster's, added to base URLs that name none.
const DefaultPort = "9999"

const (
	dialTimeout = 5 * time.Second
	maxResponse = 256 << 20
)

// Client talks to one netmaster or to several replicas of it. It is safe for
// concurrent use and keeps connections alive.
type Client struct {
	bases   []*url.URL
	current atomic.Int64 // index of the base that answered last
	http    *http.Client
	timeout time.Duration
	// patience is how long one replica is waited for before the next is asked too.
	patience time.Duration
	header   http.Header
	token    func() string     // nil = none is shown
	warn     func(text string) // nil = warnings are dropped
	check    func(method, path string, body []byte) error
}

// Option adjusts a Client.
type Option func(*Client)

// WithTimeout replaces DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithHTTPClient makes the client use hc and its transport.
func WithHTTPClient(hc *http.Client) Option { return func(c *Client) { c.http = hc } }

// WithHeader adds a header to every request.
func WithHeader(key, value string) Option { return func(c *Client) { c.header.Add(key, value) } }

// WithToken sends a token with every request, which token returns each time; nil = none.
// Over plain http anyone who can read the network can read it.
func WithToken(token func() string) Option { return func(c *Client) { c.token = token } }

// WithWarnings has warn called with each warning that an answer carries: what a
// write set that has no effect. It must be safe for concurrent use.
func WithWarnings(warn func(text string)) Option { return func(c *Client) { c.warn = warn } }

// WithCheck has check called before each request that is no GET: its error is the request's, which
// is not sent then.
func WithCheck(check func(method, path string, body []byte) error) Option {
	return func(c *Client) { c.check = check }
}

// WithPatience sets how long one replica is waited for before the next is asked too.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithTLS sets what https addresses are asked with; nil = the system's
// certificate authorities. WithInsecureTLS comes after it.
func WithTLS(cfg *tls.Config) Option {
	return func(c *Client) {
		if t, ok := c.http.Transport.(*http.Transport); ok && cfg != nil {
			t.TLSClientConfig = cfg.Clone()
		}
	}
}

// WithInsecureTLS skips the verification of the server's certificate.
func WithInsecureTLS() Option {
	return func(c *Client) {
		t, ok := c.http.Transport.(*http.Transport)
		if !ok {
			return
		}
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the caller asks for it (netctl --insecure)
	}
}

// defaultPatience is more than a write takes, and less than people wait for a
// replica that is stopped: its kernel still takes connections.
const defaultPatience = 2 * time.Second

// idleTime is how long an unused connection is kept. It is less than the 10 s that a netmaster
// gives a new connection until its first request. package http dials ahead of need, and does
// not repeat a request that such a connection loses when the server closes it at that moment.
const idleTime = 8 * time.Second

// NewClient returns a client for the replicas at the base URLs in base,
// separated by commas: "http://10.0.0.1:9999,http://10.0.0.2:9999". A missing
// scheme means http, a missing port DefaultPort (https: 443).
func NewClient(base string, opts ...Option) (*Client, error) {
	c := &Client{
		timeout:  DefaultTimeout,
		patience: defaultPatience,
		header:   make(http.Header),
		http: &http.Client{Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   dialTimeout,
			MaxIdleConns:          64,
			MaxIdleConnsPerHost:   32,
			IdleConnTimeout:       idleTime,
			ExpectContinueTimeout: time.Second,
		}},
	}
	for s := range strings.SplitSeq(base, ",") {
		u, err := parseBase(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		c.bases = append(c.bases, u)
	}
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

func parseBase(s string) (*url.URL, error) {
	text := s
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("netmaster URL %q: must be http://host:port or https://host:port", s)
	}
	if u.Port() == "" && u.Scheme == "http" {
		u.Host = net.JoinHostPort(u.Hostname(), DefaultPort)
	}
	u.Host = strings.ToLower(u.Host)
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// URLs returns the base URLs, in the order given.
func (c *Client) URLs() []string {
	var s []string
	for _, u := range c.bases {
		s = append(s, u.String())
	}
	return s
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends one request, in as its JSON body (nil: none), and decodes the
// answer into out (nil: dropped). The path is absolute and escaped. When a
// replica cannot be reached, answers 503, or is silent for two seconds, the next
// one is asked, and the first answer counts. Lists to be applied and other large writes are
// sent to one that has just answered, and to another only when that one fails, since two that
// make the same change would conflict. A request whose effect is not known
// to be repeatable (POST /plugin/allocAddress) is sent again only if it was not
// sent at all, and of several replicas to one that has just answered.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	if err := checkPath(path); err != nil {
		return err
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	if c.check != nil && method != http.MethodGet {
		if err := c.check(method, path, body); err != nil {
			return err
		}
	}
	toOne := path == pathAllocAddress || path == pathApply || path == pathApplyPlan || len(body) > largeResponse
	if toOne && len(c.bases) > 1 {
		c.ask(ctx, http.MethodGet, "/version", nil, false) // finds one that answers; if none does, the request itself tells
	}
	a := c.ask(ctx, method, path, body, toOne)
	if a.err != nil {
		return a.err
	}
	c.emitWarnings(a.warnings)
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(a.data, out); err != nil {
		return fmt.Errorf("%s %s%s: the answer is not netmaster's JSON (%w); is this URL a netmaster?", method, c.bases[a.replica], path, err)
	}
	return nil
}

// replicaResponse is what came of asking one replica.
type replicaResponse struct {
	replica  int
	data     []byte
	warnings []string
	err      error
}

// largeResponse is from how many bytes on a write may take long.
const largeResponse = 64 << 10

// ask asks one replica after the other until one answers; toOne: no other one while one is
// silent.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, toOne bool) replicaResponse {
	repeatable := path != pathAllocAddress
	actx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers := make(chan replicaResponse, len(c.bases))
	first, asked, pending := int(c.current.Load()), 0, 0
	next := func() {
		n := (first + asked) % len(c.bases)
		asked, pending = asked+1, pending+1
		asking.Go(func() {
			a := c.try(actx, c.bases[n], method, path, body)
			a.replica = n
			answers <- a
		})
	}
	next()
	silence := time.NewTicker(c.patience)
	defer silence.Stop()
	var last error
	for {
		var a replicaResponse
		select {
		case a = <-answers:
			pending--
		case <-silence.C:
			if !toOne && asked < len(c.bases) {
				next()
			}
			continue
		}
		refusal, refused := errors.AsType[*Error](a.err)
		switch {
		case ctx.Err() != nil && a.err != nil:
			return replicaResponse{err: fmt.Errorf("%s %s%s: %w", method, c.bases[a.replica], path, ctx.Err())}
		case a.err == nil, refused && refusal.Status != http.StatusServiceUnavailable:
			c.current.Store(int64(a.replica))
			return a
		case !repeatable && !isDialError(a.err):
			return replicaResponse{err: c.unreachable(a.err)}
		}
		// An answer of a live replica tells more than a dead one's silence.
		if _, ok := errors.AsType[*Error](last); !ok {
			last = a.err
		}
		if asked < len(c.bases) {
			next()
		} else if pending == 0 {
			return replicaResponse{err: c.unreachable(last)}
		}
	}
}

func (c *Client) unreachable(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if ue, ok := errors.AsType[*url.Error](err); ok { // its text repeats method and URL
		err = ue.Err
	}
	return &UnreachableError{URLs: c.URLs(), Err: err}
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (c *Client) try(ctx context.Context, base *url.URL, method, path string, body []byte) replicaResponse {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, base.String()+path, r)
	if err != nil {
		return replicaResponse{err: fmt.Errorf("build request: %w", err)}
	}
	req.Header.Set("Accept", "application/json")
	c.sign(req)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return replicaResponse{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return replicaResponse{err: fmt.Errorf("read answer of %s: %w", base, err)}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return replicaResponse{err: readError(resp.StatusCode, resp.Header.Get("Content-Type"), data)}
	}
	return replicaResponse{data: data, warnings: resp.Header.Values("Warning")}
}

// sign adds what the client shows with every request.
func (c *Client) sign(req *http.Request) {
	maps.Copy(req.Header, c.header)
	if c.token != nil {
		req.Header.Set("Authorization", "Bearer "+c.token())
	}
}

// readError reads a refusal: JSON of a server of ours, else text.
func readError(status int, contentType string, data []byte) *Error {
	e := &Error{Status: status}
	if t, _, err := mime.ParseMediaType(contentType); err == nil && t == "application/json" && json.Unmarshal(data, e) == nil && e.Message != "" {
		return e
	}
	return &Error{Status: status, Message: strings.TrimSpace(string(data))}
}

// emitWarnings hands on warnings of the form that netmaster writes: 299 - "text".
func (c *Client) emitWarnings(headers []string) {
	for _, h := range headers {
		quoted, ok := strings.CutPrefix(h, "299 - ")
		text, err := strconv.Unquote(quoted)
		if ok && err == nil && c.warn != nil {
			c.warn(text)
		}
	}
}
