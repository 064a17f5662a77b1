package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// control calls a command on the switch daemon's control socket, which speaks
// JSON-RPC 1.0 (ovs-appctl(8), ovsdb-server(7)), and returns its answer.
func control(ctx context.Context, runDir, command string, args ...string) (string, error) {
	// The socket's name ends with the daemon's process number; sockets of dead daemons
	// may still be there.
	paths, err := filepath.Glob(filepath.Join(runDir, "*vswitchd*.ctl"))
	if err != nil {
		return "", err
	}
	slices.Sort(paths)
	errs := []error{fmt.Errorf("no control socket of ovs-vswitchd answers in %s", runDir)}
	for _, p := range paths {
		text, err := controlAt(ctx, p, command, args)
		if err == nil {
			return text, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func controlAt(ctx context.Context, path, command string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(t)
	}
	if err := json.NewEncoder(c).Encode(map[string]any{"id": 0, "method": command, "params": append([]string{}, args...)}); err != nil {
		return "", err
	}
	var answer struct {
		Result string  `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s: %s", command, strings.TrimSpace(*answer.Error))
	}
	return answer.Result, nil
}

// daemon calls ovs-vswitchd on its control socket: for cached flows and tracked
// connections. It needs no lock.
type daemon struct {
	*env
	flushSoon chan struct{} // asks for the cache to be flushed soon
	listable  uint64        // maxEstablished, but in tests
}

// forgetCached makes the datapath in user space forget what it has cached, so that the
// next packet of everything is judged by the tables as they are now. The switch's own
// revalidation is not enough: in Open vSwitch 3.1 a cached flow that overlaps with
// another one may keep its old actions for ever. Nor is revalidator/purge: it skips the
// flows that a revalidating thread holds, and that thread may write what it found in the
// old tables afterwards (docs/design/ovs-pipeline.md, "Stale datapath flows"). After a
// change that revokes nothing, this may last until the cache is flushed a moment later.
func (d *daemon) forgetCached(ctx context.Context, revokes bool) {
	if d.cfg.Datapath != "netdev" {
		return
	}
	_, err := control(ctx, d.cfg.RunDir, purgeCommand)
	if err == nil && revokes {
		_, err = control(ctx, d.cfg.RunDir, flushCommand)
	}
	if err != nil {
		d.cfg.Log.Warn("cached flows of the switch cannot be purged: packets may be handled by former rules", "error", err)
	}
	if err != nil || revokes {
		return
	}
	select {
	case d.flushSoon <- struct{}{}:
	default:
	}
}

// flushLater flushes the cache some time after changes that revoked nothing.
func (d *daemon) flushLater(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.flushSoon:
		}
		if waiting.Pause(ctx, flushDelay) != nil {
			return
		}
		// The purge has told a failure, or the switch is gone with its cache.
		_, _ = control(ctx, d.cfg.RunDir, flushCommand)
	}
}

// purgeKernel makes the kernel's datapath forget its cached flows. Their former actions
// would otherwise recreate connections that are about to be deleted, until the switch's own
// revalidation has come to them. In user space every change has flushed them.
func (d *daemon) purgeKernel(ctx context.Context, what string) {
	if d.cfg.Datapath == "netdev" {
		return
	}
	if _, err := control(ctx, d.cfg.RunDir, purgeCommand); err != nil {
		d.cfg.Log.Warn("cached flows of the switch cannot be purged: connections may be remembered", "of", what, "error", err)
	}
}

const (
	purgeCommand = "revalidator/purge"
	// flushCommand enables what is enabled already. Its effect here is that the switch ends
	// its revalidating threads, flushes its cache, and starts the threads again.
	flushCommand = "upcall/enable-megaflows"
	flushDelay   = 200 * time.Millisecond
)
