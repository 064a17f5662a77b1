package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// binding is the Contiv object behind a Docker network id of this engine.
type binding struct {
	Ref
	Created bool `json:"created,omitempty"` // a user created the Contiv network through Docker
	// Removed: a user has removed the Docker network, and Created is to be deleted with it.
	Removed bool `json:"removed,omitempty"`
	// Want is the network that Docker was asked for. If it names no Contiv network, its
	// key, and Ref, are incomplete until the engine has told the name.
	Want model.Network `json:"want,omitzero"`
}

// hasPendingName reports whether the name is still to be learnt from the engine.
func (b binding) hasPendingName() bool { return b.Network.Name == "" }

// networks is the persistent map from Docker's network ids, which differ from
// engine to engine and are announced once only.
type networks struct {
	path string

	mu      sync.Mutex
	byID    map[string]binding
	changes waiting.Changes
}

type networksFile struct {
	Version  int                `json:"version"` // 1
	Networks map[string]binding `json:"networks"`
}

// openNetworks reads the map; without a file it is empty.
func openNetworks(path string) (*networks, error) {
	n := &networks{path: path, byID: map[string]binding{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, os.MkdirAll(filepath.Dir(path), 0o700)
	}
	var f networksFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != 1 {
		err = errors.New("it is not of version 1")
	}
	if err != nil {
		return nil, fmt.Errorf("read Docker's networks from %s: %w", path, err)
	}
	maps.Copy(n.byID, f.Networks)
	return n, nil
}

func (n *networks) get(id string) (binding, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b, ok := n.byID[id]
	return b, ok
}

// made reports whether a user has made a Contiv network through Docker, and not removed it.
func (n *networks) made(k model.NetworkKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.byID {
		if b.Network == k && b.Created && !b.Removed {
			return true
		}
	}
	return false
}

// watch returns a channel that the next change closes.
func (n *networks) watch() <-chan struct{} { return n.changes.Next() }

// find returns the network that a pool without a name belongs to, by its subnet and, if the
// pool names one, its tenant. A network and its groups have the same subnet: find returns
// the network then, unless only one of them was made in Docker.
func (n *networks) find(p pool) (binding, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []binding
	for _, b := range n.byID {
		if (p.Network.Tenant == "" || b.Network.Tenant == p.Network.Tenant) && (b.Want.Subnet == p.prefix || b.Want.Subnet6 == p.prefix) {
			found = append(found, b)
		}
	}
	if len(found) > 1 && !slices.ContainsFunc(found, func(b binding) bool { return b.Network != found[0].Network }) {
		found = []binding{{Ref: Ref{Network: found[0].Network}}}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return binding{}, model.Errorf(model.ErrNotFound, "pool %q is that of no network", p)
	}
	return binding{}, model.Errorf(model.ErrConflict, "several tenants have the subnet %s; name the tenant with --ipam-opt tenant=TENANT when the network is created", p.prefix)
}

// name completes a binding with its name; false when the binding has gone meanwhile.
func (n *networks) name(id string, r Ref) (bool, error) {
	b, ok := n.get(id)
	if !ok {
		return false, nil
	}
	b.Ref = r
	return true, n.put(id, b)
}

// put binds an id durably; putting the binding that is there writes nothing.
func (n *networks) put(id string, b binding) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, was := n.byID[id]
	if was && old == b {
		return nil
	}
	n.byID[id] = b
	err := n.saveLocked()
	if err != nil {
		delete(n.byID, id)
		if was {
			n.byID[id] = old
		}
	}
	return err
}

func (n *networks) remove(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, was := n.byID[id]
	if !was {
		return nil
	}
	delete(n.byID, id)
	err := n.saveLocked()
	if err != nil {
		n.byID[id] = old
	}
	return err
}

// all returns a copy of the map.
func (n *networks) all() map[string]binding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.byID)
}

// ids lists the ids that are known.
func (n *networks) ids() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.byID))
}

func (n *networks) saveLocked() error {
	data, err := json.MarshalIndent(networksFile{1, n.byID}, "", "  ")
	if err == nil {
		err = durable.WriteFile(n.path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save Docker's networks: %w", err)
	}
	n.changes.Notify()
	return nil
}
