package membership

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// request is what a new member asks with, again until it is answered: it may be
// asked of any member, and of several.
type request struct {
	ID     string `json:"id,omitempty"`     // of the token
	Secret string `json:"secret,omitempty"` // of the token
	// Account is the token of a Kubernetes service account, in place of the two above.
	Account           string `json:"account,omitempty"`
	Dir               string `json:"dir"` // whose identity the token is spent on
	Name              string `json:"name"`
	Peer              string `json:"peer"` // host:port
	EnrollmentAddress string `json:"door"` // host:port
	// Secure says that it will serve its clients by certificates of the cluster's.
	Secure bool `json:"secure,omitempty"`
}

// answer is either why to ask again later, or all that a member needs.
type answer struct {
	Wait      string `json:"wait,omitempty"`
	Members   []Peer `json:"members,omitempty"` // the new one included
	Authority []byte `json:"authority,omitempty"`
	Clients   []byte `json:"clients,omitempty"` // the authority of who is no member
}

// attempts bounds how often a transaction begins again because others were faster.
const attempts = 8

// enrollMember makes a learner of who shows a token. Each step of it may be the last of this
// process; who asks again, anywhere, goes on behind it.
func (m *Enrolment) enrollMember(ctx context.Context, q request) (answer, error) {
	switch {
	case m.cfg.Secure != nil && !q.Secure:
		return answer{}, model.Errorf(model.ErrInvalid, "this cluster uses --secure, and the joining netmaster would serve its clients without TLS: start it with --secure too; the token stays valid")
	case q.Secure && m.authorities.clients.Load() == nil:
		return answer{}, model.Errorf(model.ErrUnavailable, "this netmaster does not have the client authority yet: try again in a minute")
	}
	spend := m.spend
	if q.Account != "" {
		if err := m.review(ctx, q); err != nil {
			return answer{}, err
		}
		spend = m.replaceMember
	}
	for range attempts {
		mine, err := spend(ctx, q)
		if err != nil {
			return answer{}, err
		}
		if mine.rev == 0 {
			continue // another was faster
		}
		wait, err := m.add(ctx, mine)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil || wait != "" {
			return answer{Wait: wait}, err
		}
		return m.memberAnswer(ctx, q)
	}
	return answer{Wait: "others who change the cluster's members"}, nil
}

// removed is the error that a removed member gets when it asks to join again.
func removed(name string) error {
	return model.Errorf(model.ErrConflict, "the member %s was removed from the cluster: join with an empty directory and a new token", name)
}

// errAgain: what was read has changed since.
var errAgain = errors.New("changed since")

// spend spends the token on the directory that shows it, and makes the member's row,
// in one transaction. A zero row says that another was faster.
func (m *Enrolment) spend(ctx context.Context, q request) (row[memberRow], error) {
	var none row[memberRow]
	c := m.server.client
	tok, err := get[tokenRow](ctx, c, tokenRows+q.ID)
	if err != nil {
		return none, err
	}
	if tok.rev == 0 || subtle.ConstantTimeCompare(tok.value.Hash, jointoken.Hash(q.ID, q.Secret)) != 1 {
		if host, err := get[tokenRow](ctx, c, hostTokenRows+q.ID); err == nil && host.rev != 0 {
			return none, model.Errorf(model.ErrInvalid, "the token is for the netplugin of %s: make one for a netmaster with 'netctl cluster token'", host.value.Host)
		}
		return none, model.Errorf(model.ErrInvalid, "the cluster does not know this token: make another with 'netctl cluster token'")
	}
	had, err := get[memberRow](ctx, c, memberRows+q.Name)
	if err != nil {
		return none, err
	}
	switch t := tok.value; {
	case t.Dir == q.Dir:
		if had.rev == 0 || had.value.Dir != q.Dir {
			return none, removed(q.Name)
		}
		if had.value.Peer != q.Peer {
			return none, model.Errorf(model.ErrConflict, "%s was admitted at the address %s and asks again with %s: repeat the former command line", q.Name, had.value.Peer, q.Peer)
		}
		return had, nil
	case t.Dir != "":
		return none, model.Errorf(model.ErrConflict, "the token was used by %s on %s, and a token works once: make another with 'netctl cluster token'", t.Name, date(t.At))
	case t.whyInvalid(time.Now()) != "":
		return none, model.Errorf(model.ErrInvalid, "%s: make another with 'netctl cluster token'", t.whyInvalid(time.Now()))
	}
	now := time.Now().UTC()
	mine := memberRow{Name: q.Name, Dir: q.Dir, Peer: q.Peer, EnrollmentAddress: q.EnrollmentAddress, At: now}
	if had.rev != 0 && had.value.Dir == q.Dir && had.value.Peer == q.Peer {
		mine = had.value // it goes on by another token
	} else if err := m.unused(ctx, had, q); err != nil {
		return none, err
	}
	spent := tok.value
	spent.Dir, spent.Name, spent.At = q.Dir, q.Name, now
	ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(tokenRows+q.ID, tok.rev), unchangedSince(memberRows+q.Name, had.rev)},
		clientv3.OpPut(tokenRows+q.ID, encode(spent)), clientv3.OpPut(memberRows+q.Name, encode(mine)))
	if err != nil || !ok {
		return none, err
	}
	m.cfg.at("spent")
	return get[memberRow](ctx, c, memberRows+q.Name)
}

// unused refuses a name, or an address, that a member has.
func (m *Enrolment) unused(ctx context.Context, had row[memberRow], q request) error {
	taken := func(what string) error {
		return model.Errorf(model.ErrExists, "%s is the name of a member: start this host with another name (--member-name), or if that member is permanently lost remove it first with 'netctl cluster remove'", what)
	}
	if had.rev != 0 {
		return taken("the name " + q.Name)
	}
	all, err := m.etcdMembers(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Name == q.Name {
			return taken("the name " + q.Name)
		}
		if peerOf(e) == q.Peer {
			return taken("the address " + q.Peer + " (of " + e.Name + ")")
		}
	}
	return nil
}

// add makes the learner, or says what has to happen before.
func (m *Enrolment) add(ctx context.Context, mine row[memberRow]) (wait string, err error) {
	all, err := m.etcdMembers(ctx)
	if err != nil {
		return "", err
	}
	r := mine.value
	id := uint64(0)
	for _, e := range all {
		if peerOf(e) == r.Peer {
			id = e.ID
		}
	}
	if id == 0 && r.ID != 0 {
		return "", removed(r.Name)
	}
	switch {
	case id == 0 && m.cfg.Store != nil:
		id = idOf(r.Dir)
	case id == 0:
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		got, err := m.server.client.MemberAddAsLearner(ctx, []string{transport.HTTPS + "://" + r.Peer})
		switch {
		case errors.Is(err, rpctypes.ErrTooManyLearners):
			for _, e := range all {
				if e.IsLearner && peerOf(e) != r.Peer {
					return fmt.Sprintf("its turn: %s is still catching up; if that one does not come any more, 'netctl cluster remove' it", m.roster.nameOf(ctx, e)), nil
				}
			}
			return "", errAgain
		case errors.Is(err, rpctypes.ErrPeerURLExist):
			return "", errAgain
		case err != nil:
			return "", unavailable(err)
		}
		id = got.Member.ID
		m.cfg.at("added")
	}
	if r.ID == id {
		return "", nil
	}
	r.ID = id
	ok, err := commit(ctx, m.server.client, []clientv3.Cmp{unchangedSince(memberRows+r.Name, mine.rev)}, clientv3.OpPut(memberRows+r.Name, encode(r)))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", m.roster.whyRowChanged(ctx, r)
	}
	m.cfg.at("recorded")
	return "", nil
}

// whyRowChanged looks at why a row that is to get its member has changed: another replica
// did the same, or somebody removed the member meanwhile, who did not see it in etcd
// yet.
func (m *Roster) whyRowChanged(ctx context.Context, r memberRow) error {
	now, err := get[memberRow](ctx, m.server.client, memberRows+r.Name)
	if err != nil {
		return err
	}
	if now.rev != 0 && now.value.Dir == r.Dir {
		return errAgain
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := m.server.client.MemberRemove(ctx, r.ID); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return unavailable(err)
	}
	return removed(r.Name)
}

// memberAnswer is what a new member needs.
func (m *Enrolment) memberAnswer(ctx context.Context, q request) (answer, error) {
	all, err := m.etcdMembers(ctx)
	if err != nil {
		return answer{}, err
	}
	a := answer{}
	for _, e := range all {
		p := Peer{Name: hexID(e.ID), Address: peerOf(e)} // names need not be unique
		if p.Address == q.Peer {
			p.Name = q.Name
		}
		a.Members = append(a.Members, p)
	}
	if a.Clients, err = m.authorities.exportClients(); err != nil {
		return answer{}, err
	}
	a.Authority, err = m.peers.export()
	return a, err
}

// etcdMembers are the members as a majority knows them.
func (m *local) etcdMembers(ctx context.Context) ([]*etcdserverpb.Member, error) {
	if m.cfg.Store != nil {
		return m.rowMembers(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := m.server.client.MemberList(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return r.Members, nil
}

// nameOf is how people know a member, which has no name in etcd before it has started.
func (m *Roster) nameOf(ctx context.Context, e *etcdserverpb.Member) string {
	if rows, err := list[memberRow](ctx, m.server.client, memberRows); err == nil {
		for _, r := range rows {
			if r.value.Peer == peerOf(e) {
				return r.value.Name
			}
		}
	}
	return hexID(e.ID)
}

// hexID is how etcd's tools write a member's id.
func hexID(id uint64) string { return strconv.FormatUint(id, 16) }

// peerOf is the host:port of a member's peer port.
func peerOf(e *etcdserverpb.Member) string {
	for _, u := range e.PeerURLs {
		if _, addr, ok := strings.Cut(u, "://"); ok {
			return addr
		}
	}
	return ""
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
