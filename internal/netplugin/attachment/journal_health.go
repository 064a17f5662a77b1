package attachment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// lowSpace is how many free bytes in the state directory's file system are reported as too
// few: room for some thousand attachments.
const lowSpace = 32 << 20

// isReadOnlyOrFull reports whether a file system refused to write for a reason that
// passes: it is full, read-only, or over its quota.
func isReadOnlyOrFull(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOSPC, unix.EROFS, unix.EDQUOT, unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}

// freeSpace returns the bytes free in the journal's file system, none when it
// takes no more files, and whether it may be written at all. While the journal's directory
// is removed, the file system is the one in which it will be made again.
func (j *journal) freeSpace() (free uint64, writable bool, err error) {
	var st unix.Statfs_t
	dir := j.dir
	err = unix.Statfs(dir, &st)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return 0, false, fmt.Errorf("check the file system of %s: %w", j.dir, err)
	}
	blocks := st.Bavail
	if os.Geteuid() == 0 {
		blocks = st.Bfree // what is kept back is kept back for root
	}
	if st.Files > 0 && st.Ffree == 0 { // some count no files: 0 of 0
		blocks = 0
	}
	return blocks * uint64(st.Bsize), st.Flags&unix.ST_RDONLY == 0, nil
}

// whyUnwritable says why the journal cannot be written; nil when it can, as far as is
// known. After a failure it tries again, with a file of its own.
func (j *journal) whyUnwritable() error {
	j.mu.Lock()
	failed := j.failed
	j.mu.Unlock()
	if failed == nil {
		return nil
	}
	return j.probe()
}

// probe writes a page and removes it.
func (j *journal) probe() error {
	file := filepath.Join(j.dir, newFile+"probe")
	err := os.WriteFile(file, make([]byte, page), 0o600)
	if rerr := os.Remove(file); err == nil {
		err = rerr
	}
	if err != nil {
		err = model.Errorf(model.ErrUnavailable, "the journal of attachments cannot be written: %w; netplugin needs free space, and may write, in %s (--state-dir)", err, j.dir)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = err
	return err
}

// unsavedEntries checks whether the journal can be written, and returns the entries that its
// directory lacks: ones that could not be written, and ones whose files were removed.
func (j *journal) unsavedEntries() []attach.Key {
	free, writable, err := j.freeSpace()
	switch {
	case isRemoved(j.dir):
		j.log.Error("the journal's directory was removed while netplugin runs; it is written again", "journal", j.dir)
		if os.MkdirAll(j.dir, 0o700) != nil {
			return nil
		}
	case err != nil, !writable, free < 1<<20:
		if j.probe() != nil {
			return nil
		}
	default:
		if j.whyUnwritable() != nil {
			return nil
		}
	}
	j.mu.Lock()
	for file := range j.stale {
		if os.Remove(file) == nil || isRemoved(file) {
			delete(j.stale, file)
		}
	}
	j.mu.Unlock()
	var out []attach.Key
	for _, e := range j.all() {
		if isRemoved(j.path(e.Key())) || j.isUnsaved(e.Key()) {
			out = append(out, e.Key())
		}
	}
	return out
}

func (j *journal) isUnsaved(k attach.Key) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unsaved[k]
}

// rewrite writes an entry that the directory lacks, unless it has gone, or has
// been written, meanwhile. The caller holds the attachment's lock.
func (j *journal) rewrite(k attach.Key) error {
	e, ok := j.get(k)
	unsaved := j.isUnsaved(k)
	if !ok || !unsaved && !isRemoved(j.path(k)) {
		return nil
	}
	if !unsaved {
		j.log.Warn("a journal entry was removed from outside; it is written again", "attachment", k.String(), "file", j.path(k))
	}
	return j.save(e)
}

// repairJournal writes what the journal's directory lacks, and has people told
// when it cannot be written, or can again.
func (a *releaser) repairJournal(ctx context.Context) {
	before := a.journal.problems()
	for _, k := range a.journal.unsavedEntries() {
		unlock, err := a.journal.turns.Lock(ctx, k)
		if err != nil {
			return
		}
		err = a.journal.rewrite(k)
		unlock()
		if err != nil {
			a.log.Error("a journal entry cannot be written", "attachment", k.String(), "error", err)
			break
		}
	}
	if !slices.Equal(before, a.journal.problems()) {
		a.agent.Kick("journal")
	}
}

// problems says what people should know of the journal.
func (j *journal) problems() []compile.Problem {
	var out []compile.Problem
	j.mu.Lock()
	failed, unsaved := j.failed, len(j.unsaved)
	files := slices.Sorted(maps.Keys(j.damaged))
	j.mu.Unlock()
	if failed != nil {
		text := failed.Error()
		if unsaved > 0 {
			text += fmt.Sprintf("; %d changes are known to this process only", unsaved)
		}
		out = append(out, compile.Problem{Object: "journal", Text: text})
	} else if free, writable, err := j.freeSpace(); err == nil && writable && free < lowSpace {
		text := fmt.Sprintf("only %d MiB are free for %s (--state-dir): when it is full, no container can be attached", free>>20, j.dir)
		if free == 0 {
			text = fmt.Sprintf("nothing is free for %s (--state-dir), or no more files: no container can be attached", j.dir)
		}
		out = append(out, compile.Problem{Object: "journal", Text: text})
	}
	var left []string
	for _, f := range files {
		if !isRemoved(f + badSuffix) {
			left = append(left, filepath.Base(f+badSuffix))
		}
	}
	if len(left) > 0 {
		out = append(out, compile.Problem{Object: "damaged journal", Text: fmt.Sprintf(
			"%d entries could not be read and were moved to %s: %s; interfaces of running containers are kept, but not their published ports: "+
				"restart those containers, then delete the files", len(left), j.dir, strings.Join(left[:min(len(left), 5)], ", "))})
	}
	return out
}

// isDamaged reports whether the entry of an attachment was set aside.
func (j *journal) isDamaged(k attach.Key) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.damaged[j.path(k)]
	return ok
}
