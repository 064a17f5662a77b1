package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const (
	neverConnected = "not connected yet"
	noConnection   = "no connection: "
)

// session is what is remembered of a neighbor's.
type session struct {
	cfg     Neighbor
	up      bool
	beyond  bool // it is closed for its limit of prefixes
	since   time.Time
	flaps   uint64
	down    time.Time // when it ended last
	why     string    // it ended then
	problem string    // why there is none now
	failed  string    // what BFD said, of the end that follows
}

// sessions learns the state of sessions from the library's events, and from its log what
// events do not say: why a connection fails.
type sessions struct {
	mu sync.Mutex
	of map[netip.Addr]*session
}

func newSessions() *sessions { return &sessions{of: map[netip.Addr]*session{}} }

func (s *sessions) add(n Neighbor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[n.Address] = &session{cfg: n, since: time.Now(), problem: neverConnected}
}

// change reports whether the neighbor was beyond its limit.
func (s *sessions) change(n Neighbor) (beyond bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.of[n.Address]; of != nil {
		beyond, of.beyond, of.cfg = of.beyond, false, n
	}
	return beyond
}

func (s *sessions) remove(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, a)
}

// peerUpdate is the library's event of a session.
func (s *Speaker) peerUpdate(ev *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if ev.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	st := ev.Peer.State
	if s.sessions.event(st, at) {
		saysEnd := false
		for _, c := range st.RemoteCap {
			_, graceful := c.(*bgp.CapGracefulRestart)
			saysEnd = saysEnd || graceful
		}
		s.learner.session(st.NeighborAddress, st.SessionState == bgp.BGP_FSM_ESTABLISHED, saysEnd, st.AdminState == api.PeerState_ADMIN_STATE_PFX_CT)
	}
}

// event reports whether a session began or ended.
func (s *sessions) event(st apiutil.PeerState, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[st.NeighborAddress]
	if of == nil {
		return false
	}
	up := st.SessionState == bgp.BGP_FSM_ESTABLISHED
	why := of.sentence(st)
	switch {
	case up && !of.up:
		of.problem, of.failed = "", ""
	case up:
		return false
	case of.up:
		of.flaps++
		of.down, of.why, of.problem, of.failed = at, why, why, ""
	case why != "":
		of.problem = why
	}
	if of.up == up {
		return false
	}
	of.up, of.since = up, at
	return true
}

// sentence says why a session ended, or did not begin; "" = the event tells
// nothing of that.
func (of *session) sentence(st apiutil.PeerState) string {
	if st.AdminState == api.PeerState_ADMIN_STATE_PFX_CT {
		of.beyond = true
		return fmt.Sprintf("it announced more than %d prefixes of one family: closed until its limit or another of its settings changes", of.cfg.MaxPrefixes)
	}
	switch st.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:
		if of.failed != "" {
			return of.failed
		}
		return "ended by this host: " + st.DisconnectMessage
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED:
		return "ended by the neighbor: " + st.DisconnectMessage
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("nothing was received for the hold time of %s", of.cfg.HoldTime)
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection was lost"
	case api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection was lost: the neighbor may be restarting, its routes stay meanwhile"
	case api.PeerState_DISCONNECT_REASON_RESTART_TIMER_EXPIRED:
		return "the neighbor did not come back in its restart time"
	case api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return of.wrongAS()
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		if of.problem != "" {
			return of.problem // the log told what
		}
		return "it sent what is no BGP"
	case api.PeerState_DISCONNECT_REASON_HARD_RESET:
		return "it was reset"
	case api.PeerState_DISCONNECT_REASON_UNSPECIFIED, api.PeerState_DISCONNECT_REASON_ADMIN_DOWN,
		api.PeerState_DISCONNECT_REASON_IDLE_TIMER_EXPIRED, api.PeerState_DISCONNECT_REASON_DECONFIGURED: // steps on the way to a session, or what was asked for
	}
	return ""
}

func (of *session) wrongAS() string {
	return fmt.Sprintf("its AS number is not %d, as configured", of.cfg.AS)
}

// readLog takes what the library logs about a neighbor.
func (s *sessions) readLog(neighbor netip.Addr, message string, attrs map[string]slog.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[neighbor]
	if of == nil {
		return
	}
	code := func() (uint8, uint8) {
		return uint8(attrs["Code"].Int64()), uint8(attrs["Subcode"].Int64())
	}
	switch message {
	case "Expired":
		of.failed = fmt.Sprintf("BFD received nothing for %d intervals of %s", of.cfg.BFD.orDefault().Multiple, of.cfg.BFD.orDefault().Interval)
	case "Remote peer signaled BFD down":
		of.failed = "the neighbor's BFD reports that it receives nothing"
	}
	if of.up || of.beyond {
		return
	}
	switch message {
	case "failed to connect":
		of.problem = noConnection + attrs["Error"].String()
		if strings.HasSuffix(of.problem, "i/o timeout") { // as when the kernel drops what is not signed, or signed otherwise
			of.problem += ": it is not there, or has another password"
		}
	case "sent notification":
		c, sub := code()
		what := bgp.NewNotificationErrorCode(c, sub).String()
		switch {
		case c == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == bgp.BGP_ERROR_SUB_BAD_PEER_AS:
			of.problem = of.wrongAS()
		case c == bgp.BGP_ERROR_MESSAGE_HEADER_ERROR:
			of.problem = "it sent what is no BGP: " + what
		default:
			of.problem = "ended by this host: " + what
		}
	case "received notification":
		c, sub := code()
		of.problem = "ended by the neighbor: " + bgp.NewNotificationErrorCode(c, sub).String()
	case "outgoing connection IO error":
		of.problem = "it took the connection and ended it: " + attrs["reason"].String()
	case "outgoing connection established":
		if of.problem != neverConnected && !strings.HasPrefix(of.problem, noConnection) {
			return // what came of the last one says more
		}
		of.problem = "it took the connection and said nothing yet"
	case "Session will be reset due to malformed BGP Header", "Session will be reset due to malformed BGP message":
		of.problem = "it sent what is no BGP: " + attrs["Error"].String()
	}
}

// logMessages are those of the library's log that hear knows.
var logMessages = map[string]bool{
	"Expired": true, "Remote peer signaled BFD down": true, "failed to connect": true, "sent notification": true, "received notification": true,
	"outgoing connection IO error": true, "outgoing connection established": true,
	"Session will be reset due to malformed BGP Header": true, "Session will be reset due to malformed BGP message": true,
}

// libraryLog is the handler of the library's log: it listens for what is said about
// neighbors and passes warnings on.
type libraryLog struct {
	inner    slog.Handler
	neighbor string
	tell     func(neighbor netip.Addr, message string, attrs map[string]slog.Value)
}

// Enabled tells that all is listened to.
func (*libraryLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle takes one record.
func (g *libraryLog) Handle(ctx context.Context, r slog.Record) error {
	if logMessages[r.Message] {
		attrs, neighbor := map[string]slog.Value{}, g.neighbor
		r.Attrs(func(a slog.Attr) bool {
			attrs[a.Key] = a.Value
			if a.Key == "Peer" {
				neighbor = a.Value.String()
			}
			return true
		})
		if a, err := netip.ParseAddr(neighbor); err == nil {
			g.tell(a, r.Message, attrs)
		}
	}
	if r.Level < slog.LevelWarn || r.Message == "failed to stop BGP server" || !g.inner.Enabled(ctx, r.Level) {
		return nil // the last but one: end stops the rest of a server that it has stopped
	}
	r.Message = "BGP: " + r.Message
	return g.inner.Handle(ctx, r)
}

// WithAttrs remembers whom a logger is about.
func (g *libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *g
	out.inner = g.inner.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == "Key" {
			out.neighbor = a.Value.String()
		}
	}
	return &out
}

// WithGroup begins a group.
func (g *libraryLog) WithGroup(name string) slog.Handler {
	out := *g
	out.inner = g.inner.WithGroup(name)
	return &out
}
