package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The states of a journal entry.
const (
	stateIntent = "intent" // an attachment is being made: undone at the next start
	stateDone   = "done"   // it stands
	stateOwed   = "owed"   // it has to go: the veth, then the endpoint at netmaster
)

// entry is what the journal knows of one attachment.
type entry struct {
	Version  int               `json:"version"` // 1
	State    string            `json:"state"`
	Request  attach.Request    `json:"request"`
	Endpoint model.EndpointKey `json:"endpoint"`
	Group    model.GroupName   `json:"group,omitempty"`
	HostIf   string            `json:"hostIf"`
	BootID   string            `json:"bootId,omitempty"` // of the kernel that held the veth
	Result   *attach.Result    `json:"result,omitempty"` // when done
}

func (e entry) key() attach.Key { return e.Request.Key }

// journal keeps one file for each attachment in a directory, and all of them in
// memory. It is safe for concurrent use; who changes an entry holds the
// attachment's lock.
type journal struct {
	dir   string
	fresh bool // the directory did not exist before

	mu      sync.Mutex
	entries map[attach.Key]entry
}

// openJournal reads a journal. Files that hold no entry are renamed to *.bad
// and logged: the attachments that they were are swept as unknown.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	j := &journal{dir: dir, entries: map[attach.Key]entry{}}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		j.fresh = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	for _, n := range names {
		file := filepath.Join(dir, n.Name())
		if strings.HasPrefix(n.Name(), ".new-") { // a write that was cut short
			if err := os.Remove(file); err != nil {
				return nil, fmt.Errorf("open journal: %w", err)
			}
			continue
		}
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		e, err := readEntry(file)
		if err == nil && j.path(e.key()) != file {
			err = errors.New("its contents do not belong to its name")
		}
		if err != nil {
			log.Error("a journal entry cannot be read and is set aside", "file", file, "error", err)
			if err := os.Rename(file, file+".bad"); err != nil {
				return nil, fmt.Errorf("open journal: %w", err)
			}
			continue
		}
		j.entries[e.key()] = e
	}
	return j, nil
}

func readEntry(file string) (entry, error) {
	var e entry
	data, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	if e.Version != 1 || e.HostIf == "" || e.Request.Container == "" ||
		!slices.Contains([]string{stateIntent, stateDone, stateOwed}, e.State) {
		return e, errors.New("it is not a journal entry of version 1")
	}
	return e, nil
}

func (j *journal) path(k attach.Key) string {
	sum := sha256.Sum256([]byte(k.Container + "\x00" + k.IfName))
	return filepath.Join(j.dir, hex.EncodeToString(sum[:16])+".json")
}

// put writes an entry. Durable entries are synced before put returns; others
// outlive the process only, which is enough where a crash of the machine takes
// the container along. The directory is not synced: what a crash of the machine
// loses of it, releaseOrphans finds.
func (j *journal) put(e entry, durable bool) error {
	e.Version = 1
	data, err := json.Marshal(e)
	if err == nil {
		err = replaceFile(j.path(e.key()), data, durable)
	}
	if err != nil {
		return fmt.Errorf("write journal entry of %s: %w", e.key(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[e.key()] = e
	return nil
}

func replaceFile(path string, data []byte, durable bool) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil && durable {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

func (j *journal) get(k attach.Key) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[k]
	return e, ok
}

func (j *journal) remove(k attach.Key) error {
	if err := os.Remove(j.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal entry of %s: %w", k, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.entries, k)
	return nil
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(maps.Values(j.entries), func(a, b entry) int {
		return strings.Compare(a.key().String(), b.key().String())
	})
}

// bootID tells one run of the kernel from another; empty when it cannot be known.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
