package attachment

import (
	"maps"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// infraChanges are the host's interfaces on infra networks as changes of its own routes:
// the ones that may have cut its path to netmaster are rolled back.
type infraChanges struct {
	mu        sync.Mutex
	made      map[model.NetworkKey]time.Time
	suspended map[model.NetworkKey]string // why the interface is down
}

func (c *infraChanges) note(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[model.NetworkKey]time.Time{}
	}
	c.made[k] = time.Now()
}

// why returns why the interface on a network is taken back; empty = it is not.
func (c *infraChanges) why(k model.NetworkKey) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspended[k]
}

// keep forgets all but some networks.
func (c *infraChanges) keep(wanted map[model.NetworkKey]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.made, func(k model.NetworkKey, _ time.Time) bool { return !wanted[k] })
	maps.DeleteFunc(c.suspended, func(k model.NetworkKey, _ string) bool { return !wanted[k] })
}

// Newest returns the network on which the host got an interface last after since.
func (a *InfraNetworks) Newest(since time.Time) (newest model.NetworkKey, at time.Time) {
	a.changes.mu.Lock()
	defer a.changes.mu.Unlock()
	for k, made := range a.changes.made {
		if a.changes.suspended[k] == "" && made.After(since) && made.After(at) {
			newest, at = k, made
		}
	}
	return newest, at
}

// Suspend takes the host's interface on a network down, and with it its routes; a problem
// has the reason. Resume takes it up again.
func (a *InfraNetworks) Suspend(k model.NetworkKey, why string) error {
	a.changes.mu.Lock()
	if a.changes.suspended == nil {
		a.changes.suspended = map[model.NetworkKey]string{}
	}
	a.changes.suspended[k] = why
	a.changes.mu.Unlock()
	defer a.infra.Ring()
	return vethpair.SetUp(string(k.Name), false)
}

// Resume ends a Suspend.
func (a *InfraNetworks) Resume(k model.NetworkKey) error {
	a.changes.mu.Lock()
	delete(a.changes.suspended, k)
	a.changes.mu.Unlock()
	defer a.infra.Ring()
	return vethpair.SetUp(string(k.Name), true)
}
