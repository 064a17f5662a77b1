package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/durable"
)

// Spool is a directory of deletions that could not be handed to netplugin; it
// replays them when it starts and every few seconds after.
type Spool struct {
	Dir string // empty = the spool directory below StateDir
}

// SpoolDir is the name of the spool's directory within the state directory.
const SpoolDir = "spool"

func (s Spool) dir() string {
	if s.Dir == "" {
		return filepath.Join(StateDir, SpoolDir)
	}
	return s.Dir
}

func (s Spool) path(k Key) string {
	sum := sha256.Sum256([]byte(k.Container + "\x00" + k.IfName))
	return filepath.Join(s.dir(), hex.EncodeToString(sum[:16])+".json")
}

// Put stores a deletion durably; a second one for the same Key replaces it.
func (s Spool) Put(r DetachRequest) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("spool deletion of %s: %w", r.Key, err)
	}
	if err := os.MkdirAll(s.dir(), 0o700); err != nil {
		return fmt.Errorf("spool deletion of %s: %w", r.Key, err)
	}
	if err := durable.WriteFile(s.path(r.Key), data); err != nil {
		return fmt.Errorf("spool deletion of %s: %w", r.Key, err)
	}
	return nil
}

// Remove forgets a deletion; one that is not there is fine.
func (s Spool) Remove(k Key) error {
	if err := os.Remove(s.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove spooled deletion of %s: %w", k, err)
	}
	return nil
}

// Has reports whether a deletion is spooled.
func (s Spool) Has(k Key) bool {
	_, err := os.Stat(s.path(k))
	return err == nil
}

// List returns the spooled deletions. Files that hold no deletion are left alone and
// named in the error, which comes with the deletions of the other files.
func (s Spool) List() ([]DetachRequest, error) {
	names, err := os.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	var out []DetachRequest
	var errs []error
	for _, e := range names {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		file := filepath.Join(s.dir(), e.Name())
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var r DetachRequest
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && s.path(r.Key) != file {
			err = errors.New("contents do not match the file's name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read spooled deletion %s: %w", file, err))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}
