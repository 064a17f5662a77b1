package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Recovered is what a new cluster was made of.
type Recovered struct {
	store.Incarnation          // the store's identity, in a new epoch; zero = it had none
	Lost              []string // members that are in the cluster no more
}

// Recover founds a cluster of one member from the directory of a member whose cluster has
// lost its majority for good. It does not know the lost members: one that comes back exits
// and says that it was removed. The store gets a new epoch, since the last commits of the
// majority may be missing. No client is served meanwhile; Start goes on with the directory
// and lets others join again. Recover may be repeated.
func Recover(ctx context.Context, cfg Config) (r Recovered, err error) {
	if cfg, err = cfg.checked(ctx); err != nil {
		return r, err
	}
	d, err := openDirectory(cfg.Dir)
	if err != nil {
		return r, err
	}
	if cfg.Name == "" {
		cfg.Name = d.Name
	}
	m := newMember(&local{cfg: cfg, dir: d})
	defer func() { err = errors.Join(err, m.Close(), durable.GiveToOwner(d.path)) }()
	switch {
	case d.empty() || d.Step == "":
		return r, model.Errorf(model.ErrConflict, "%s has no member's data: give a member's directory (--data-dir), or restore a snapshot (netmaster --restore)", d.path)
	case d.Name != cfg.Name:
		return r, d.check(cfg, nil)
	}
	reach, err := ReachOf(d.path)
	if err != nil {
		return r, err
	}
	if !reach.Votes { // etcd would end the process
		return r, model.Errorf(model.ErrConflict, "%s never was a voter, and a cluster cannot be recovered from its copy: give the directory of another member (--data-dir), or restore a snapshot (netmaster --restore)", d.Name)
	}
	if m.peers, err = openPeers(d, cfg); err != nil {
		return r, err
	}
	if err := m.Roster.checkOthersLost(ctx); err != nil {
		return r, err
	}
	cfg.TLS, cfg.Secure = nil, nil // only this process is to connect
	if cfg.Client, err = clientAddress(ctx, "127.0.0.1:0"); err != nil {
		return r, err
	}
	m.cfg = cfg
	if err := m.start(ctx, initial{force: true}); err != nil {
		return r, err
	}
	cfg.at("forced")
	rows, err := list[memberRow](ctx, m.server.client, memberRows)
	if err != nil {
		return r, err
	}
	var ops []clientv3.Op
	for _, row := range rows {
		if row.value.Dir != d.ID {
			r.Lost = append(r.Lost, row.value.Name)
			ops = append(ops, clientv3.OpDelete(memberRows+row.value.Name))
		}
	}
	if _, err := commit(ctx, m.server.client, nil, ops...); err != nil {
		return r, err
	}
	r.Incarnation, err = renewGeneration(ctx, m.Client())
	if err != nil {
		return r, err
	}
	return r, d.reach(member)
}

// checkOthersLost refuses a recovery while another member takes part in a majority: the new
// cluster would tell the members of that one that they were removed, and they would end,
// with all that was written since this one was stopped.
func (m *Roster) checkOthersLost(ctx context.Context) error {
	live, err := m.liveOthers(ctx)
	if err != nil || len(live) == 0 {
		return err
	}
	return model.Errorf(model.ErrConflict, "%s: alive in a cluster that has its majority, which a recovery of %s would destroy: start netmaster here as before, or join with an empty directory; to replace that cluster, stop its members first", strings.Join(live, ", "), m.dir.Name)
}

// liveOthers names the other members that take part in a majority.
func (m *Roster) liveOthers(ctx context.Context) ([]string, error) {
	rows, err := rowsOnDisk(m.dir)
	if err != nil {
		return nil, err
	}
	c, err := m.memberClient(askStatus)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	live := make([]string, len(rows))
	var asking sync.WaitGroup
	for i, r := range rows {
		if r.Dir == m.dir.ID || r.EnrollmentAddress == "" {
			continue
		}
		asking.Go(func() {
			var s Status
			if jointoken.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+r.EnrollmentAddress+statusPath, nil, &s) == nil && s.Leader != 0 {
				live[i] = fmt.Sprintf("%s (%s)", r.Name, r.EnrollmentAddress)
			}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(live, func(s string) bool { return s == "" }), nil
}

// rowsOnDisk reads the rows of members in the data of an etcd that does not run.
func rowsOnDisk(d *directory) (rows []memberRow, err error) {
	fail := func(err error) error {
		return fmt.Errorf("read the members in the data of %s: %w", d.path, err)
	}
	defer func() { // etcd's reader of a file that is none panics
		if p := recover(); p != nil {
			err = fail(fmt.Errorf("%v", p))
		}
	}()
	be := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(d.path, dataName, "snap", "db"))
	defer func() { err = errors.Join(err, be.Close()) }()
	tx := be.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	found := map[string]memberRow{}
	err = tx.UnsafeForEach(schema.Key, func(rev, v []byte) error { // in the order of revisions
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return err
		}
		key := string(kv.GetKey())
		if !strings.HasPrefix(key, memberRows) {
			return nil
		}
		if mvcc.IsTombstone(rev) {
			delete(found, key)
			return nil
		}
		found[key], err = decode[memberRow](kv.GetKey(), kv.GetValue())
		return err
	})
	if err != nil {
		return nil, fail(err)
	}
	return slices.Collect(maps.Values(found)), nil
}

// renewGeneration tells who followed the store that what it knows may be newer.
func renewGeneration(ctx context.Context, c *etcd.Client) (inc store.Incarnation, err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = c.Update(ctx, func(tx store.Tx) error {
		row, err := tables.Incarnations.Find(tx, tables.IncarnationKey{})
		if err != nil || !row.Exists() {
			return err
		}
		now := time.Now()
		inc = row.Value
		inc.Generation = inc.Next(now)
		inc.Since = now.UTC().Format(time.RFC3339)
		return tables.Incarnations.Put(tx, inc)
	})
	return inc, err
}
