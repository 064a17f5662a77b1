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

	"github.com/contiv/netplugin/v2/internal/waiting"
)

// controlPaths are the control sockets. Their names end with the daemon's process number;
// those of dead daemons may still be there.
func controlPaths(runDir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(runDir, "*vswitchd*.ctl"))
	slices.Sort(paths)
	return paths, err
}

// control calls a command on the switch daemon's control socket, which speaks
// JSON-RPC 1.0 (ovs-appctl(8), ovsdb-server(7)), and returns its answer.
func control(ctx context.Context, runDir, command string, args ...string) (string, error) {
	paths, err := controlPaths(runDir)
	if err != nil {
		return "", err
	}
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

// begin sends a command without waiting for its answer, to the first daemon that listens.
func begin(ctx context.Context, runDir, command string) (*call, error) {
	paths, err := controlPaths(runDir)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if c, err := callAt(ctx, p, command, nil); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no control socket of ovs-vswitchd answers in %s", runDir)
}

func controlAt(ctx context.Context, path, command string, args []string) (string, error) {
	c, err := callAt(ctx, path, command, args)
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.answer(5 * time.Second)
}

// call is a command that was sent to the control socket.
type call struct {
	conn    net.Conn
	command string
	ends    time.Time // of its context; zero = never
}

func callAt(ctx context.Context, path, command string, args []string) (*call, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c := &call{conn: conn, command: command}
	c.ends, _ = ctx.Deadline()
	if err := json.NewEncoder(conn).Encode(map[string]any{"id": 0, "method": command, "params": append([]string{}, args...)}); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// answer waits for what the switch says.
func (c *call) answer(within time.Duration) (string, error) {
	until := time.Now().Add(within)
	if !c.ends.IsZero() && c.ends.Before(until) {
		until = c.ends
	}
	_ = c.conn.SetDeadline(until)
	var answer struct {
		Result string  `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(c.conn).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s: %w", c.command, err)
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s: %s", c.command, strings.TrimSpace(*answer.Error))
	}
	return answer.Result, nil
}

func (c *call) close() {
	if c != nil {
		_ = c.conn.Close()
	}
}

// purge makes the datapath in user space forget what it has cached, so that the
// next packet of everything is judged by the tables as they are now. The switch's
// own revalidation is not enough: in Open vSwitch 3.1 a cached flow that overlaps
// with another one may keep its old actions for ever
// (docs/design/ovs-pipeline.md, "Stale datapath flows").
func (d *Driver) purge(ctx context.Context) {
	if d.cfg.Datapath != "netdev" {
		return
	}
	if _, err := control(ctx, d.cfg.RunDir, purgeCommand); err != nil {
		d.cfg.Log.Warn("cached flows of the switch cannot be purged: packets may be judged by former rules", "error", err)
	}
	select {
	case d.stale <- struct{}{}:
	default:
	}
}

// purgeKernel makes the kernel's datapath forget its cached flows, whose former actions
// would else make connections that are about to be forgotten anew, until the switch's
// own revalidation has come to them: meant are those of what. In user space every change
// has purged them.
func (d *Driver) purgeKernel(ctx context.Context, what string) {
	if d.cfg.Datapath == "netdev" {
		return
	}
	if _, err := control(ctx, d.cfg.RunDir, purgeCommand); err != nil {
		d.cfg.Log.Warn("cached flows of the switch cannot be purged: connections may be remembered", "of", what, "error", err)
	}
}

const (
	purgeCommand = "revalidator/purge"
	purgeDelay   = 200 * time.Millisecond
	// roundPatience bounds how long a change waits for the switch's revalidating threads.
	roundPatience = 100 * time.Millisecond
)

// awaitRound asks, before a change is committed, to be told of the end of the round of
// revalidation that is under way, or else of the one that the change begins.
func (d *Driver) awaitRound(ctx context.Context) *call {
	if d.cfg.Datapath != "netdev" {
		return nil
	}
	c, err := begin(ctx, d.cfg.RunDir, "revalidator/wait")
	if err != nil {
		return nil // purge tells
	}
	return c
}

// purgeAgain purges once more when no revalidating thread holds a cached flow any more that
// it judged by the tables of before the change: the first purge skips those.
func (d *Driver) purgeAgain(ctx context.Context, round *call) {
	if round == nil {
		return
	}
	// Where the switch has another datapath too it tells of no round.
	if _, err := round.answer(roundPatience); err != nil {
		return // purgeLater has to do
	}
	_, _ = control(ctx, d.cfg.RunDir, purgeCommand)
}

// purgeLater purges once more, some time after a change, for what was held at that moment
// still.
func (d *Driver) purgeLater(ctx context.Context) {
	defer d.wg.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.stale:
		}
		if waiting.Pause(ctx, purgeDelay) != nil {
			return
		}
		// The first purge has told a failure, or the switch is gone with its cache.
		_, _ = control(ctx, d.cfg.RunDir, purgeCommand)
	}
}
