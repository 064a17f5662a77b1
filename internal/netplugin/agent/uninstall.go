package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// Idle is a host whose agent does not run, and cannot be started, until Close:
// what it left can be taken away.
type Idle struct {
	cfg  Config
	lock *os.File // nil where there is no state directory
}

// TakeIdle takes the host of an agent that does not run; of cfg only Host, StateDir
// and Socket count. It makes nothing. model.ErrConflict while an agent runs.
func TakeIdle(ctx context.Context, cfg Config) (*Idle, error) {
	h := &Idle{cfg: cfg}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", cfg.Socket); err == nil {
		_ = c.Close()
		return nil, model.Errorf(model.ErrConflict, "a netplugin runs: it answers at %s; stop it first (systemctl disable --now netplugin)", cfg.Socket)
	}
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	var err error
	if h.lock, err = lockFile(filepath.Join(cfg.StateDir, "lock")); errors.Is(err, model.ErrConflict) {
		return nil, model.Errorf(model.ErrConflict, "a netplugin runs with the state directory %s; stop it first (systemctl disable --now netplugin)", cfg.StateDir)
	}
	return h, err
}

// Close lets agents start again.
func (h *Idle) Close() error {
	if h.lock == nil {
		return nil
	}
	return durable.Unlock(h.lock)
}

// Attached lists the interfaces of containers that an agent of this host made
// and that still stand: name and alias. Those of agents with other names are not
// part of it, and neither are the host's own on infra networks.
func (h *Idle) Attached() ([]vethpair.Veth, error) {
	all, err := vethpair.List()
	return slices.DeleteFunc(all, func(v vethpair.Veth) bool {
		return !attachment.IsOurs(h.cfg.Host, v) || attachment.OfHost(h.cfg.Host, v)
	}), err
}

// LeaveInfra removes the host's own interfaces on infra networks, and returns how many
// those were.
func (h *Idle) LeaveInfra() (int, error) {
	all, err := vethpair.List()
	if err != nil {
		return 0, err
	}
	n, err := h.Detach(slices.DeleteFunc(all, func(v vethpair.Veth) bool { return !attachment.OfHost(h.cfg.Host, v) }))
	return n, errors.Join(err, vethpair.RestrictToOwnRoutes(nil))
}

// Detach removes containers' interfaces, and returns how many it removed.
func (h *Idle) Detach(all []vethpair.Veth) (int, error) {
	var errs []error
	n := 0
	for _, v := range all {
		err := vethpair.Delete(v.Name, v.Alias)
		if errs = append(errs, err); err == nil {
			n++
		}
	}
	return n, errors.Join(errs...)
}

// stateFiles are what netplugin keeps in its state directory, which netmaster's
// store may share with it.
var stateFiles = []string{
	"attach", attach.SpoolDir, "docker", "driver.json",
	installationFile, installationFile + ".bad", groupsFile, statemirror.PositionFile, statemirror.PositionFile + ".bad", statemirror.UnconfirmedFile, statemirror.CheckpointFile, statemirror.HostsFile, hostchanges.File, peersFile, "lock",
}

// Forget removes what an agent keeps in files, and directories that are empty
// then; it returns what it removed.
func (h *Idle) Forget() (removed []string, err error) {
	var errs []error
	remove := func(path string, f func(string) error) {
		if _, err := os.Lstat(path); err != nil {
			return
		}
		if err := f(path); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
			return
		}
		if _, err := os.Lstat(path); err != nil {
			removed = append(removed, path)
		}
	}
	remove(h.cfg.Socket, os.Remove)
	half, err := filepath.Glob(filepath.Join(h.cfg.StateDir, ".new-*"))
	errs = append(errs, err)
	for _, name := range stateFiles {
		path := filepath.Join(h.cfg.StateDir, name)
		cut, err := durable.Unfinished(path)
		errs = append(errs, err)
		half = append(append(half, cut...), path)
	}
	for _, path := range half {
		remove(path, os.RemoveAll)
	}
	for _, dir := range []string{filepath.Dir(h.cfg.Socket), h.cfg.StateDir} {
		if left, err := os.ReadDir(dir); err == nil && len(left) == 0 {
			remove(dir, removeDir)
		}
	}
	return removed, errors.Join(errs...)
}

// removeDir removes an empty directory, but for one on which somebody has mounted
// a file system: it is his. In a pod, whose files cannot change but for what is
// mounted, the kernel says so of the directory's parent.
func removeDir(dir string) error {
	if err := os.Remove(dir); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EROFS) {
		return err
	}
	return nil
}
