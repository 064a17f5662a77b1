package agent

import (
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// rollback makes changes of this host's own networking undone, and done again, as its
// History says. Only the lifeline's goroutine uses it.
type rollback struct {
	of      *Agent
	removed hoststack.RemovedRoutes
}

// follow makes a change what its state says.
func (r *rollback) follow(c hostchanges.Change) error {
	undo := c.State == hostchanges.Reverting
	switch c.Kind {
	case hostchanges.Infra:
		defer r.of.Attachments.FollowInfra()
		for _, network := range c.Objects {
			k, err := model.ParseNetworkKey(network)
			if err == nil {
				err = vethpair.SetUp(string(k.Name), !undo)
			}
			if err != nil {
				return err
			}
		}
	case hostchanges.Routes, hostchanges.Learned:
		defer r.of.kick("drift")
		defer r.of.bgp.fabric.FollowChanges()
		if o, _ := r.of.reached.Get(); !o.At.IsZero() {
			return nil // the next sync does it
		}
		if !undo {
			return r.removed.Restore()
		}
		var prefixes []netip.Prefix
		for _, o := range c.Objects {
			if p, err := netip.ParsePrefix(o); err == nil {
				prefixes = append(prefixes, p)
			}
		}
		return r.removed.Remove(prefixes)
	case hostchanges.Mode:
		r.of.mirror.cluster.FollowMode()
	}
	return nil
}

// newLifeline returns the lifeline of this host.
func (a *Agent) newLifeline() *lifeline {
	return newLifeline(lifeline{
		netmasters: a.mirror.control.NetmasterAddresses, path: hoststack.Path, changes: a.mirror.cluster.HostChanges,
		follow: (&rollback{of: a}).follow, log: a.cfg.Log, now: time.Now,
	})
}
