package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
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
	// Private is the endpoint's address in the host's private subnet.
	Private netip.Addr           `json:"private,omitzero"`
	Ports   []attach.PortBinding `json:"ports,omitempty"` // published
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

// put writes an entry. It outlives the process; nothing is synced, since a crash
// of the machine takes the containers along, and what it loses of the journal
// releaseOrphans finds.
func (j *journal) put(e entry) error {
	e.Version = 1
	data, err := json.Marshal(e)
	if err == nil {
		_, known := j.get(e.key())
		err = write(j.path(e.key()), data, known)
	}
	if err != nil {
		return fmt.Errorf("write journal entry of %s: %w", e.key(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[e.key()] = e
	return nil
}

// page is how much one write puts into a file without a kill getting between.
const page = 4096

// write makes the file, or overwrites it in place, padded with blanks where the
// old contents were longer: renaming a new file over an old one makes ext4 begin
// to write both to disk, for each container that starts.
func write(path string, data []byte, there bool) error {
	if !there || len(data) > page {
		return replace(path, data)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return replace(path, data)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > page {
		return errors.Join(f.Close(), replace(path, data))
	}
	if err == nil {
		if n := int(info.Size()) - len(data); n > 0 {
			data = append(data, bytes.Repeat([]byte{' '}, n)...)
		}
		_, err = f.WriteAt(data, 0)
	}
	return errors.Join(err, f.Close())
}

func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
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
