package etcd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A stalled server accepts requests and does not answer. gRPC's pings find it after 13 s;
// endpointHealth finds it after 6 s at most, and only where there is another server.
const (
	silenceBeforePing    = 2 * time.Second // how long a connection may be silent before it is asked for a message
	pingTimeout          = time.Second     // how long that message may take before all servers are asked
	stalledCheckInterval = 8 * time.Second // between two rounds when all have answered: pings judge that connection
	recoveryInterval     = 2 * time.Second // how often stalled servers are asked
)

// endpointHealth finds servers that have stalled by the connections on which mirrors wait,
// and keeps the client from using them until they answer. It owns the client's endpoints.
type endpointHealth struct {
	etcd          *clientv3.Client
	log           *slog.Logger
	noWatchCounts atomic.Bool // the server, such as etcd's gRPC proxy, has no numbers of watches

	running  sync.WaitGroup
	checking sync.Mutex // held while all servers are asked

	mu        sync.Mutex
	by        map[string]*streamConn // by the address of the server
	all       []string               // endpoints, of which some may be out
	stalled   []string               // of them, the stalled ones: no new request goes there
	asking    bool                   // a goroutine asks the stalled ones
	checkedAt time.Time
}

// streamConn is one connection with the mirrors' streams on it: what one of them hears is a
// word for all.
type streamConn struct {
	heard   atomic.Bool
	streams []*connStream
	stop    context.CancelFunc
}

// connStream is a mirror's stream. A word is asked for by sending the request again that
// began its one watch: etcd has a watch of that number, and says so. Asked for progress,
// etcd would be silent until something is written after the watch began.
type connStream struct {
	stream pb.Watch_WatchClient
	again  *pb.WatchRequest
	end    context.CancelFunc
}

// watch watches the connection of a mirror's stream, on which nothing further may be sent.
// It calls end when the server has stalled. The caller calls word for each message, and done
// at the end.
func (h *endpointHealth) watch(stream pb.Watch_WatchClient, again *pb.WatchRequest, end context.CancelFunc) (word, done func()) {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil || len(h.etcd.Endpoints()) == 0 { // the embedded one
		return func() {}, func() {}
	}
	addr, on := p.Addr.String(), &connStream{stream, again, end}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.by[addr]
	if l == nil {
		ctx, stop := context.WithCancel(h.etcd.Ctx())
		l = &streamConn{stop: stop}
		if h.by == nil {
			h.by = map[string]*streamConn{}
		}
		h.by[addr] = l
		h.running.Go(func() { h.listen(ctx, l) })
	}
	l.streams = append(l.streams, on)
	return func() { l.heard.Store(true) }, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		l.streams = slices.DeleteFunc(l.streams, func(o *connStream) bool { return o == on })
		if len(l.streams) == 0 {
			l.stop()
			delete(h.by, addr)
		}
	}
}

// listen asks for a word when there was none, until ctx ends, and ends the streams if
// none comes from a server that does not answer otherwise either.
func (h *endpointHealth) listen(ctx context.Context, l *streamConn) {
	timer := time.NewTimer(silenceBeforePing)
	defer timer.Stop()
	for asked := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		switch {
		case l.heard.Swap(false) || h.noWatchCounts.Load() || len(h.allEndpoints()) < 2:
			asked = false
			timer.Reset(silenceBeforePing)
		case !asked:
			asked = true
			h.mu.Lock()
			if len(l.streams) > 0 {
				// If it fails, Recv tells why.
				_ = l.streams[0].stream.Send(l.streams[0].again)
			}
			h.mu.Unlock()
			timer.Reset(pingTimeout)
		default:
			asked = false
			if h.anyStalled(ctx) && !l.heard.Load() {
				h.mu.Lock()
				for _, o := range l.streams {
					o.end()
				}
				h.mu.Unlock()
			}
			timer.Reset(silenceBeforePing)
		}
	}
}

// anyStalled asks all servers, unless it did so just now, takes out the ones that do not
// answer while others do, and reports whether any is out.
func (h *endpointHealth) anyStalled(ctx context.Context) bool {
	h.checking.Lock()
	defer h.checking.Unlock()
	h.mu.Lock()
	fresh := time.Since(h.checkedAt) < stalledCheckInterval
	h.mu.Unlock()
	if !fresh {
		all := h.allEndpoints()
		still := h.stalledOf(ctx, all)
		if ctx.Err() != nil {
			return false
		}
		h.mu.Lock()
		h.checkedAt = time.Now()
		h.mu.Unlock()
		if len(still) < len(all) {
			h.excludeStalled(still)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.stalled) > 0
}

// stalledOf asks servers and returns the ones that accept the request and do not answer. A
// server that is gone refuses the connection, and gRPC knows.
func (h *endpointHealth) stalledOf(ctx context.Context, endpoints []string) []string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	still := make([]bool, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			_, err := h.etcd.Status(ctx, endpoint)
			still[i] = errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
		})
	}
	asking.Wait()
	var out []string
	for i, endpoint := range endpoints {
		if still[i] {
			out = append(out, endpoint)
		}
	}
	return out
}

// excludeStalled keeps new requests from the given servers.
func (h *endpointHealth) excludeStalled(out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, endpoint := range out {
		if !slices.Contains(h.stalled, endpoint) {
			h.log.Warn("an etcd has stalled, and is not used until it answers", "endpoint", endpoint)
		}
	}
	h.setStalled(out)
	if len(h.stalled) > 0 && !h.asking && h.etcd.Ctx().Err() == nil {
		h.asking = true
		h.running.Go(func() { h.readmit(h.etcd.Ctx()) })
	}
}

func (h *endpointHealth) setStalled(out []string) {
	if slices.Equal(out, h.stalled) {
		return
	}
	if h.all == nil {
		h.all = slices.Clone(h.etcd.Endpoints())
	}
	in := slices.DeleteFunc(slices.Clone(h.all), func(e string) bool { return slices.Contains(out, e) })
	if len(in) == 0 {
		in, out = slices.Clone(h.all), nil
	}
	h.stalled = out
	h.etcd.SetEndpoints(in...)
}

// readmit asks the servers that are out until none is, or ctx ends.
func (h *endpointHealth) readmit(ctx context.Context) {
	pause := time.NewTicker(recoveryInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		h.mu.Lock()
		out := slices.Clone(h.stalled)
		h.mu.Unlock()
		still := h.stalledOf(ctx, out)
		h.mu.Lock()
		for _, endpoint := range out {
			if !slices.Contains(still, endpoint) && slices.Contains(h.stalled, endpoint) {
				h.log.Info("an etcd that had stalled answers again", "endpoint", endpoint)
			}
		}
		if ctx.Err() == nil {
			h.setStalled(slices.DeleteFunc(slices.Clone(h.stalled), func(e string) bool {
				return slices.Contains(out, e) && !slices.Contains(still, e)
			}))
		}
		if h.asking = len(h.stalled) > 0; !h.asking {
			h.checkedAt = time.Time{}
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// SetEndpoints makes the client use other servers, URLs as ParseEndpoints returns them.
// Requests to servers that stay go on.
func (c *Client) SetEndpoints(urls []string) { c.health.setEndpoints(urls) }

func (h *endpointHealth) setEndpoints(urls []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(h.stalled), func(e string) bool { return !slices.Contains(urls, e) })
	h.all, h.stalled = slices.Clone(urls), nil
	h.etcd.SetEndpoints(urls...)
	h.setStalled(out)
}

// allEndpoints are the client's endpoints, stalled ones too.
func (h *endpointHealth) allEndpoints() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all != nil {
		return slices.Clone(h.all)
	}
	return h.etcd.Endpoints()
}
