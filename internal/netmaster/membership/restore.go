package membership

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap/zapcore"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// RestoreConfig says what to restore, and where.
type RestoreConfig struct {
	File    string // a snapshot, as Member.Snapshot and etcd.Client's make it
	DataDir string // of a member that does not run
	Logger  *slog.Logger
	Now     time.Time
	// KeepTokens keeps the tokens that the backup has. Otherwise they end: one that was
	// revoked after the backup would let in again.
	KeepTokens bool
	// NewAuthorities has the cluster make new authorities. Otherwise it keeps DataDir's, by
	// which hosts and people know it.
	NewAuthorities bool
}

// Restored is what came of it.
type Restored struct {
	store.Incarnation
	Revision store.Revision
	Kept     string // where what the directory held is now; "" = it was empty
	Tokens   int    // of clients of the API, that the backup had and that have ended
	// Authorities: the cluster has the directory's authorities.
	Authorities bool
}

// IsEmpty reports whether a data directory holds no etcd's data.
func IsEmpty(dataDir string) bool {
	_, err := os.Lstat(filepath.Join(dataDir, dataName))
	return errors.Is(err, fs.ErrNotExist)
}

// Restore founds a cluster of one member from a backup. The store's identity gets a new
// epoch and a revision above any that a client can have seen, so that no client takes it
// for the former store. Members and rows with a lease (the registry, claims, locks) are
// left out. The authorities in the directory stay, so that hosts come back by themselves;
// without them the cluster makes new ones. Other contents of the directory are kept aside
// in it. An error leaves everything unchanged. All files belong to the directory's owner.
func Restore(ctx context.Context, cfg RestoreConfig) (r Restored, err error) {
	fail := func(err error) (Restored, error) {
		return r, fmt.Errorf("restore %s into %s: %w", cfg.File, cfg.DataDir, err)
	}
	if _, err := os.Stat(cfg.File); err != nil { // before a lock that another may have
		return fail(err)
	}
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, durable.GiveToOwner(cfg.DataDir), durable.Unlock(lock)) }()
	d := &directory{path: cfg.DataDir, lock: lock}
	if !cfg.NewAuthorities {
		if r.Authorities, err = d.hasAuthorities(); err == nil && r.Authorities {
			err = d.previousMembersLost(ctx, cfg.Logger)
		}
		if err != nil {
			return fail(err)
		}
	}
	tmp, err := os.MkdirTemp(cfg.DataDir, "restore-")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	data := filepath.Join(tmp, "data")
	if err := unpack(cfg, data); err != nil {
		return fail(err)
	}
	if err := r.renew(ctx, cfg, data); err != nil {
		return fail(err)
	}
	was := ".before-restore-" + cfg.Now.UTC().Format("20060102T150405Z")
	var aside []string
	back := func(err error) (Restored, error) {
		for _, n := range aside {
			err = errors.Join(err, os.Rename(n+was, n))
		}
		return fail(err)
	}
	now, membership := filepath.Join(cfg.DataDir, dataName), d.own("")
	if r.Authorities {
		membership = d.own(stateName)
	}
	for _, n := range []string{membership, now} {
		switch err := os.Rename(n, n+was); {
		case err == nil:
			aside = append(aside, n)
		case !errors.Is(err, fs.ErrNotExist):
			return back(err)
		}
	}
	if slices.Contains(aside, now) {
		r.Kept = now + was
	}
	if err := os.Rename(filepath.Join(data, dataName), now); err != nil {
		return back(err)
	}
	return r, durable.SyncDir(cfg.DataDir)
}

// hasAuthorities reports whether the directory has both authorities, whole.
func (d *directory) hasAuthorities() (bool, error) {
	for _, name := range []string{authorityDir, clientsDir} {
		if _, err := os.Stat(filepath.Join(d.own(name), authorityFile)); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if _, err := pki.Open(d.own(name)); err != nil {
			return false, fmt.Errorf("%w; restore the directory from a copy, or have new authorities made (--new-authorities)", err)
		}
	}
	return true, nil
}

// previousMembersLost refuses a restore while a former member takes part in a majority: hosts
// would believe both clusters.
func (d *directory) previousMembersLost(ctx context.Context, log *slog.Logger) error {
	if err := d.load(); err != nil || d.empty() || d.Name == "" {
		return err
	}
	a, err := pki.Open(d.own(authorityDir))
	if err != nil {
		return err
	}
	m := newMember(&local{cfg: Config{Logger: log}, dir: d, peers: &peers{own: a.Dir(d.Name)}})
	live, err := m.Roster.liveOthers(ctx)
	if err != nil { // damaged data are what a backup is for
		log.Warn("it is unknown whether former members are running; make sure that none is", "error", err)
	}
	if len(live) > 0 {
		return model.Errorf(model.ErrConflict, "%s: alive in a cluster that has its majority, and hosts would accept both: stop its netmasters first, or have new authorities made (--new-authorities)", strings.Join(live, ", "))
	}
	return nil
}

// intact checks the hash at a snapshot's end: etcd's tools map the file into
// memory before they do, and a torn one kills the process.
func intact(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	hash := sha256.New()
	if st.Size() <= sha256.Size || st.Size()%512 != sha256.Size {
		return model.Errorf(model.ErrInvalid, "it is not a complete backup of an etcd: %d bytes", st.Size())
	}
	if _, err := io.CopyN(hash, f, st.Size()-sha256.Size); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return err
	}
	if !bytes.Equal(want, hash.Sum(nil)) {
		return model.Errorf(model.ErrInvalid, "it is not a backup of an etcd, or it is damaged: its hash does not match")
	}
	return nil
}

// unpack makes a data directory of a snapshot.
func unpack(cfg RestoreConfig, dir string) (err error) {
	if err := intact(cfg.File); err != nil {
		return err
	}
	defer func() { // etcd's reader of a file that is none may panic
		if p := recover(); p != nil {
			err = model.Errorf(model.ErrInvalid, "it is not a backup of an etcd: %v", p)
		}
	}()
	m := snapshot.NewV3(etcd.NewZap(cfg.Logger, zapcore.WriteThenPanic))
	st, err := m.Status(cfg.File)
	if err != nil {
		return model.Errorf(model.ErrInvalid, "it is not a backup of an etcd: %w", err)
	}
	const name = "contiv"
	peer := transport.HTTPS + "://" + nowhere
	// Microseconds since 1970 are more than any store has had commits, and grow
	// from restore to restore.
	target := max(cfg.Now.UnixMicro(), st.Revision+1_000_000_000)
	return m.Restore(snapshot.RestoreConfig{
		SnapshotPath: cfg.File, Name: name, OutputDataDir: dir,
		PeerURLs: []string{peer}, InitialCluster: name + "=" + peer, InitialClusterToken: "contiv " + uuid.NewString(),
		RevisionBump: uint64(target - st.Revision), MarkCompacted: true,
	})
}

// renew gives restored data their new epoch, through a server that no other process can
// know of. It sends no request to the members that the data name.
func (r *Restored) renew(ctx context.Context, cfg RestoreConfig, dir string) (err error) {
	own, err := Config{Dir: dir, Client: "127.0.0.1:0", Logger: cfg.Logger}.checked(ctx)
	if err != nil {
		return err
	}
	d, err := openDirectory(dir)
	if err != nil {
		return err
	}
	m := newMember(&local{cfg: own, dir: d})
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.checkDirectory(nil); err != nil {
		return err
	}
	if err := m.found(ctx); err != nil {
		return err
	}
	c := m.Client()
	defer func() { err = errors.Join(err, c.Close()) }()
	r.Revision, err = c.Update(ctx, func(tx store.Tx) error {
		g, err := tables.Globals.Find(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		if !g.Exists() {
			return model.Errorf(model.ErrInvalid, "it is a backup of an etcd, but without a Contiv cluster")
		}
		row, err := tables.Incarnations.Find(tx, tables.IncarnationKey{})
		if err != nil {
			return err
		}
		inc := row.Value
		if inc.ID == "" { // from before stores had identities
			inc.ID = uuid.NewString()
		}
		inc.Generation = inc.Next(cfg.Now)
		inc.Since = cfg.Now.UTC().Format(time.RFC3339)
		for _, leased := range []string{"service/", "lock/", "claim/", "oper/"} {
			tx.DeletePrefix(store.Root + leased)
		}
		r.deleteMembers(tx, cfg.Now)
		if r.Tokens = 0; !cfg.KeepTokens {
			all, err := tx.Range(store.AccessTokens, 0)
			if err != nil {
				return err
			}
			r.Tokens = len(all)
			tx.DeletePrefix(store.AccessTokens)
		}
		r.Incarnation = inc
		return tables.Incarnations.Put(tx, inc)
	})
	return err
}

// deleteMembers deletes what the backup has of members. Where hosts keep their certificates,
// it keeps what is known of these.
func (r *Restored) deleteMembers(tx store.Tx, now time.Time) {
	if !r.Authorities {
		tx.DeletePrefix(joinRows)
		return
	}
	for _, prefix := range []string{tokenRows, memberRows, hostTokenRows} {
		tx.DeletePrefix(prefix)
	}
	for _, key := range []string{clientsRow, membersAuthorityRow, adminRow, lockRow} {
		tx.Delete(key)
	}
	tx.Put(restoredRow, []byte(encode(now.UTC())), nil)
}
