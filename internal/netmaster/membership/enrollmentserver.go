package membership

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Paths of the enrollment server, and the bounds of who comes to it.
const (
	joinPath   = "/join/v1/members"
	statusPath = "/join/v1/status"
	// defragmentPath is asked by members, too.
	defragmentPath = "/join/v1/relieve"

	maxBody = 16 << 10 // bytes of a request
	// atOnce is how many requests of a kind are handled at a time; others get a retry
	// answer. Accounts, whose tokens another server checks, have that many for each
	// address.
	atOnce      = 16
	accountsOne = atOnce / 4
	// enrollmentTimeout is how long a request may take.
	enrollmentTimeout = 30 * time.Second
)

var errTooMany = model.Errorf(model.ErrUnavailable, "too many requests at once: try again")

// enrollmentServer is where new members show their tokens, and members ask each other how they are.
type enrollmentServer struct {
	http *http.Server
	done sync.WaitGroup
}

// listen opens a listener for the enrollment server, which is not served before open.
func (m *Member) listen(ctx context.Context) (net.Listener, error) {
	ln, err := transport.Listen(ctx, m.cfg.EnrollmentListen, m.peers.enrollmentTLS(m.Authorities.clients.Load), m.cfg.Logger)
	if err != nil {
		return nil, model.Errorf(model.ErrConflict, "listen for new members on %s: %w; give another address, or stop the process that uses it", m.cfg.EnrollmentListen, err)
	}
	return ln, nil
}

// open serves the enrollment server until it is closed.
func (m *Member) open(ln net.Listener) *enrollmentServer {
	mux := http.NewServeMux()
	strangers := transport.NewSlots(atOnce, atOnce) // who show a token of the cluster's
	pods := transport.NewSlots(atOnce, accountsOne)
	mux.HandleFunc("POST "+joinPath, func(w http.ResponseWriter, r *http.Request) {
		var q request
		if err := strictjson.Read(r.Body, maxBody, &q); err != nil {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "the request cannot be read: is this host's Contiv of another version? %w", err))
			return
		}
		if err := q.check(); err != nil {
			jointoken.Refuse(w, err)
			return
		}
		slots := strangers
		if q.Account != "" {
			slots = pods
		}
		end, ok := slots.Acquire(transport.ClientAtRemote(r.RemoteAddr))
		if !ok {
			jointoken.Refuse(w, errTooMany)
			return
		}
		defer end()
		a, err := m.Enrolment.enrollMember(r.Context(), q)
		if err != nil {
			m.cfg.Logger.Warn("a host could not join", "name", q.Name, "address", q.Peer, "token", q.ID, "error", err)
			jointoken.Refuse(w, err)
			return
		}
		jointoken.Reply(w, http.StatusOK, a)
	})
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, r *http.Request) {
		if !m.isMember(r) {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "only members may ask"))
			return
		}
		jointoken.Reply(w, http.StatusOK, m.Health.fullStatus())
	})
	mux.HandleFunc("POST "+defragmentPath, func(w http.ResponseWriter, r *http.Request) {
		if !m.isMember(r) {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "only members may ask"))
			return
		}
		if err := m.Health.Defragment(r.Context()); err != nil {
			jointoken.Refuse(w, err)
			return
		}
		jointoken.Reply(w, http.StatusOK, m.Health.Status())
	})
	m.Enrolment.handleHosts(mux, strangers)
	d := &enrollmentServer{http: transport.NewServer(guarded(http.TimeoutHandler(mux, enrollmentTimeout, `{"kind":"unavailable","error":"the cluster did not answer in time"}`)))}
	d.http.ReadTimeout, d.http.WriteTimeout, d.http.IdleTimeout, d.http.MaxHeaderBytes = enrollmentTimeout, enrollmentTimeout+5*time.Second, enrollmentTimeout, 8<<10
	d.done.Go(func() {
		if err := d.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			m.cfg.Logger.Error("no host can join here any more", "error", err)
		}
	})
	return d
}

// guarded has the checks of every listener before next. Hosts may ask by any name: the
// certificate is of an authority that no browser knows, so that no web page gets here by one.
func guarded(next http.Handler) http.Handler {
	return httpguard.NewLimiter(httpguard.Limits{Body: 1 << 20}).Handler(httpguard.CheckOrigin(httpguard.OriginConfig{
		IsOurs: func(string) bool { return true },
		Refuse: func(w http.ResponseWriter, _ *http.Request, sentence string) {
			jointoken.Refuse(w, model.Errorf(model.ErrInvalid, "%s", sentence))
		},
	}, next))
}

func (d *enrollmentServer) close() {
	_ = d.http.Close() // connections that are still open; no caller waits for them
	d.done.Wait()
}

// check refuses what no member sends.
func (q request) check() error {
	token := jointoken.IsText(q.ID, jointoken.IDLen) && jointoken.IsText(q.Secret, jointoken.SecretLen)
	if token == (q.Account != "") || len(q.Dir) != 36 {
		return model.Errorf(model.ErrInvalid, "the request has no token, or no identity")
	}
	if err := checkName(q.Name); err != nil {
		return err
	}
	return errors.Join(jointoken.CheckAddress(q.Peer), jointoken.CheckAddress(q.EnrollmentAddress))
}
