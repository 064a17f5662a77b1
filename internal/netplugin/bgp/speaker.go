package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/contiv/netplugin/v2/internal/model"
)

var errClosed = model.Errorf(model.ErrUnavailable, "the BGP speaker is closed")

// bfdWait bounds how long a session waits after a restart for its BFD to be up,
// in detection times: a neighbor without BFD must get its session too.
const bfdWait = 8

// notificationTimeout is how long a speaker that ends waits for its notifications to be sent.
const notificationTimeout = 2 * time.Second

// Options are what a speaker needs besides its configuration.
type Options struct {
	Log *slog.Logger
	// Restarting says that the host's data plane still has what an earlier speaker learned
	// and announced: neighbors are asked to keep its routes (RFC 4724).
	Restarting bool
}

// Speaker is a BGP speaker. It is safe for concurrent use.
type Speaker struct {
	log      *slog.Logger
	sessions *sessions
	learner  *learner

	mu        ctxMutex // over all below
	closed    bool
	cfg       Config
	bgp       *server.BgpServer
	stop      context.CancelFunc // of what follows bgp
	running   sync.WaitGroup
	wanted    []Announcement
	announced map[netip.Prefix]Announcement
	refused   map[string]string
}

// ctxMutex is a mutex that is waited for with a context.
type ctxMutex chan struct{}

func (t ctxMutex) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return model.Errorf(model.ErrUnavailable, "wait for the BGP speaker: %w", ctx.Err())
	}
}

func (t ctxMutex) unlock() { <-t }

// Start makes a speaker that lives until Close. Errors are of kind
// model.ErrInvalid (the configuration), or model.ErrUnavailable (an address
// cannot be listened on).
func Start(ctx context.Context, cfg Config, opts Options) (*Speaker, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	s := &Speaker{log: opts.Log, sessions: newSessions(), learner: newLearner(), mu: make(ctxMutex, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.begin(ctx, cfg, opts.Restarting); err != nil {
		return nil, err
	}
	return s, nil
}

// begin starts the library's server for a complete configuration.
func (s *Speaker) begin(ctx context.Context, cfg Config, restarting bool) error {
	level := &slog.LevelVar{}
	level.Set(slog.LevelDebug)
	s.bgp = server.NewBgpServer(server.LoggerOption(slog.New(&libraryLog{inner: s.log.Handler(), tell: s.sessions.readLog}), level))
	go s.bgp.Serve() // end ends it
	s.cfg, s.announced = cfg, nil
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	fail := func(what string, err error) error {
		return errors.Join(model.Errorf(model.ErrUnavailable, "%s: %w", what, err), s.end(context.WithoutCancel(ctx), false))
	}
	global := &api.Global{Asn: cfg.AS, RouterId: cfg.RouterID.String(), ListenPort: -1}
	if len(cfg.Listen) > 0 {
		global.ListenPort = int32(cfg.Port)
		for _, a := range cfg.Listen {
			global.ListenAddresses = append(global.ListenAddresses, a.String())
		}
	}
	if err := s.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: global}); err != nil {
		return fail("start the BGP speaker", err)
	}
	if err := s.exportOwnOnly(ctx); err != nil {
		return fail("set what is announced", err)
	}
	s.learner.begin(s.bgp, cfg)
	err := s.bgp.WatchEvent(follow, server.WatchEventMessageCallbacks{
		OnPathUpdate: s.learner.changed, OnPathEor: s.learner.ended, OnPeerUpdate: s.peerUpdate,
	}, server.WatchPostUpdate(false, "", ""), server.WatchAdjInWithdraw(), server.WatchEor(false), server.WatchPeer())
	if err != nil {
		return fail("follow the BGP speaker", err)
	}
	s.running.Go(func() { s.learner.run(follow, cfg.RestartTime) })
	for _, n := range cfg.Neighbors {
		if err := s.add(ctx, n, restarting); err != nil {
			return fail("add neighbor "+n.Address.String(), err)
		}
		if restarting && n.BFD != nil {
			s.running.Go(func() { s.release(follow, s.bgp, n) })
		}
	}
	if err := s.announce(); err != nil {
		return errors.Join(err, s.end(context.WithoutCancel(ctx), false))
	}
	return nil
}

// exportOwnOnly has neighbors told of the host's own prefixes alone: a host is no
// way from one of them to another.
func (s *Speaker) exportOwnOnly(ctx context.Context) error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := s.bgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	return s.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies: []*api.Policy{own}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

func (s *Speaker) add(ctx context.Context, n Neighbor, restarting bool) error {
	s.sessions.add(n)
	return s.bgp.AddPeer(ctx, &api.AddPeerRequest{Peer: n.peer(s.cfg.RestartTime, restarting, restarting && n.BFD != nil)})
}

// release lets a session that was held after a restart begin once its BFD is up.
// The neighbor's BFD still stands for the process that ended and will fail: when
// that comes while the session is down for a restart it is nothing new, but it
// would end one that had come back before.
func (s *Speaker) release(ctx context.Context, srv *server.BgpServer, n Neighbor) {
	tick := time.NewTicker(n.BFD.Interval / 2)
	defer tick.Stop()
	given := time.NewTimer(bfdWait * n.BFD.Interval * time.Duration(n.BFD.Multiple))
	defer given.Stop()
	for up := false; !up; {
		select {
		case <-ctx.Done():
			return
		case <-given.C:
			up = true
		case <-tick.C:
			srv.ListBfdPeer(ctx, func(addr string, p *api.BfdPeerState) {
				up = up || addr == n.Address.String() && p.SessionState == api.BfdSessionState_BFD_SESSION_STATE_UP
			})
		}
	}
	// It fails for a neighbor that was removed meanwhile, which needs none.
	_ = srv.EnablePeer(ctx, &api.EnablePeerRequest{Address: n.Address.String()})
}

// Configure makes the speaker what cfg says. Only differences are changed: other neighbors'
// sessions are left alone, and limits, hold time and BFD change without a new session. The
// host's own AS number and the addresses that it listens on cannot be changed in a session:
// all sessions restart then. Errors are of the kinds of Start; a speaker that could not be
// started again is closed.
func (s *Speaker) Configure(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	if err := s.mu.lock(ctx); err != nil {
		return err
	}
	defer s.mu.unlock()
	if s.closed {
		return errClosed
	}
	old := s.cfg
	if cfg.AS != old.AS || cfg.RouterID != old.RouterID || cfg.Port != old.Port || !slices.Equal(cfg.Listen, old.Listen) || cfg.RestartTime != old.RestartTime {
		if err := s.end(ctx, false); err != nil {
			return err
		}
		for _, n := range old.Neighbors {
			s.sessions.remove(n.Address)
		}
		if err := s.begin(ctx, cfg, false); err != nil {
			s.closed = true
			return err
		}
		return nil
	}
	s.learner.configure(cfg)
	for _, n := range old.Neighbors {
		if !slices.ContainsFunc(cfg.Neighbors, func(o Neighbor) bool { return o.Address == n.Address }) {
			if err := s.remove(ctx, n); err != nil {
				return err
			}
		}
	}
	for _, n := range cfg.Neighbors {
		i := slices.IndexFunc(old.Neighbors, func(o Neighbor) bool { return o.Address == n.Address })
		switch {
		case i < 0:
			err = s.add(ctx, n, false)
		case !n.equal(old.Neighbors[i]):
			err = s.change(ctx, n)
		}
		if err != nil {
			return model.Errorf(model.ErrUnavailable, "neighbor %s: %w", n.Address, err)
		}
	}
	s.cfg = cfg
	return nil
}

func (s *Speaker) change(ctx context.Context, n Neighbor) error {
	beyond := s.sessions.change(n)
	if _, err := s.bgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: n.peer(s.cfg.RestartTime, false, false)}); err != nil {
		return err
	}
	if beyond {
		return s.bgp.EnablePeer(ctx, &api.EnablePeerRequest{Address: n.Address.String()})
	}
	return nil
}

func (s *Speaker) remove(ctx context.Context, n Neighbor) error {
	if n.Password != "" { // the listener forgets it only with a change
		n.Password = ""
		if _, err := s.bgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: n.peer(s.cfg.RestartTime, false, true)}); err != nil {
			return model.Errorf(model.ErrUnavailable, "delete the password of neighbor %s: %w", n.Address, err)
		}
	}
	if err := s.bgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: n.Address.String()}); err != nil {
		return model.Errorf(model.ErrUnavailable, "remove neighbor %s: %w", n.Address, err)
	}
	s.sessions.remove(n.Address)
	return nil
}

// Close ends all sessions and returns when the speaker's goroutines have ended.
// With restart, neighbors are not told, so that they keep the routes for
// Config.RestartTime, for the speaker that follows with Options.Restarting;
// without, they take the routes away at once. The error is of kind
// model.ErrUnavailable: ctx ended before. Closing again is nothing.
func (s *Speaker) Close(ctx context.Context, restart bool) error {
	if err := s.mu.lock(ctx); err != nil {
		return err
	}
	defer s.mu.unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.end(ctx, restart)
}

// notifyNeighbors has all sessions end by a notification, and waits until they have, or for
// notificationTimeout. StopBgp alone closes connections that neighbors began while their
// notifications are still to be sent, so that neighbors would keep the routes (gobgp v4.8).
func (s *Speaker) notifyNeighbors(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notificationTimeout)
	defer cancel()
	for _, n := range s.cfg.Neighbors {
		_ = s.bgp.DisablePeer(ctx, &api.DisablePeerRequest{Address: n.Address.String()}) // one that was not added has no session
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		established := false
		err := s.bgp.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
			established = established || p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
		})
		if err != nil || !established {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// end stops the library's server and what follows it.
func (s *Speaker) end(ctx context.Context, restart bool) error {
	if !restart {
		s.notifyNeighbors(ctx)
	}
	done := make(chan error, 1)
	srv := s.bgp
	go func() {
		err := srv.StopBgp(ctx, &api.StopBgpRequest{AllowGracefulRestart: restart})
		srv.Stop() // of BFD, which StopBgp leaves
		done <- err
	}()
	s.stop()
	select {
	case err := <-done:
		s.running.Wait()
		if err != nil {
			return model.Errorf(model.ErrUnavailable, "stop the BGP speaker: %w", err)
		}
		return nil
	case <-ctx.Done():
		return model.Errorf(model.ErrUnavailable, "stop the BGP speaker: %w", ctx.Err())
	}
}
