package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// DefaultTimeout bounds one request to etcd.
const DefaultTimeout = 4 * time.Second

// requestWindow is how many bytes etcd may send ahead of what has been read.
const requestWindow = 8 << 20

// Config says which etcd to use.
type Config struct {
	Endpoints []string      // http(s)://host:port, etcd://host:port or host:port; required
	Timeout   time.Duration // of one request; 0 = DefaultTimeout
	TLS       *tls.Config   // for https endpoints; nil = the system's roots
	Logger    *slog.Logger  // required
	Agent     bool          // it reads what agents read, and writes nothing
	// UntrustedRemedy is the remedy where one end does not trust the other's certificate; empty
	// = the error names none.
	UntrustedRemedy string
}

// Client is a store.Store on etcd.
type Client struct {
	engine.Engine
	etcd         *clientv3.Client
	kv           pb.KVClient    // for transactions: etcd would copy every compare three times
	watch        pb.WatchClient // for mirrors: a stream that ends with its connection
	requests     *store.Requests
	endpoints    string
	timeout      time.Duration
	log          *slog.Logger
	agent        bool
	denied       atomic.Bool // the last write, by access control
	one          store.OneStore
	health       endpointHealth
	tlsDiagnosis tlsDiagnosis
}

var (
	_ store.Store         = (*Client)(nil)
	_ store.CachedUpdater = (*Client)(nil)
	_ store.Backend       = (*Client)(nil)
)

// Raw is etcd's own client, for rows that are not the tables'. It is closed with this one.
func (c *Client) Raw() *clientv3.Client { return c.etcd }

// New makes a client. It does not wait for etcd to answer: requests do, each
// within Timeout. Bad endpoints are model.ErrInvalid.
func New(cfg Config) (*Client, error) {
	endpoints, err := ParseEndpoints(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(endpoints[0], "https://") {
		cfg.TLS = transport.Client(cfg.TLS)
	} else {
		cfg.TLS = nil
	}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		TLS:       cfg.TLS,
		// Servers before 3.5 refuse pings that come more often than every 5 s.
		DialKeepAliveTime:    6 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialTimeout:          DefaultTimeout,
		// After a long outage gRPC would wait up to two minutes by default.
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 3 * time.Second,
			}),
			// Windows of a fixed size: to adapt them gRPC would ping the server with
			// every answer, which wakes both processes once more.
			grpc.WithInitialWindowSize(requestWindow), grpc.WithInitialConnWindowSize(requestWindow),
			// As etcd's client has it for its own calls.
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		},
		Logger: NewZap(cfg.Logger, zapcore.WriteThenPanic),
	})
	if err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	return newClient(cli, clientv3.RetryKVClient(cli), pb.NewWatchClient(cli.ActiveConnection()), strings.Join(endpoints, ", "), cfg), nil
}

func newClient(cli *clientv3.Client, kv pb.KVClient, watch pb.WatchClient, endpoints string, cfg Config) *Client {
	c := &Client{etcd: cli, kv: kv, watch: watch, requests: store.NewRequests(), endpoints: endpoints, timeout: cfg.Timeout, log: cfg.Logger, agent: cfg.Agent}
	c.health.etcd, c.health.log = cli, cfg.Logger
	c.tlsDiagnosis.tls, c.tlsDiagnosis.remedy = cfg.TLS, cfg.UntrustedRemedy
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	c.one = store.OneStore{Name: "etcd", Flag: form.Flag, Count: func() int { return len(c.health.allEndpoints()) }, Ask: c.identify}
	c.Backend = c
	return c
}

// form is how etcds are named.
var form = store.EndpointForm{Flag: "etcd-endpoints", Server: "etcd", Article: "an", Scheme: "etcd", Port: "2379"}

// ParseEndpoints checks etcd addresses and returns them as URLs. A bare
// host:port and etcd:// (as the documents of 2017 have it) mean http://.
func ParseEndpoints(endpoints []string) ([]string, error) { return form.Parse(endpoints) }

// Close ends the connection. Sessions and mirrors have to be ended before.
func (c *Client) Close() error {
	err := c.etcd.Close()
	c.health.running.Wait()
	c.one.Close()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// requestTimeout bounds one request while no endpoint can be connected to: whether
// one answers shows within this time.
const requestTimeout = time.Second

// within bounds one request.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := c.timeout
	if conn := c.etcd.ActiveConnection(); conn != nil && conn.GetState() == connectivity.TransientFailure {
		timeout = min(timeout, requestTimeout)
	}
	return context.WithTimeout(ctx, timeout)
}

// request makes one request, within its time, and counts how long it took. The error
// is etcd's.
func request[T any](ctx context.Context, c *Client, op string, do func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil { // an etcd in this process may answer all the same
		return none, err
	}
	if err := c.one.Check(ctx, c.etcd.Ctx()); err != nil {
		return none, err
	}
	rctx, cancel := c.within(ctx)
	defer cancel()
	begin := time.Now()
	answer, err := do(rctx)
	if err == nil {
		err = c.belongs(ctx, answer)
	}
	c.requests.Observe(ctx, op, begin, err)
	return answer, err
}

// Collectors are the metrics of the requests that this client makes.
func (c *Client) Collectors() []prometheus.Collector { return c.requests.Collectors() }

// failed translates an error of a request made under ctx, the caller's context.
func (c *Client) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrCompacted // a future revision: etcd was restored from a backup
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return store.ErrSessionLost
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return model.Errorf(store.ErrTooLarge, "write to etcd: %w", err)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return model.Errorf(model.ErrUnavailable, "etcd at %s does not answer%s", c.endpoints, c.diagnosis())
	}
	if why := c.refused(err); why != nil {
		return why
	}
	return model.Errorf(model.ErrUnavailable, "etcd at %s: %w", c.endpoints, err)
}
