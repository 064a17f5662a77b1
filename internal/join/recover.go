package join

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Recovered is what a new cluster was made of.
type Recovered struct {
	store.Incarnation          // the store's identity, in a new epoch; zero = it had none
	Lost              []string // members that are in the cluster no more
}

// Recover makes a cluster of one member of the directory of a member whose cluster has
// lost its majority for good. Members that were lost are strangers to it: one that
// comes back ends, and says that it was removed. The store gets a new epoch, since what
// the majority has committed last may be missing. Nobody is served meanwhile; Start
// goes on with the directory, and again lets others join. It may be repeated.
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
	m := &Member{cfg: cfg, dir: d}
	defer func() { err = errors.Join(err, m.Close()) }()
	switch {
	case d.empty() || d.Step == "":
		return r, model.Errorf(model.ErrConflict, "%s has no data of a member: give the directory of one (--data-dir), or restore a snapshot (netmaster --restore)", d.path)
	case d.Name != cfg.Name:
		return r, d.check(cfg, nil)
	}
	reach, err := ReachOf(d.path)
	if err != nil {
		return r, err
	}
	if !reach.Votes { // etcd would end the process
		return r, model.Errorf(model.ErrConflict, "%s never had a vote, and what it copied makes no cluster: give the directory of another member (--data-dir), or restore a snapshot (netmaster --restore)", d.Name)
	}
	cfg.TLS, cfg.Secure = nil, nil // nobody but this process is to connect
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
	r.Incarnation, err = renewEpoch(ctx, m.Client())
	if err != nil {
		return r, err
	}
	return r, d.reach(member)
}

// renewEpoch tells who followed the store that what it knows may be newer.
func renewEpoch(ctx context.Context, c *etcd.Client) (inc store.Incarnation, err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = c.Update(ctx, func(tx store.Tx) error {
		row, err := tables.Incarnations.Find(tx, tables.IncarnationKey{})
		if err != nil || !row.Exists() {
			return err
		}
		now := time.Now()
		inc = row.Value
		inc.Epoch = inc.Next(now)
		inc.Since = now.UTC().Format(time.RFC3339)
		return tables.Incarnations.Put(tx, inc)
	})
	return inc, err
}
