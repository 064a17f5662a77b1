package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/store"
)

// The rows, which only members read: none is below the keys that agents watch.
const (
	joinRows   = store.Root + "join/"
	tokenRows  = joinRows + "token/"
	memberRows = joinRows + "member/"
	// hostTokenRows are apart: a member of before hosts joined would take one for its own.
	hostTokenRows = joinRows + "hosttoken/"
	hostRows      = joinRows + "host/"
	clientsRow    = joinRows + "clients"
	adminRow      = joinRows + "admin"
	lockRow       = joinRows + "removing"
	restoredRow   = joinRows + "restored" // when the store was restored with the authorities of before
)

// patience bounds one request to the cluster.
const patience = 5 * time.Second

// rowVersion is of all rows here.
const rowVersion = 1

// tokenRow is what the store has of a token.
type tokenRow struct {
	ID      string    `json:"id"`
	Hash    []byte    `json:"hash"`
	Expires time.Time `json:"expires"`
	Made    time.Time `json:"made,omitzero"`  // none: by a version that did not say so
	Host    string    `json:"host,omitempty"` // whose it is; "" = a netmaster's
	// Spent on a directory, or a host's key; "" = not yet.
	Dir  string    `json:"dir,omitempty"`
	Name string    `json:"name,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// clocksDiffer is by how much the clocks of netmasters may differ until tokens are refused.
const clocksDiffer = 5 * time.Minute

// whyInvalid says why an unused token is no longer valid; "" = it is valid.
func (t tokenRow) whyInvalid(now time.Time) string {
	if !now.Before(t.Expires) {
		return "the token ended on " + date(t.Expires)
	}
	return t.whyUnknown(now)
}

// whyUnknown says why a token is none that a netmaster makes; "" = it may be one. One that was made
// by a clock that was ahead would be good for longer than it should, and so would one that
// somebody wrote to the store while it was open to all.
func (t tokenRow) whyUnknown(now time.Time) string {
	const most = jointoken.MaxTokenLife + clocksDiffer
	switch ahead := t.Made.Sub(now); {
	case ahead > clocksDiffer:
		return fmt.Sprintf("the token was made on %s, which is %s later than it is here, since a clock was set: it is not known when it ends", date(t.Made), ahead.Round(time.Minute))
	case t.Expires.Sub(now) > most, !t.Made.IsZero() && t.Expires.Sub(t.Made) > most:
		return fmt.Sprintf("the token would end on %s, and none is good for more than %s", date(t.Expires), jointoken.MaxTokenLife)
	}
	return ""
}

// sweepTokens deletes and reports tokens that no netmaster made and that would become valid
// later. It also deletes tokens that ended long ago. This member's clock may be days behind
// the others', whose tokens it refuses but does not delete.
func (m *Enrolment) sweepTokens(ctx context.Context) error {
	c, now := m.server.client, time.Now()
	for _, rows := range []string{tokenRows, hostTokenRows} {
		all, err := list[tokenRow](ctx, c, rows)
		if err != nil {
			return err
		}
		for _, r := range all {
			why := ""
			if r.value.whyUnknown(now.Add(jointoken.MaxTokenLife)) != "" {
				why = r.value.whyUnknown(now)
			}
			if why == "" && now.Sub(r.value.Expires) <= jointoken.Retention {
				continue
			}
			ok, err := commit(ctx, c, []clientv3.Cmp{unchangedSince(r.key, r.rev)}, clientv3.OpDelete(r.key))
			if err != nil {
				return err
			}
			if ok && why != "" {
				m.cfg.Logger.Warn("a join token in the store was not made by a netmaster and is deleted", "token", r.value.ID, "host", r.value.Host, "usedBy", r.value.Name, "why", why)
			}
		}
	}
	return nil
}

// memberRow is what the store has of a member, from the moment in which a token was
// spent on it.
type memberRow struct {
	Name              string    `json:"name"`
	Dir               string    `json:"dir"`
	Peer              string    `json:"peer"`         // host:port
	EnrollmentAddress string    `json:"door"`         // host:port
	ID                uint64    `json:"id,omitempty"` // etcd's; 0 = it waits for its turn
	At                time.Time `json:"at"`
}

// row is one that was read, at a revision by which it can be compared.
type row[T any] struct {
	key   string
	value T
	rev   int64 // 0 = there is none
}

type envelope[T any] struct {
	V int `json:"v"`
	D T   `json:"d"`
}

func encode[T any](v T) string {
	b, _ := json.Marshal(envelope[T]{rowVersion, v}) // of strings, numbers and times: it cannot fail
	return string(b)
}

func decode[T any](key, value []byte) (T, error) {
	var e envelope[T]
	if err := json.Unmarshal(value, &e); err != nil {
		return e.D, fmt.Errorf("read %s of the store: %w", key, err)
	}
	if e.V > rowVersion {
		return e.D, fmt.Errorf("read %s of the store: it is of a newer version of Contiv: update this member", key)
	}
	return e.D, nil
}

func get[T any](ctx context.Context, c *clientv3.Client, key string) (row[T], error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil {
		return row[T]{}, unavailable(err)
	}
	if len(r.Kvs) == 0 {
		return row[T]{}, nil
	}
	v, err := decode[T](r.Kvs[0].Key, r.Kvs[0].Value)
	return row[T]{key, v, r.Kvs[0].ModRevision}, err
}

func list[T any](ctx context.Context, c *clientv3.Client, prefix string) ([]row[T], error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := c.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, unavailable(err)
	}
	var out []row[T]
	for _, kv := range r.Kvs {
		v, err := decode[T](kv.Key, kv.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, row[T]{string(kv.Key), v, kv.ModRevision})
	}
	return out, nil
}

// commit makes one transaction; false = a compare failed.
func commit(ctx context.Context, c *clientv3.Client, compares []clientv3.Cmp, ops ...clientv3.Op) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := c.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return false, unavailable(err)
	}
	return r.Succeeded, nil
}

// unchangedSince compares that a row is as it was read.
func unchangedSince(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", rev)
}

// unavailable says of an error of etcd's what to do.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if strings.Contains(err.Error(), "database space exceeded") {
		return model.Errorf(model.ErrExhausted, "the store is full and takes no writes: %w", err)
	}
	return model.Errorf(model.ErrUnavailable, "the store does not answer: its members are electing a leader, which takes seconds, or most of them are down: %w; try again, and start the ones that are down (docs/how-to/cluster.md says what to do when most are permanently lost)", err)
}

// NewToken makes a token that admits one member within life (0 = jointoken.TokenLife). Errors
// are model.ErrInvalid, ErrExhausted, ErrUnavailable.
func (m *Enrolment) NewToken(ctx context.Context, life time.Duration) (text string, t Token, err error) {
	return m.newToken(ctx, tokenRows, "", life)
}

// NewHostToken makes a token by which the netplugin of a host gets its certificate
// within life (0 = TokenLife), also when the host has one. Errors are NewToken's.
func (m *Enrolment) NewHostToken(ctx context.Context, host string, life time.Duration) (text string, t Token, err error) {
	if _, err := model.ParseHostName(host); err != nil {
		return "", t, err
	}
	if m.authorities.clients.Load() == nil {
		return "", t, model.Errorf(model.ErrUnavailable, "this netmaster does not have the client authority yet: try again in a minute")
	}
	return m.newToken(ctx, hostTokenRows, host, life)
}

func (m *Enrolment) newToken(ctx context.Context, rows, host string, life time.Duration) (text string, t Token, err error) {
	if life == 0 {
		life = jointoken.TokenLife
	}
	if life < time.Second || life > jointoken.MaxTokenLife {
		return "", t, model.InvalidField("life", life, "must be from a second to 7 days")
	}
	if m.cfg.alone {
		return "", t, model.Errorf(model.ErrConflict, "no netmaster can join this one, since it does not listen for members: start it with --peer-listen and --join-listen, at free addresses of this host, and then make the token")
	}
	addresses, err := m.enrollmentAddresses(ctx)
	if err != nil {
		return "", t, err
	}
	all, err := list[tokenRow](ctx, m.server.client, rows)
	if err != nil {
		return "", t, err
	}
	now := time.Now()
	good := 0
	var ops []clientv3.Op
	for _, r := range all {
		switch over := now.Sub(r.value.Expires); {
		case over > jointoken.Retention:
			if len(ops) < 100 { // of the 128 that a transaction may have
				ops = append(ops, clientv3.OpDelete(rows+r.value.ID))
			}
		case over < 0 && r.value.Dir == "":
			good++
		}
	}
	if good >= jointoken.MaxTokens {
		return "", t, model.Errorf(model.ErrExhausted, "there are %d unused join tokens, the limit: use one, or wait until one expires", good)
	}
	t = jointoken.New(addresses, fingerprint(m.peers.auth.Load()))
	t.Host = host
	row := tokenRow{ID: t.ID, Host: host, Hash: jointoken.Hash(t.ID, t.Secret), Expires: now.Add(life).UTC(), Made: now.UTC()}
	if _, err := commit(ctx, m.server.client, nil, append(ops, clientv3.OpPut(rows+t.ID, encode(row)))...); err != nil {
		return "", t, err
	}
	return t.Text(), t, nil
}
