package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Member is a member of a cluster, with its etcd in this process.
type Member struct {
	*local
	Health           *Health
	Roster           *Roster
	Authorities      *Authorities
	Enrolment        *Enrolment
	enrollmentServer *enrollmentServer

	stop context.CancelFunc
	runs sync.WaitGroup
	once sync.Once
	err  error
}

func newMember(l *local) *Member {
	m := &Member{local: l, Health: &Health{local: l, began: time.Now()}}
	m.Roster = &Roster{local: l, health: m.Health}
	m.Authorities = &Authorities{local: l, roster: m.Roster}
	m.Enrolment = &Enrolment{local: l, roster: m.Roster, authorities: m.Authorities}
	return m
}

// Start makes this process what its directory and its command line say: the founder
// of a cluster, a new member of one, or the member that it is. It returns once the
// member has a vote, which takes as long as it takes to catch up, to get a turn, or
// to have a majority there; the log says what it waits for. After an error, or a kill
// at any moment, the same call goes on where it ended. Errors are of model's kinds:
// ErrInvalid and ErrConflict will stay, ErrUnavailable may go by itself.
func Start(ctx context.Context, cfg Config) (_ *Member, err error) {
	var t *Token
	if cfg.Token != "" {
		parsed, err := ParseToken(cfg.Token)
		if err != nil {
			return nil, err
		}
		if parsed.Host != "" {
			return nil, model.Errorf(model.ErrInvalid, "the token is for the netplugin of %s: make one for a netmaster with 'netctl cluster token'", parsed.Host)
		}
		t = &parsed
	} else if len(cfg.Addresses) > 0 && cfg.Forming == nil {
		return nil, model.Errorf(model.ErrInvalid, "joining needs a token: make one on a member with 'netctl cluster token' and give it with --token")
	}
	if cfg, err = cfg.checked(ctx); err != nil {
		return nil, err
	}
	d, err := openDirectory(cfg.Dir)
	if err != nil {
		return nil, err
	}
	d.external = cfg.Store != nil
	m := newMember(&local{cfg: cfg, dir: d})
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := m.checkDirectory(t); err != nil {
		return nil, err
	}
	switch {
	case d.Step == learner || d.Step == member || d.Step == admitted && !d.empty():
		err = m.resume(ctx)
	case t == nil && cfg.Forming != nil && d.empty():
		err = m.form(ctx)
	case t == nil:
		err = m.found(ctx)
	default:
		err = m.join(ctx, *t)
	}
	if err != nil {
		return nil, err
	}
	return m, m.serve(ctx)
}

// checkDirectory refuses a directory that is not what the configuration takes it for, and fills
// in what the directory says. Nothing is changed.
func (m *Member) checkDirectory(t *Token) (err error) {
	if m.cfg.Name == "" {
		m.cfg.Name = m.dir.Name
	}
	if m.cfg.Name == "" && m.cfg.Forming != nil {
		m.cfg.Name = m.cfg.Forming.Node()
	}
	if m.cfg.Name == "" {
		if m.cfg.Name, err = hostName(); err != nil {
			return err
		}
	}
	if err := m.dir.check(m.cfg, t); err != nil {
		return err
	}
	switch {
	case m.cfg.alone && m.cfg.why != nil:
		return m.closePeerPorts(m.cfg.why)
	case m.cfg.alone:
		return m.checkAlone()
	}
	return nil
}

// found makes a cluster of this member alone, of an empty directory or of the data of
// a store that had no members.
func (m *Member) found(ctx context.Context) error {
	d := m.dir
	if d.Step == "" {
		if err := d.begin(founding, m.cfg, Token{}); err != nil {
			return err
		}
		m.cfg.at("founding")
	}
	if err := m.clear(); err != nil {
		return err
	}
	if m.cfg.Store != nil {
		if err := errors.Join(m.awaitStore(ctx), m.checkStore(ctx)); err != nil {
			return err
		}
	}
	a, err := makeAuthority(d)
	if err != nil {
		return err
	}
	d.Authority = fingerprint(a).String()
	if err := d.save(); err != nil {
		return err
	}
	m.cfg.at("authority")
	if f := m.cfg.Forming; f != nil && d.empty() { // else it was recorded before
		if err := f.Record(ctx, a.Text()); err != nil {
			return err
		}
		m.cfg.at("published")
	}
	if err := m.start(ctx, initial{}); err != nil {
		return err
	}
	m.cfg.at("founded")
	if m.cfg.Store != nil {
		return m.recordAuthority(ctx)
	}
	return nil
}

// clear deletes the log of an etcd that was killed in the first moment of a cluster. In
// that log no member has a vote, so nothing can have been written, and etcd would wait
// forever.
func (m *Member) clear() error {
	if m.cfg.Store != nil || m.dir.empty() {
		return nil
	}
	r, err := ReachOf(m.dir.path)
	if err != nil || r.Votes {
		return err
	}
	if err := os.RemoveAll(filepath.Join(m.dir.path, "member")); err != nil {
		return fmt.Errorf("create the cluster again: %w", err)
	}
	return nil
}

const (
	// changes is how often joining starts over because the cluster's members changed between
	// their list and the start with it, or a new cluster has not decided on its version yet.
	changes = 3
	// changePause is the time between two such tries.
	changePause = time.Second
)

// join has this directory admitted by a token, and starts as a learner.
func (m *Member) join(ctx context.Context, t Token) error {
	d := m.dir
	switch {
	case d.Step == "":
		if err := d.begin(requested, m.cfg, t); err != nil {
			return err
		}
		m.cfg.at("asked")
	case d.Token != t.ID:
		d.Token = t.ID
		if err := d.save(); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		a, err := joinByToken(ctx, d, m.cfg, t)
		if err != nil {
			return err
		}
		m.cfg.at("answered")
		auth, err := takeAuthority(d, a.Authority)
		if err != nil {
			return err
		}
		if len(a.Clients) > 0 {
			if _, err := putAuthority(d, clientsDir, func(tmp string) error { return durable.WriteFile(filepath.Join(tmp, authorityFile), a.Clients) }); err != nil {
				return err
			}
		}
		if !hasFingerprint(auth, t.Authority) { // it may have been renewed since the token was made
			return model.Errorf(model.ErrConflict, "the authority in %s is not the token's: delete %s and repeat the command line", d.own("authority"), d.path)
		}
		if err := d.reach(admitted); err != nil {
			return err
		}
		m.cfg.at("admitted")
		err = m.start(ctx, initial{existing: true, members: a.Members})
		if err == nil {
			return m.promoteWhenReady(ctx)
		}
		if !d.empty() || try == changes || ctx.Err() != nil {
			return err
		}
		m.cfg.Logger.Warn("joining starts over", "error", err)
		select {
		case <-time.After(changePause):
		case <-ctx.Done():
			return err
		}
	}
}

// resume starts a member that has data.
func (m *Member) resume(ctx context.Context) error {
	if err := m.start(ctx, initial{existing: true}); err != nil {
		return err
	}
	return m.promoteWhenReady(ctx)
}

// start starts etcd and waits until it takes part in its cluster.
func (m *Member) start(ctx context.Context, i initial) error {
	var err error
	if m.peers, err = openPeers(m.dir, m.cfg); err != nil {
		return err
	}
	if err := m.checkNotCopied(ctx); err != nil {
		return err
	}
	if err := m.Authorities.openClients(i); err != nil {
		return err
	}
	if m.cfg.Store != nil {
		m.server = &server{client: m.cfg.Store, died: make(chan struct{})}
		return m.awaitStore(ctx)
	}
	s, err := startServer(ctx, m.dir, m.cfg, m.peers, i)
	if errors.Is(err, unix.EADDRINUSE) && m.cfg.Spare && !m.cfg.alone { // it was free a moment ago
		if err := m.closePeerPorts(err); err != nil {
			return err
		}
		s, err = startServer(ctx, m.dir, m.cfg, m.peers, i)
	}
	if err != nil {
		return err
	}
	waits := "a majority of its cluster's members: start them; if they are lost for good, stop this one and make a new cluster of its directory (netmaster --recover)"
	if len(i.members) > 0 {
		waits = "the cluster to reach it at " + m.cfg.Peer + ": see that the other members can connect to that"
	}
	m.cfg.at("booted")
	if err := s.ready(ctx, m.cfg.Logger, waits); err != nil {
		s.close()
		return err
	}
	m.server = s
	return nil
}

// promoteInterval is between two tries to get a vote.
const promoteInterval = 250 * time.Millisecond

// promoteWhenReady makes a voter of a learner, once it has caught up and the cluster would still
// write if this member were lost the moment after.
func (m *Member) promoteWhenReady(ctx context.Context) error {
	if m.cfg.Store != nil || !m.server.etcd.Server.IsLearner() {
		return nil
	}
	m.cfg.at("started")
	if err := m.dir.reach(learner); err != nil {
		return err
	}
	id := uint64(m.server.etcd.Server.MemberID())
	tick := time.NewTicker(promoteInterval)
	defer tick.Stop()
	for told := ""; ; {
		wait := m.Roster.mayVote(ctx)
		if wait == "" {
			m.cfg.at("promoting")
			rctx, cancel := context.WithTimeout(ctx, patience)
			_, err := m.server.client.MemberPromote(rctx, id)
			cancel()
			switch {
			case err == nil, errors.Is(err, rpctypes.ErrMemberNotLearner):
				m.cfg.at("promoted")
				return nil
			case errors.Is(err, rpctypes.ErrMemberNotFound):
				return ErrRemoved
			case errors.Is(err, rpctypes.ErrMemberLearnerNotReady), strings.Contains(err.Error(), rpctypes.ErrMemberLearnerNotReady.Error()):
				wait = "catching up with the leader"
			default:
				wait = fmt.Sprintf("the cluster, which says: %v", err)
			}
		}
		if wait != told {
			m.cfg.Logger.Info("this member has no vote yet", "waitsFor", wait)
			told = wait
		}
		select {
		case <-tick.C:
		case <-m.server.died:
			return m.server.ended()
		case <-m.server.etcd.Server.StopNotify():
			return ErrRemoved
		case <-ctx.Done():
			return model.Errorf(model.ErrUnavailable, "this member waits for %s: %w; repeat the command line", told, ctx.Err())
		}
	}
}

// serve begins what a member does beside its etcd.
func (m *Member) serve(ctx context.Context) error {
	if err := m.dir.reach(member); err != nil {
		return err
	}
	var ln net.Listener
	if !m.cfg.alone {
		var err error
		if ln, err = m.listen(ctx); err != nil {
			return err
		}
	}
	if err := m.registerMember(ctx); err != nil {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
		return err
	}
	if ln != nil {
		m.enrollmentServer = m.open(ln)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.runs.Go(func() { m.watch(run) })
	m.runs.Go(func() { m.Authorities.share(run) })
	if m.cfg.Backup.Dir != "" {
		m.runs.Go(func() { m.Health.backups(run) })
	}
	return nil
}

// registerMember makes the member's row and its place in etcd what they are now: a founder has
// no row, a member may have moved to another address.
func (m *Member) registerMember(ctx context.Context) error {
	c := m.server.client
	id := m.id()
	all, err := m.etcdMembers(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if m.cfg.Store == nil && e.ID == id && peerOf(e) != m.cfg.Peer {
			rctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if _, err := c.MemberUpdate(rctx, id, []string{transport.HTTPS + "://" + m.cfg.Peer}); err != nil {
				return unavailable(err)
			}
		}
	}
	if secure := m.cfg.Secure != nil && len(m.cfg.Plain) == 0; m.dir.Peer != m.cfg.Peer || m.dir.Secure != secure {
		m.dir.Peer, m.dir.Secure = m.cfg.Peer, secure
		if err := m.dir.save(); err != nil {
			return err
		}
	}
	key := memberRows + m.dir.Name
	for range attempts {
		had, err := get[memberRow](ctx, c, key)
		if err != nil {
			return err
		}
		is := memberRow{Name: m.dir.Name, Dir: m.dir.ID, Peer: m.cfg.Peer, EnrollmentAddress: m.cfg.EnrollmentAddress, ID: id, At: had.value.At}
		if is == had.value {
			return nil
		}
		if is.At.IsZero() {
			is.At = time.Now().UTC()
		}
		if ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(key, had.rev)}, clientv3.OpPut(key, encode(is))); err != nil || ok {
			return err
		}
	}
	return model.Errorf(model.ErrUnavailable, "the row of this member keeps changing; restart")
}

// Etcd is the server of this member: for clients inside the process.
func (m *Member) Etcd() *etcdserver.EtcdServer { return m.server.etcd.Server }

// Wait returns why the member cannot go on, such as that it was removed, or nil when
// ctx has ended.
func (m *Member) Wait(ctx context.Context) error {
	if m.cfg.Store != nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-m.server.died:
		return m.server.ended()
	case <-m.server.etcd.Server.StopNotify():
		return m.server.ended()
	case err := <-m.server.ports.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close stops the member and waits for all of it.
func (m *Member) Close() error {
	m.once.Do(func() {
		if m.stop != nil {
			m.stop()
		}
		if m.enrollmentServer != nil {
			m.enrollmentServer.close()
		}
		m.runs.Wait()
		if m.server != nil {
			m.server.close()
		}
		m.err = m.dir.close()
	})
	return m.err
}
