package statemirror

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// HostsFile, in the state directory, names the other hosts of the last picture: to them the
// data plane has ways, which an agent that begins would take away if it followed a store
// that has no record of them yet.
const HostsFile = "hosts.json"

type hostsRecord struct {
	Version int              `json:"version"` // 1
	Hosts   []model.HostName `json:"hosts"`
}

// loadHosts reads HostsFile. One that cannot be read counts as none: then only hosts that
// a store has a record of are waited for.
func (c *State) loadHosts() {
	var k hostsRecord
	data, err := os.ReadFile(filepath.Join(c.StateDir, HostsFile))
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("which hosts the last picture had cannot be read: another store is not asked for those that it has no record of", "file", HostsFile, "error", err)
		return
	}
	if k.Version == 1 {
		c.previousHosts = k.Hosts
	}
}

// RememberHosts keeps HostsFile until ctx ends.
func (c *State) RememberHosts(ctx context.Context) {
	last := c.previousHosts
	for {
		changed := c.hostsChanged.Next()
		now, ok := c.others()
		if ok && !slices.Equal(now, last) {
			err := durable.WriteJSON(filepath.Join(c.StateDir, HostsFile), hostsRecord{1, now})
			if waiting.Pause(ctx, rememberEvery) != nil {
				return
			}
			if err != nil {
				c.Log.Debug("which hosts the picture has is not written down yet", "error", err)
				continue
			}
			last = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// others are the other hosts of the picture, unless it stands still or there is none.
func (c *State) others() (names []model.HostName, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil || !c.entered {
		return nil, false
	}
	for h := range c.hosts {
		if h != c.Host {
			names = append(names, h)
		}
	}
	slices.Sort(names)
	return names, true
}
