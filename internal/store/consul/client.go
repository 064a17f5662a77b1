package consul

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// DefaultTimeout bounds one request to Consul.
const DefaultTimeout = 4 * time.Second

// Config says which Consul to use.
type Config struct {
	Endpoints []string      // http(s)://host:port, consul://host:port or host:port of agents or servers; required
	Token     func() string // shows the token of Consul's access control, for each request; nil = none
	Timeout   time.Duration // of one request; 0 = DefaultTimeout
	TLS       *tls.Config   // for https endpoints; nil = the system's roots
	Logger    *slog.Logger  // required
	// Reap makes this client end leases that are no longer renewed, its own and others'. At
	// least one such client has to run. Each lists all leases twice a second, so netmasters
	// do and agents do not.
	Reap bool
	// Agent: this client reads what agents read, and writes nothing.
	Agent bool
}

// Client is a store.Store on Consul.
type Client struct {
	engine.Engine
	clients   []*api.Client // one for each endpoint
	at        atomic.Int32  // the one that answered last
	transport *http.Transport
	urls      []string // of the endpoints
	endpoints string   // the same, to be read
	timeout   time.Duration
	requests  *store.Requests
	log       *slog.Logger
	agent     bool
	denied    atomic.Bool // the last write, by access control
	scanning  atomic.Bool // one of the mirrors waits for scout only
	refused   waiting.Changes
	one       store.OneStore
	life      context.Context // until Close
	end       context.CancelFunc

	// committing is held during a commit: of several at a time all but one would
	// fail at the journal's head.
	committing sync.Mutex
	head       *entry // the newest known; nil = to be read

	reaping sync.WaitGroup
}

var (
	_ store.Store         = (*Client)(nil)
	_ store.CachedUpdater = (*Client)(nil)
	_ store.Backend       = (*Client)(nil)
)

// New makes a client. It does not wait for Consul to answer: requests do, each
// within Timeout. Bad endpoints are model.ErrInvalid.
func New(cfg Config) (*Client, error) {
	endpoints, err := ParseEndpoints(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	c := &Client{urls: endpoints, endpoints: strings.Join(endpoints, ", "), timeout: cfg.Timeout, requests: store.NewRequests(), log: cfg.Logger, agent: cfg.Agent}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	c.transport = transport.Pool(cfg.TLS, 16, c.timeout) // each mirror waits on a connection of its own
	for _, ep := range endpoints {
		a, err := api.NewClient(&api.Config{Address: ep, HttpClient: &http.Client{Transport: tokenTransport{c.transport, cfg.Token}}})
		if err != nil {
			return nil, fmt.Errorf("open Consul client: %w", err)
		}
		c.clients = append(c.clients, a)
	}
	c.Backend = c
	c.one = store.OneStore{Name: "Consul", Flag: form.Flag, Count: func() int { return len(c.urls) }, Ask: c.identify}
	c.life, c.end = context.WithCancel(context.Background())
	if cfg.Reap {
		c.reaping.Go(func() { c.reap(c.life) })
	}
	return c, nil
}

// tokenTransport has requests show the token as it is now.
type tokenTransport struct {
	*http.Transport
	token func() string
}

func (s tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.token != nil {
		r = r.Clone(r.Context()) // which is not to be changed
		r.Header.Set("X-Consul-Token", s.token())
	}
	return s.Transport.RoundTrip(r)
}

// Close ends the connections. Sessions and mirrors have to be ended before.
func (c *Client) Close() error {
	c.end()
	c.reaping.Wait()
	c.one.Close()
	c.transport.CloseIdleConnections()
	return nil
}

// Collectors are the metrics of the requests that this client makes.
func (c *Client) Collectors() []prometheus.Collector { return c.requests.Collectors() }

// tooLarge is how Consul says that a transaction, or a value in one, is.
var tooLarge = regexp.MustCompile(`Request body(\(\d+ bytes\))? too large|Value for key .* is too large`)

// hasNoLeader reports whether Consul has refused a request because it had no leader to give
// it to, so that nothing of it was done. Of a transaction that comes as text only.
func hasNoLeader(err error) bool {
	return strings.Contains(err.Error(), "No cluster leader") || strings.Contains(err.Error(), "rpc error getting client")
}

// ask makes a request, within the timeout, of the endpoint that answered last; one
// that cannot be connected to leaves it to the next. While Consul has no leader it waits
// for one, as etcd's client does, but no longer than for an answer.
func ask[T any](ctx context.Context, c *Client, timeout time.Duration, do func(context.Context, *api.Client) (T, error)) (T, error) {
	var out T
	err := c.one.Check(ctx, c.life)
	if err != nil {
		return out, c.failed(ctx, err)
	}
	rctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first := int(c.at.Load())
	begun := time.Now()
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond, Jitter: 0.5})
	for i := 0; i < len(c.clients); i++ {
		n := (first + i) % len(c.clients)
		if out, err = do(rctx, c.clients[n]); err == nil {
			if c.at.Swap(int32(n)) != int32(n) {
				c.one.Invalidate()
			}
			return out, nil
		}
		if hasNoLeader(err) && time.Since(begun) < c.timeout && retry.Pause(rctx) == nil {
			first, i = n+1, -1
			continue
		}
		// Only what was not sent may be sent again.
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
			c.at.CompareAndSwap(int32(n), int32((n+1)%len(c.clients)))
			break
		}
	}
	return out, c.failed(ctx, err)
}

// failed translates an error of a request made under ctx, the caller's context.
func (c *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if strings.Contains(err.Error(), "ACL not found") { // of a transaction it comes as text only
		return model.Errorf(model.ErrUnavailable, "Consul at %s does not know the token: it was deleted, or belongs to another cluster; write a valid one into the file of --consul-token-file", c.endpoints)
	}
	if tooLarge.MatchString(err.Error()) { // likewise
		return model.Errorf(store.ErrTooLarge, "Consul at %s takes less than its default of 524288 bytes at once, and refuses (%s): leave limits.txn_max_req_len and limits.kv_max_value_size out of its agents' configuration, or raise them to that",
			c.endpoints, strings.TrimPrefix(err.Error(), "Failed request: "))
	}
	if said, ok := errors.AsType[api.StatusError](err); ok {
		if said.Code == http.StatusForbidden {
			return c.forbidden(said.Body)
		}
		return model.Errorf(model.ErrUnavailable, "Consul at %s: %s", c.endpoints, strings.TrimSpace(said.Body))
	}
	if errors.As(err, new(store.SplitError)) {
		return model.Errorf(model.ErrUnavailable, "%w", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return model.Errorf(model.ErrUnavailable, "Consul at %s does not answer", c.endpoints)
	}
	return model.Errorf(model.ErrUnavailable, "Consul at %s: %w", c.endpoints, err)
}

func (c *Client) forbidden(said string) error {
	if c.agent {
		return model.Errorf(model.ErrUnavailable, "Consul at %s refuses the token (%s): allow it to read keys that begin with %soper/, service/ and state/, and with %sjournal/",
			c.endpoints, strings.TrimSpace(said), consulKey(store.Root), ownPrefix)
	}
	return model.Errorf(model.ErrUnavailable, "Consul at %s refuses the token (%s): allow it to write keys that begin with %s",
		c.endpoints, strings.TrimSpace(said), consulKey(strings.TrimSuffix(store.Root, "/")))
}
