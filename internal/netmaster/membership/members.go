package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Role is what a member is in its cluster.
type Role string

// The roles.
const (
	Voter   Role = "voter"
	Learner Role = "learner" // it catches up
	Waiting Role = "waiting" // a token was spent on it; it waits for its turn
	Removed Role = "removed" // a removal that was interrupted: to be repeated
)

// Info is a member as another one sees it.
type Info struct {
	Name              string
	ID                uint64 // etcd's; 0 = waiting
	Peer              string // host:port
	EnrollmentAddress string // host:port; "" = it has never started, or has no row
	Role              Role
	Since             time.Time // the token was spent, or the cluster founded
	Status            Status
	Err               error // it does not answer, and so has no Status
}

// isAlive reports whether a member can take part in a majority now.
func (i Info) isAlive() bool { return i.Err == nil && i.Status.Leader != 0 }

// askStatus bounds the question to one member.
const askStatus = 2 * time.Second

// List returns all members, asked how they are, by name. An error is ErrRemoved, or of kind
// ErrUnavailable: there is no majority.
func (m *Roster) List(ctx context.Context) ([]Info, error) {
	all, err := m.etcdMembers(ctx)
	if err != nil && m.removed() {
		return nil, ErrRemoved
	}
	if err != nil {
		return nil, err
	}
	rows, err := list[memberRow](ctx, m.server.client, memberRows)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, e := range all {
		i := Info{Name: e.Name, ID: e.ID, Peer: peerOf(e), Role: Voter}
		if e.IsLearner {
			i.Role = Learner
		}
		for _, r := range rows {
			if r.value.ID == e.ID || r.value.ID == 0 && r.value.Peer == i.Peer {
				i.Name, i.EnrollmentAddress, i.Since = r.value.Name, r.value.EnrollmentAddress, r.value.At
			}
		}
		out = append(out, i)
	}
	for _, r := range rows {
		if slices.ContainsFunc(out, func(i Info) bool { return r.value.ID != 0 && i.ID == r.value.ID || i.Name == r.value.Name }) {
			continue
		}
		i := Info{Name: r.value.Name, ID: r.value.ID, Peer: r.value.Peer, EnrollmentAddress: r.value.EnrollmentAddress, Role: Removed, Since: r.value.At}
		if i.ID == 0 {
			i.Role = Waiting
		}
		out = append(out, i)
	}
	m.askAll(ctx, out)
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// askAll asks members how they are.
func (m *Roster) askAll(ctx context.Context, all []Info) {
	c, err := m.memberClient(askStatus)
	if err != nil {
		for i := range all {
			all[i].Err = err
		}
		return
	}
	defer c.CloseIdleConnections()
	self := m.id()
	var asking sync.WaitGroup
	for i := range all {
		switch {
		case all[i].ID == self:
			all[i].Status = m.health.fullStatus()
		case all[i].EnrollmentAddress == "" || all[i].Role == Waiting || all[i].Role == Removed:
			all[i].Err = errors.New("it has not started yet")
		default:
			asking.Go(func() {
				all[i].Err = jointoken.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+all[i].EnrollmentAddress+statusPath, nil, &all[i].Status)
			})
		}
	}
	asking.Wait()
}

// memberClient is a client for other members' enrollment servers; its connections are to be closed.
func (m *local) memberClient(timeout time.Duration) (*http.Client, error) {
	files, err := transport.OpenDirectory(m.peers.own)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport.Pool(files.Client(pki.Netmaster), 1, askStatus), Timeout: timeout}, nil
}

// majority is how many of n voters have to live for writes.
func majority(n int) int { return n/2 + 1 }

// voters counts the voters and the live voters.
func voters(all []Info) (n, live int, silent []string) {
	for _, i := range all {
		if i.Role != Voter {
			continue
		}
		n++
		if i.isAlive() {
			live++
		} else {
			silent = append(silent, i.Name)
		}
	}
	return n, live, silent
}

// mayVote says what a learner has to wait for; "" = nothing. With one vote more, a
// majority has to live even if this member is lost the moment after; only the second
// member of a cluster cannot have that.
func (m *Roster) mayVote(ctx context.Context) string {
	all, err := m.List(ctx)
	if err != nil {
		return err.Error()
	}
	n, live, silent := voters(all)
	if n > 1 && live < majority(n+1) {
		return fmt.Sprintf("%s to answer, since with one vote more too few would: start it, or 'netctl cluster remove' it if it is lost for good", strings.Join(silent, " and "))
	}
	return ""
}

// Warnings are sentences about what endangers the cluster, and what to do.
func Warnings(all []Info) []string {
	var out []string
	now := time.Now()
	n, live, silent := voters(all)
	external := slices.ContainsFunc(all, func(i Info) bool { return i.Status.External })
	if n == 2 && !external {
		out = append(out, "the cluster has two members, which is weaker than one: it stops writing when either is down; let a third one join")
	}
	if len(silent) > 0 && external {
		out = append(out, fmt.Sprintf("%s: no answer; start it, or 'netctl cluster remove' it if it is lost for good", strings.Join(silent, ", ")))
	} else if len(silent) > 0 {
		left := live - majority(n)
		what := fmt.Sprintf("%d more may be lost before it stops writing", left)
		if left < 1 {
			what = "with one more lost it stops writing"
		}
		out = append(out, fmt.Sprintf("%s: no answer of %d of %d members, %s; start it, or 'netctl cluster remove' it and let another join", strings.Join(silent, ", "), len(silent), n, what))
	}
	for _, i := range all {
		switch {
		case i.Role == Removed:
			out = append(out, fmt.Sprintf("the removal of %s was interrupted: repeat 'netctl cluster remove %s'", i.Name, i.Name))
		case i.Err == nil:
			if t := i.Status.SpaceProblem(); t != "" {
				out = append(out, i.Name+": "+t)
			}
			for _, t := range i.Status.expiryTexts(i.Name, now) {
				if !slices.Contains(out, t) {
					out = append(out, t)
				}
			}
		}
	}
	return out
}

const (
	// removing is how long one removal holds others off, in seconds, should its process
	// be killed.
	removing = 10
	// removeTime is how long a removal that holds the lock may take.
	removeTime = 8 * time.Second
	// lockEvery is between two looks at whether another removal has ended.
	lockEvery = 250 * time.Millisecond
)

// Remove takes a member out, by its name, the hexadecimal id, or its address. A voter
// without which too few of the rest would answer is refused with model.ErrConflict
// unless force is given; the only voter is refused in any case. What is not there is
// model.ErrNotFound. Removing again what an interrupted removal left is allowed.
func (m *Roster) Remove(ctx context.Context, who string, force bool) error {
	unlock, err := m.lockRemoval(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	all, err := m.List(ctx)
	if err != nil {
		return err
	}
	k := slices.IndexFunc(all, func(i Info) bool { return i.Name == who || hexID(i.ID) == who || i.Peer == who })
	if k < 0 {
		var names []string
		for _, i := range all {
			names = append(names, i.Name)
		}
		return model.Errorf(model.ErrNotFound, "there is no member %q; there are %s", who, strings.Join(names, ", "))
	}
	gone := all[k]
	rest := slices.Delete(slices.Clone(all), k, k+1)
	n, live, silent := voters(rest)
	switch {
	case gone.Role == Waiting || gone.Role == Removed:
		return m.forget(ctx, gone)
	case gone.Role == Voter && n == 0:
		return model.Errorf(model.ErrConflict, "%s is the only member: without it there is no cluster", gone.Name)
	case gone.Role == Voter && m.cfg.Store == nil && live < majority(n) && !force:
		return model.Errorf(model.ErrConflict, "without %s the cluster could not write: of the other %d members %d must answer, and %s do not; start them, or remove them first (--force removes it anyway)", gone.Name, n, majority(n), strings.Join(silent, ", "))
	case gone.Role == Voter && gone.isAlive() && !force:
		what := ""
		if gone.Status.Leader == gone.ID {
			what = " and leads the store"
		}
		return model.Errorf(model.ErrConflict, "%s is alive%s: stop its netmaster first, then remove it (--force removes it anyway, and its netmaster ends)", gone.Name, what)
	}
	self := gone.ID == m.id()
	if m.cfg.Store != nil {
		return m.forget(ctx, gone)
	}
	if self { // afterwards it cannot write any more
		if err := m.forget(ctx, gone); err != nil {
			return err
		}
	}
	if _, err := m.server.client.MemberRemove(ctx, gone.ID); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) && !m.removed() {
		return unavailable(err)
	}
	m.cfg.Logger.Warn("a member was removed from the cluster", "name", gone.Name, "address", gone.Peer, "forced", force)
	m.cfg.at("removed")
	if self {
		return nil
	}
	if err := m.forget(ctx, gone); err != nil || gone.Status.Leader != gone.ID {
		return err
	}
	m.awaitLeader(ctx, live)
	return nil
}

// removed reports whether this member was removed. Its etcd ends then, maybe before it has
// answered who removed it.
func (m *Roster) removed() bool {
	if m.cfg.Store != nil {
		return false
	}
	s := m.server.etcd.Server
	return s.Cluster().Member(s.MemberID()) == nil
}

// awaitLeader waits, for as long as ctx lasts, until as many voters know a leader as lived
// before the former one was removed: until then they seem to be lost.
func (m *Roster) awaitLeader(ctx context.Context, live int) {
	for {
		all, err := m.List(ctx)
		if _, now, _ := voters(all); err == nil && now >= live {
			return
		}
		select {
		case <-time.After(promoteInterval):
		case <-ctx.Done():
			return
		}
	}
}

// forget deletes the row of a member.
func (m *Roster) forget(ctx context.Context, i Info) error {
	for {
		_, err := commit(ctx, m.server.client, nil, clientv3.OpDelete(memberRows+i.Name))
		if !errors.Is(err, model.ErrUnavailable) {
			return err
		}
		select { // it may have led: the others elect another
		case <-time.After(promoteInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// lockRemoval waits until no other removal is under way: each is judged by the members that
// live after the others. A process killed with the lock holds it for some seconds more.
func (m *Roster) lockRemoval(ctx context.Context) (unlock func(), err error) {
	c := m.server.client
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * removing * time.Second); ; {
		held, err := get[string](ctx, c, lockRow)
		if err != nil {
			return nil, err
		}
		if held.rev == 0 {
			if unlock, err = m.tryLock(ctx); err != nil || unlock != nil {
				return unlock, err
			}
		} else if time.Now().After(deadline) {
			return nil, model.Errorf(model.ErrConflict, "%s removes another member: try again", held.value)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock takes the lock of removals; nil = another was faster.
func (m *Roster) tryLock(ctx context.Context) (unlock func(), err error) {
	c := m.server.client
	rctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lease, err := c.Grant(rctx, removing)
	if err != nil {
		return nil, unavailable(err)
	}
	revoke := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, _ = c.Revoke(ctx, lease.ID) // else it ends by itself
	}
	ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(lockRow, 0)}, clientv3.OpPut(lockRow, encode(m.dir.Name), clientv3.WithLease(lease.ID)))
	if err != nil || !ok {
		revoke()
		return nil, err
	}
	return revoke, nil
}
