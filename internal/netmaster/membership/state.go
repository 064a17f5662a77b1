package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// lockName is the file by which a data directory is kept to one process.
	lockName = "contiv.lock"
	// dataName is where etcd keeps its data below a data directory.
	dataName = "member"
	// stateName is below join.
	stateName = "state.json"
)

// step is how far a directory came.
type step string

const (
	founding  step = "founding" // a cluster of its own; its data may be missing yet
	requested step = "asked"    // its identity is known to it; a token may be spent on it
	admitted  step = "admitted" // it has authority and certificate; a learner of its address is in the cluster
	learner   step = "learner"  // it has data; not yet a vote
	member    step = "member"   // it has a vote
)

// state is what a data directory says of itself, beside etcd's data.
type state struct {
	ID        string `json:"id"` // of the directory: a token is spent on it
	Name      string `json:"name"`
	Peer      string `json:"peer"` // host:port
	Step      step   `json:"step"`
	Authority string `json:"authority,omitempty"` // fingerprint of the one that it asks, or has
	Token     string `json:"token,omitempty"`     // id of the one that it joins by
	Secure    bool   `json:"secure,omitempty"`    // it required TLS when it ran last
}

// directory is a data directory that this process has for itself.
type directory struct {
	path string
	lock *os.File
	// external says that the store is elsewhere, so that there are no data of etcd here.
	external bool
	state
}

func (d *directory) own(name string) string { return filepath.Join(d.path, "join", name) }

// lockDir makes a data directory and takes it for this process: a second etcd over the
// same data would wait for the first without a word.
func lockDir(path string) (*os.File, error) {
	if path == "" {
		return nil, model.InvalidField("data-dir", path, "must name a directory")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("use the data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("use the data directory: %w", err)
	}
	if err := durable.Lock(f); err != nil {
		_ = f.Close()
		if errors.Is(err, durable.ErrLocked) {
			return nil, model.Errorf(model.ErrConflict, "another process uses %s; stop it, or name another directory with --data-dir", path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// openDirectory takes a directory, which is made when it is missing, and reads what
// it says. A new one has no step.
func openDirectory(path string) (*directory, error) {
	d := &directory{path: path}
	f, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.own(""), 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("use the data directory: %w", err), durable.Unlock(f))
	}
	d.lock = f
	if err := d.load(); err != nil {
		_ = durable.Unlock(f)
		return nil, err
	}
	return d, nil
}

// load reads what the directory says of itself.
func (d *directory) load() error {
	b, err := os.ReadFile(d.own(stateName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = json.Unmarshal(b, &d.state)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w; restore the file from a copy", d.own(stateName), err)
	}
	return nil
}

// lagging is how etcd says that others have counted on more of its log than it has.
const lagging = "is out of range [lastIndex("

// advice says what to do about a directory with which etcd cannot go on, and why that is
// so where etcd said it; nil = it did not.
func (d *directory) advice(why error) string {
	if why != nil && strings.Contains(why.Error(), lagging) {
		return fmt.Sprintf("%s is older than the cluster, as when a copy of it was put back, and a member must not forget: on another member remove it with 'netctl cluster remove %s' and make a token, then join with an empty directory; if a copy of it ran elsewhere meanwhile and has ended, start netmaster again", d.path, d.Name)
	}
	if _, err := os.Stat(filepath.Join(d.path, lockName)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("the data directory %s was removed while netmaster ran: put it back from a backup before netmaster starts again, or it makes a new cluster", d.path)
	}
	if d.free() < 1<<20 {
		return fmt.Sprintf("the disk of %s is full: free some space there and start netmaster again; acknowledged writes are kept", d.path)
	}
	return fmt.Sprintf("make sure that %s (--data-dir) is writable, and start netmaster again", d.path)
}

// free is how many bytes the file system of the directory has left, also when somebody
// has removed the directory.
func (d *directory) free() uint64 {
	var st unix.Statfs_t
	if unix.Fstatfs(int(d.lock.Fd()), &st) != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}

func (d *directory) close() error { return durable.Unlock(d.lock) }

// begin gives a new directory its identity.
func (d *directory) begin(s step, cfg Config, t Token) error {
	d.state = state{ID: uuid.NewString(), Name: cfg.Name, Peer: cfg.Peer, Step: s, Token: t.ID}
	if s == requested {
		d.Authority = t.Authority.String()
	}
	return d.save()
}

// reach notes a step.
func (d *directory) reach(s step) error {
	d.Step = s
	return d.save()
}

func (d *directory) save() error {
	if err := durable.WriteJSON(d.own(stateName), d.state); err != nil {
		return fmt.Errorf("record this member's progress: %w; make sure that %s is writable, and start again", err, d.path)
	}
	return nil
}

// empty reports whether etcd has never run here, or whether no member has, where the store
// is elsewhere. One that was killed while it began may
// have left a directory without a log.
func (d *directory) empty() bool {
	if d.external {
		return d.Step != member
	}
	return !wal.Exist(walDir(d.path))
}

// check refuses a directory that is not what the command line takes it for. Nothing
// is changed.
func (d *directory) check(cfg Config, t *Token) error {
	unfinished := d.Step == requested || d.Step == admitted
	switch {
	case d.Step == "" && (t == nil || d.empty()):
		return nil
	case t != nil && (d.Step == "" || d.Step == founding):
		return model.Errorf(model.ErrConflict, "%s has a store of its own, which joining would delete: omit --join to keep using it, or name an empty directory with --data-dir", d.path)
	case t == nil && unfinished && cfg.Forming != nil && d.empty(): // it joins, or begins again
		return nil
	case t == nil && unfinished && cfg.Forming == nil:
		return model.Errorf(model.ErrConflict, "%s is joining a cluster (as %s, by the token %s): repeat the command line with --join and --token, or delete the directory to create a new cluster", d.path, d.Name, d.Token)
	case t != nil && d.Authority != t.Authority.String() && unfinished:
		return model.Errorf(model.ErrConflict, "%s is joining a cluster by another authority (%s) than the token's (%s): it is another cluster, or its authorities were renewed since; delete the directory to give that up, or name an empty directory with --data-dir", d.path, d.Authority, t.Authority)
	case t != nil && d.Authority != t.Authority.String():
		return model.Errorf(model.ErrConflict, "%s belongs to another cluster (authority %s) than the token (%s): name an empty directory with --data-dir, or omit --join to stay in the former cluster", d.path, d.Authority, t.Authority)
	case d.Name != cfg.Name:
		return model.Errorf(model.ErrConflict, "%s belongs to the member %s, and a member keeps its name: start it with that name, or name an empty directory with --data-dir", d.path, d.Name)
	case d.Secure && cfg.Secure == nil && cfg.TLS == nil && d.hasClients(): // a flag that was forgotten opens the cluster to everybody; who lost that authority gets it plainly
		return model.Errorf(model.ErrConflict, "%s belongs to a cluster with --secure, and without that flag any client would be accepted: start netmaster with --secure; to give up certificates, start it once with --secure --accept-plain before", d.path)
	case unfinished && d.Peer != cfg.Peer:
		return model.Errorf(model.ErrConflict, "%s asked to join with the address %s, not %s: repeat the former command line", d.path, d.Peer, cfg.Peer)
	case (d.Step == learner || d.Step == member) && d.empty():
		return d.lost()
	}
	return nil
}

func (d *directory) lost() error {
	return model.Errorf(model.ErrConflict, "the data of the member %s is gone from %s: on another member remove it with 'netctl cluster remove %s' and make a token, then join with an empty directory", d.Name, d.path, d.Name)
}
