package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A server that stands still takes what is sent to it, and nothing comes. gRPC's pings
// tell that after 13 s; what follows tells it after 6 s at most, and only where there is
// another server to go to.
const (
	quietToAsk = 2 * time.Second // how long a connection may be silent before it is asked for a word
	askToLook  = time.Second     // how long that word may take before all servers are asked
	lookPause  = 8 * time.Second // between such questions when all have answered: pings judge that connection
	backPeriod = 2 * time.Second // how often those that stood still are asked
)

// lines are the connections on which mirrors wait, and the servers that stand still.
// Its zero value is ready.
type lines struct {
	mu      sync.Mutex
	by      map[string]*line // by the address of the server
	all     []string         // endpoints, of which some may be out
	out     []string         // of them, those that stand still: nothing new is asked of them
	asking  bool             // somebody asks those that are out
	looked  time.Time
	looking sync.Mutex // held while all are asked
	running sync.WaitGroup
	mute    atomic.Bool // what is there, such as etcd's gRPC proxy, has no numbers of watches
}

// line is one connection with the mirrors' streams on it: what one of them hears is a
// word for all.
type line struct {
	heard   atomic.Bool
	streams []*onLine
	stop    context.CancelFunc
}

// onLine is a mirror's stream. A word is asked for by sending the request again that
// began its one watch: etcd has a watch of that number, and says so. Asked for progress,
// etcd would be silent until something is written after the watch began.
type onLine struct {
	stream pb.Watch_WatchClient
	again  *pb.WatchRequest
	end    context.CancelFunc
}

// hear watches over the connection of a mirror's stream, on which nothing further may
// be sent: end is called when its server stands still. word is to be called with
// whatever comes, done at the end.
func (c *Client) hear(stream pb.Watch_WatchClient, again *pb.WatchRequest, end context.CancelFunc) (word, done func()) {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil || len(c.etcd.Endpoints()) == 0 { // the embedded one
		return func() {}, func() {}
	}
	addr, on, ls := p.Addr.String(), &onLine{stream, again, end}, &c.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.by[addr]
	if l == nil {
		ctx, stop := context.WithCancel(c.etcd.Ctx())
		l = &line{stop: stop}
		if ls.by == nil {
			ls.by = map[string]*line{}
		}
		ls.by[addr] = l
		ls.running.Go(func() { c.listen(ctx, l) })
	}
	l.streams = append(l.streams, on)
	return func() { l.heard.Store(true) }, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		l.streams = slices.DeleteFunc(l.streams, func(o *onLine) bool { return o == on })
		if len(l.streams) == 0 {
			l.stop()
			delete(ls.by, addr)
		}
	}
}

// listen asks for a word when there was none, until ctx ends, and ends the streams if
// none comes from a server that does not answer otherwise either.
func (c *Client) listen(ctx context.Context, l *line) {
	timer := time.NewTimer(quietToAsk)
	defer timer.Stop()
	for asked := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		switch {
		case l.heard.Swap(false) || c.lines.mute.Load() || len(c.allEndpoints()) < 2:
			asked = false
			timer.Reset(quietToAsk)
		case !asked:
			asked = true
			c.lines.mu.Lock()
			if len(l.streams) > 0 {
				// If it fails, Recv tells why.
				_ = l.streams[0].stream.Send(l.streams[0].again)
			}
			c.lines.mu.Unlock()
			timer.Reset(askToLook)
		default:
			asked = false
			if c.someStill(ctx) && !l.heard.Load() {
				c.lines.mu.Lock()
				for _, o := range l.streams {
					o.end()
				}
				c.lines.mu.Unlock()
			}
			timer.Reset(quietToAsk)
		}
	}
}

// someStill asks all servers, unless it was done just now, takes those out that do not
// answer while others do, and tells whether any is out.
func (c *Client) someStill(ctx context.Context) bool {
	ls := &c.lines
	ls.looking.Lock()
	defer ls.looking.Unlock()
	ls.mu.Lock()
	fresh := time.Since(ls.looked) < lookPause
	ls.mu.Unlock()
	if !fresh {
		all := c.allEndpoints()
		still := c.stillOf(ctx, all)
		if ctx.Err() != nil {
			return false
		}
		ls.mu.Lock()
		ls.looked = time.Now()
		ls.mu.Unlock()
		if len(still) < len(all) {
			c.takeOut(still)
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.out) > 0
}

// stillOf asks servers and returns those that take the question and do not answer:
// one that is gone refuses the connection, and gRPC knows.
func (c *Client) stillOf(ctx context.Context, endpoints []string) []string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	still := make([]bool, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			_, err := c.etcd.Status(ctx, endpoint)
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

// takeOut has only servers asked that are not out.
func (c *Client) takeOut(out []string) {
	ls := &c.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, endpoint := range out {
		if !slices.Contains(ls.out, endpoint) {
			c.log.Warn("an etcd stands still, and is not asked until it answers", "endpoint", endpoint)
		}
	}
	c.setOutLocked(out)
	if len(ls.out) > 0 && !ls.asking && c.etcd.Ctx().Err() == nil {
		ls.asking = true
		ls.running.Go(func() { c.bringBack(c.etcd.Ctx()) })
	}
}

func (c *Client) setOutLocked(out []string) {
	ls := &c.lines
	if slices.Equal(out, ls.out) {
		return
	}
	if ls.all == nil {
		ls.all = slices.Clone(c.etcd.Endpoints())
	}
	in := slices.DeleteFunc(slices.Clone(ls.all), func(e string) bool { return slices.Contains(out, e) })
	if len(in) == 0 {
		in, out = slices.Clone(ls.all), nil
	}
	ls.out = out
	c.etcd.SetEndpoints(in...)
}

// bringBack asks those that are out until none is, or ctx ends.
func (c *Client) bringBack(ctx context.Context) {
	ls := &c.lines
	pause := time.NewTicker(backPeriod)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		ls.mu.Lock()
		out := slices.Clone(ls.out)
		ls.mu.Unlock()
		still := c.stillOf(ctx, out)
		ls.mu.Lock()
		for _, endpoint := range out {
			if !slices.Contains(still, endpoint) && slices.Contains(ls.out, endpoint) {
				c.log.Info("an etcd that stood still answers", "endpoint", endpoint)
			}
		}
		if ctx.Err() == nil {
			c.setOutLocked(slices.DeleteFunc(slices.Clone(ls.out), func(e string) bool {
				return slices.Contains(out, e) && !slices.Contains(still, e)
			}))
		}
		if ls.asking = len(ls.out) > 0; !ls.asking {
			ls.looked = time.Time{}
			ls.mu.Unlock()
			return
		}
		ls.mu.Unlock()
	}
}

// SetEndpoints makes the client ask other servers, URLs as ParseEndpoints returns them;
// what is asked of one that stays goes on.
func (c *Client) SetEndpoints(urls []string) {
	ls := &c.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(ls.out), func(e string) bool { return !slices.Contains(urls, e) })
	ls.all, ls.out = slices.Clone(urls), nil
	c.etcd.SetEndpoints(urls...)
	c.setOutLocked(out)
}

// allEndpoints are those that the client was given, also those that stand still.
func (c *Client) allEndpoints() []string {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	if c.lines.all != nil {
		return slices.Clone(c.lines.all)
	}
	return c.etcd.Endpoints()
}
