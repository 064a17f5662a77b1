package bgp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/contiv/netplugin/v2/internal/model"
)

// State is how a speaker fares, in the shape of /inspect/bgp: "peers" and "dsts"
// are 1.x', of which the first had the neighbors and the second the prefixes.
type State struct {
	AS        uint32            `json:"as"`
	RouterID  netip.Addr        `json:"routerId"`
	Peers     []PeerState       `json:"peers"` // by address
	Complete  bool              `json:"complete"`
	Dsts      []netip.Prefix    `json:"dsts"` // learned, in order
	Announced []netip.Prefix    `json:"announced"`
	Refused   map[string]string `json:"refused,omitempty"` // wanted but not announced, with the reason
}

// PeerState is how a neighbor's session fares.
type PeerState struct {
	Address   netip.Addr `json:"address"`
	AS        uint32     `json:"as"`
	State     string     `json:"state"` // RFC 4271's in lower case, or "limit": closed for its limit of prefixes
	Since     time.Time  `json:"since"` // when the session began, or since when there is none
	Problem   string     `json:"trouble,omitempty"`
	Down      time.Time  `json:"lastDown,omitzero"`
	WhyDown   string     `json:"lastDownWhy,omitempty"`
	Flaps     uint64     `json:"flaps"`                // sessions that ended
	BFD       string     `json:"bfd,omitempty"`        // "up", "down", "init"; empty = not asked for
	Received  uint64     `json:"received"`             // prefixes
	Accepted  int        `json:"accepted"`             // of those
	Rejected  int        `json:"rejected"`             // of those
	Why       Reasons    `json:"rejectedWhy"`          // by reason
	Announced uint64     `json:"announced"`            // prefixes, to it
	Stale     bool       `json:"restarting,omitempty"` // its routes are what it said before
}

// Reasons count rejected prefixes by the reason; "loop" are those with the
// host's own AS on their way.
type Reasons map[string]int

// ReasonLoop is why the library drops a route.
const ReasonLoop = "loop"

// Established is the state of a working session; Limit is the state of one closed for the
// neighbor's limit of prefixes.
const (
	Established = "established"
	Limit       = "limit"
)

// State tells how the speaker fares. Errors are of kind model.ErrUnavailable.
func (s *Speaker) State(ctx context.Context) (State, error) {
	if err := s.mu.lock(ctx); err != nil {
		return State{}, err
	}
	defer s.mu.unlock()
	if s.closed {
		return State{}, errClosed
	}
	pic := s.Routes()
	out := State{AS: s.cfg.AS, RouterID: s.cfg.RouterID, Peers: []PeerState{}, Complete: pic.Complete, Dsts: []netip.Prefix{}, Announced: []netip.Prefix{}, Refused: s.refused}
	for p := range pic.Routes {
		out.Dsts = append(out.Dsts, p)
	}
	for p := range s.announced {
		out.Announced = append(out.Announced, p)
	}
	slices.SortFunc(out.Dsts, netip.Prefix.Compare)
	slices.SortFunc(out.Announced, netip.Prefix.Compare)
	counted := s.learner.counts()
	err := s.bgp.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
		a, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil { // it was given as an address
			return
		}
		if ps, ok := s.sessions.state(a); ok {
			ps.fill(p, counted[a])
			out.Peers = append(out.Peers, ps)
		}
	})
	if err != nil {
		return State{}, model.Errorf(model.ErrUnavailable, "list neighbors: %w", err)
	}
	slices.SortFunc(out.Peers, func(a, b PeerState) int { return a.Address.Compare(b.Address) })
	return out, nil
}

// state is what is remembered of a neighbor.
func (s *sessions) state(a netip.Addr) (PeerState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[a]
	if of == nil {
		return PeerState{}, false
	}
	return PeerState{Address: a, AS: of.cfg.AS, Since: of.since, Problem: of.problem, Down: of.down, WhyDown: of.why, Flaps: of.flaps}, true
}

// fill adds what the library and the learner know.
func (ps *PeerState) fill(p *api.Peer, c counts) {
	st := p.GetState()
	ps.State = strings.ToLower(strings.TrimPrefix(st.GetSessionState().String(), "SESSION_STATE_"))
	if st.GetAdminState() == api.PeerState_ADMIN_STATE_PFX_CT {
		ps.State = Limit
	}
	if p.GetBfd().GetEnabled() {
		ps.BFD = strings.ToLower(strings.TrimPrefix(st.GetBfdState().GetSessionState().String(), "BFD_SESSION_STATE_"))
	}
	ps.Stale = p.GetGracefulRestart().GetPeerRestarting()
	var passed uint64 // by the library
	for _, f := range p.GetAfiSafis() {
		ps.Received += f.GetState().GetReceived()
		passed += f.GetState().GetAccepted()
		ps.Announced += f.GetState().GetAdvertised()
	}
	ps.Accepted, ps.Why = c.accepted, Reasons{}
	for why, n := range c.rejected {
		ps.Why[why] = n
		ps.Rejected += n
	}
	if loop := ps.Received - passed; loop > 0 {
		ps.Why[ReasonLoop] = int(loop)
		ps.Rejected += int(loop)
	}
	ps.Received = cmp.Or(ps.Received, uint64(ps.Accepted+ps.Rejected)) // 0 while the neighbor restarts
}
