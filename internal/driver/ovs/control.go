package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"
)

// control calls a command on the switch daemon's control socket, which speaks
// JSON-RPC 1.0 (ovs-appctl(8), ovsdb-server(7)).
func control(ctx context.Context, runDir, command string) error {
	// The name ends with the daemon's process number, and those of dead ones may
	// still be there.
	paths, err := filepath.Glob(filepath.Join(runDir, "*vswitchd*.ctl"))
	if err != nil {
		return err
	}
	slices.Sort(paths)
	errs := []error{fmt.Errorf("no control socket of ovs-vswitchd answers in %s", runDir)}
	for _, p := range paths {
		err := controlAt(ctx, p, command)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func controlAt(ctx context.Context, path, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(t)
	}
	if err := json.NewEncoder(c).Encode(map[string]any{"id": 0, "method": command, "params": []string{}}); err != nil {
		return err
	}
	var answer struct {
		Error *string `json:"error"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", command, *answer.Error)
	}
	return nil
}
