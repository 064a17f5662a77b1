package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/contiv/netplugin/v2/internal/durable"
	"github.com/contiv/netplugin/v2/internal/filelock"
	"github.com/contiv/netplugin/v2/internal/model"
)

// lockName is the file by which internal/store/etcd keeps a data directory to one
// process too.
const lockName = "contiv.lock"

// step is how far a directory came.
type step string

const (
	founding step = "founding" // a cluster of its own; its data may be missing yet
	asked    step = "asked"    // its identity is known to it; a token may be spent on it
	admitted step = "admitted" // it has authority and certificate; a learner of its address is in the cluster
	learner  step = "learner"  // it has data; not yet a vote
	member   step = "member"   // it has a vote
)

// state is what a data directory says of itself, beside etcd's data.
type state struct {
	ID        string `json:"id"` // of the directory: a token is spent on it
	Name      string `json:"name"`
	Peer      string `json:"peer"` // host:port
	Step      step   `json:"step"`
	Authority string `json:"authority,omitempty"` // fingerprint of the one that it asks, or has
	Token     string `json:"token,omitempty"`     // id of the one that it joins by
}

// directory is a data directory that this process has for itself.
type directory struct {
	path string
	lock *os.File
	state
}

func (d *directory) own(name string) string { return filepath.Join(d.path, "join", name) }

// openDirectory takes a directory, which is made when it is missing, and reads what
// it says. A new one has no step.
func openDirectory(path string) (*directory, error) {
	if path == "" {
		return nil, model.InvalidField("data-dir", path, "must name a directory")
	}
	d := &directory{path: path}
	if err := os.MkdirAll(d.own(""), 0o700); err != nil {
		return nil, fmt.Errorf("use the data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("use the data directory: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		_ = f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, model.Errorf(model.ErrConflict, "another process uses %s; stop it, or name another directory with --data-dir", path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	d.lock = f
	b, err := os.ReadFile(d.own("state.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d, nil
	case err == nil:
		err = json.Unmarshal(b, &d.state)
	}
	if err != nil {
		_ = filelock.Unlock(f)
		return nil, fmt.Errorf("read %s: %w; restore the file from a copy", d.own("state.json"), err)
	}
	return d, nil
}

func (d *directory) close() error { return filelock.Unlock(d.lock) }

// begin gives a new directory its identity.
func (d *directory) begin(s step, cfg Config, t Token) error {
	d.state = state{ID: uuid.NewString(), Name: cfg.Name, Peer: cfg.Peer, Step: s, Token: t.ID}
	if s == asked {
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
	if err := durable.WriteJSON(d.own("state.json"), d.state); err != nil {
		return fmt.Errorf("write down how far this member came: %w; see that %s can be written, and start again", err, d.path)
	}
	return nil
}

// empty tells whether etcd has never run here. One that was killed while it began may
// have left a directory without a log.
func (d *directory) empty() bool { return !wal.Exist(walDir(d.path)) }

// check refuses a directory that is not what the command line takes it for. Nothing
// is changed.
func (d *directory) check(cfg Config, t *Token) error {
	unfinished := d.Step == asked || d.Step == admitted
	switch {
	case d.Step == "" && (t == nil || d.empty()):
		return nil
	case t != nil && (d.Step == "" || d.Step == founding):
		return model.Errorf(model.ErrConflict, "%s has a store of its own, which joining would lose: leave --join out to go on with that, or name an empty directory with --data-dir", d.path)
	case t == nil && unfinished:
		return model.Errorf(model.ErrConflict, "%s is about to join a cluster (as %s, by the token %s): repeat the command line with --join and --token, or delete the directory to found a cluster of its own", d.path, d.Name, d.Token)
	case t != nil && d.Authority != t.Authority.String() && unfinished:
		return model.Errorf(model.ErrConflict, "%s is about to join another cluster (authority %s) than the token's (%s): delete it if that is not to be any more, or name an empty directory with --data-dir", d.path, d.Authority, t.Authority)
	case t != nil && d.Authority != t.Authority.String():
		return model.Errorf(model.ErrConflict, "%s is of another cluster (authority %s) than the token (%s): name an empty directory with --data-dir, or leave --join out to go on in the former cluster", d.path, d.Authority, t.Authority)
	case d.Name != cfg.Name:
		return model.Errorf(model.ErrConflict, "%s is of the member %s, and a member keeps its name: start it with that, or name an empty directory with --data-dir", d.path, d.Name)
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
