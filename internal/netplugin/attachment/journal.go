package attachment

import (
	"bytes"
	"cmp"
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

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// The states of a journal entry.
const (
	StateIntent         = "intent" // an attachment is being made: undone at the next start
	StateDone           = "done"   // it stands
	StatePendingRelease = "owed"   // it has to go: the veth, then the endpoint at netmaster
)

// Entry is what the journal knows of one attachment.
type Entry struct {
	Version  int               `json:"version"` // journalVersion
	State    string            `json:"state"`
	Request  attach.Request    `json:"request"`
	Endpoint model.EndpointKey `json:"endpoint"`
	Group    model.GroupName   `json:"group,omitempty"`
	HostIf   string            `json:"hostIf"`
	Pod      bool              `json:"pod,omitempty"`    // Kubernetes said where it belongs, and says its labels and group
	BootID   string            `json:"bootId,omitempty"` // of the kernel that held the veth
	Result   *attach.Result    `json:"result,omitempty"` // when done
	Facts    attach.Fact       `json:"told,omitzero"`    // all that was told of it; Rev counts while netplugin runs
	// Seen is the endpoint of an adopted attachment, which has no result, as the store
	// had it when it was first seen there.
	Seen *model.Endpoint `json:"seen,omitempty"`
	// Private is the endpoint's address in the host's private subnet.
	Private netip.Addr           `json:"private,omitzero"`
	Ports   []attach.PortBinding `json:"ports,omitempty"` // published
	// Reserved: the runtime holds these ports (attach.PublishRequest).
	Reserved bool `json:"reserved,omitempty"`
}

// Key is the interface that the entry is about.
func (e Entry) Key() attach.Key { return e.Request.Key }

// title is what people call the container: by its pod, its name, or the beginning of its id.
func (e Entry) title() string {
	const short = 12 // as Docker prints ids
	switch name := cmp.Or(e.Facts.Name, e.Request.Name); {
	case e.Request.Pod.Name != "":
		return "pod " + e.Request.Pod.Namespace + "/" + e.Request.Pod.Name
	case name != "":
		return "container " + name
	}
	id := cmp.Or(e.Facts.ID, e.Request.Container)
	return "container " + id[:min(len(id), short)]
}

// journal keeps one file for each attachment in a directory, and all of them in
// memory. It is safe for concurrent use; who changes an entry holds the
// attachment's lock.
type journal struct {
	dir   string
	log   *slog.Logger
	fresh bool                           // the directory did not exist before
	turns waiting.KeyedLocks[attach.Key] // one request at a time for an attachment

	mu      sync.Mutex
	entries map[attach.Key]Entry
	sorted  []Entry           // by key; nil = to be made
	damaged map[string]string // why a file is set aside, by its former path
	unsaved map[attach.Key]bool
	stale   map[string]bool // files to be removed, of entries that are forgotten
	failed  error           // of the last write; nil once one has succeeded
}

// journalVersion is what this netplugin writes, and the newest that it reads.
const journalVersion = 1

// badSuffix is added to the name of a file that cannot be read.
const badSuffix = ".bad"

// openJournal reads a journal. Files that hold no entry are renamed to *.bad,
// logged and kept in mind: the veths of the attachments that they were are
// adopted by their alias. An entry of a newer version is an error of kind
// model.ErrConflict.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	j := &journal{
		dir: dir, log: log, entries: map[attach.Key]Entry{}, damaged: map[string]string{},
		unsaved: map[attach.Key]bool{}, stale: map[string]bool{},
	}
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
		if err := j.open(filepath.Join(dir, n.Name())); err != nil {
			return nil, fmt.Errorf("open journal: %w", err)
		}
	}
	return j, nil
}

// open reads one file of the journal's directory.
func (j *journal) open(file string) error {
	if name := filepath.Base(file); strings.HasPrefix(name, ".") && strings.Contains(name, newFile) { // a write that was cut short
		if err := os.Remove(file); err != nil && !isReadOnlyOrFull(err) {
			return err
		}
		return nil
	}
	if former, ok := strings.CutSuffix(file, badSuffix); ok {
		j.damaged[former] = "it was moved away by an earlier start"
		return nil
	}
	if !strings.HasSuffix(file, ".json") {
		return nil
	}
	e, err := readEntry(file)
	if errors.Is(err, model.ErrConflict) {
		return err
	}
	if err == nil && j.path(e.Key()) != file {
		err = errors.New("its contents do not match its name")
	}
	if err != nil {
		j.log.Error("a journal entry cannot be read and is moved away", "file", file, "error", err)
		if err := os.Rename(file, file+badSuffix); err != nil && !isReadOnlyOrFull(err) {
			return err
		}
		j.damaged[file] = err.Error()
		return nil
	}
	j.entries[e.Key()], j.sorted = e, nil
	return nil
}

func readEntry(file string) (Entry, error) {
	var e Entry
	data, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	// The version first: of a newer one nothing else can be relied on.
	var v struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(data, &v) == nil && v.Version > journalVersion {
		return e, model.Errorf(model.ErrConflict,
			"journal entry %s is of version %d, written by a newer netplugin, and this one reads up to %d: start the newer one again, or end all containers with it before going back",
			file, v.Version, journalVersion)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	if e.Version != journalVersion || e.HostIf == "" || e.Request.Container == "" ||
		!slices.Contains([]string{StateIntent, StateDone, StatePendingRelease}, e.State) {
		return e, fmt.Errorf("it is not a journal entry of version %d", journalVersion)
	}
	e.Facts.Rev = 0
	return e, nil
}

func (j *journal) path(k attach.Key) string {
	sum := sha256.Sum256([]byte(k.Container + "\x00" + k.IfName))
	return filepath.Join(j.dir, hex.EncodeToString(sum[:16])+".json")
}

// put writes an entry; on an error the journal knows what it knew before. What
// it wrote outlives the process; nothing is synced, since a crash of the machine
// takes the containers along, and what it loses of the journal releaseOrphans
// finds. A disk that is full or cannot be written is model.ErrUnavailable.
func (j *journal) put(e Entry) error {
	if err := j.save(e); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[e.Key()], j.sorted = e, nil
	return nil
}

// putOrRemember is put for what is so whether it can be written or not: on an error the
// journal knows the entry all the same, and repair writes it.
func (j *journal) putOrRemember(e Entry) error {
	j.mu.Lock()
	j.entries[e.Key()], j.sorted = e, nil
	j.unsaved[e.Key()] = true
	j.mu.Unlock()
	return j.save(e)
}

// save writes an entry's file.
func (j *journal) save(e Entry) error {
	e.Version = journalVersion
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write journal entry of %s: %w", e.Key(), err)
	}
	_, known := j.get(e.Key())
	err = write(j.path(e.Key()), data, known)
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed the directory
		if err = os.MkdirAll(j.dir, 0o700); err == nil {
			err = write(j.path(e.Key()), data, false)
		}
	}
	if err != nil {
		err = model.Errorf(model.ErrUnavailable, "write journal entry of %s: %w; netplugin needs free space, and may write, in %s (--state-dir)", e.Key(), err, j.dir)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = err
	if err == nil {
		delete(j.unsaved, e.Key())
		delete(j.stale, j.path(e.Key()))
	}
	return err
}

// newFile is in the names of files that are being written, which begin with a dot.
const newFile = ".new-"

// page is how much one write puts into a file without a kill getting between.
const page = 4096

// write makes the file, or overwrites it in place, padded with blanks where the
// old contents were longer: renaming a new file over an old one makes ext4 begin
// to write both to disk, for each container that starts.
func write(path string, data []byte, there bool) error {
	if !there || len(data) > page {
		return durable.Replace(path, data)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return durable.Replace(path, data)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > page {
		return errors.Join(f.Close(), durable.Replace(path, data))
	}
	if err == nil {
		if n := int(info.Size()) - len(data); n > 0 {
			data = append(data, bytes.Repeat([]byte{' '}, n)...)
		}
		_, err = f.WriteAt(data, 0)
	}
	return errors.Join(err, f.Close())
}

func (j *journal) get(k attach.Key) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[k]
	return e, ok
}

// remove forgets an entry, and with it the file that was set aside in its place.
// Files on a disk that cannot be written go later.
func (j *journal) remove(k attach.Key) error {
	path := j.path(k)
	var left []string
	for _, file := range []string{path, path + badSuffix} {
		switch err := os.Remove(file); {
		case err == nil || isRemoved(file):
		case isReadOnlyOrFull(err):
			left = append(left, file)
		default:
			return fmt.Errorf("remove journal entry of %s: %w", k, err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, file := range left {
		j.stale[file] = true
	}
	delete(j.entries, k)
	j.sorted = nil
	delete(j.unsaved, k)
	delete(j.damaged, path)
	return nil
}

// isRemoved reports whether a file is not there: on a file system that cannot be
// written the error of removing it does not.
func isRemoved(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// attached returns the attachments that stand.
func (j *journal) attached() []statemirror.Attachment {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []statemirror.Attachment
	for _, e := range j.entries {
		if e.State == StateDone {
			o := statemirror.Attachment{Key: e.Key(), Endpoint: e.Endpoint}
			if e.Result == nil && e.Seen != nil {
				o.MAC, o.IPv4 = e.Seen.MAC, e.Seen.IPv4
			}
			if e.Result != nil {
				o.MAC = e.Result.MAC
				for _, ad := range e.Result.Addresses {
					if ip := ad.Prefix.Addr(); ip.Is4() {
						o.IPv4 = ip
					}
				}
			}
			out = append(out, o)
		}
	}
	return out
}

// hasPod reports whether another interface of a container stands that is its pod's.
func (j *journal) hasPod(k attach.Key) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e.Pod && e.State == StateDone && e.Request.Container == k.Container && e.Request.IfName != k.IfName {
			return true
		}
	}
	return false
}

// all returns the entries in the order of their keys; the slice must not be
// changed. Every pass asks for it.
func (j *journal) all() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.sorted == nil {
		j.sorted = slices.SortedFunc(maps.Values(j.entries), func(a, b Entry) int {
			return strings.Compare(a.Key().String(), b.Key().String())
		})
	}
	return j.sorted
}
