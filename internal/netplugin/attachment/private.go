package attachment

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// releasePrivate gives back the private address of an attachment that has gone,
// and with it the ports that lead there.
func (a *PublishedPorts) releasePrivate(e Entry) {
	a.way.Addresses.Release(e.Key(), e.Endpoint, e.Private)
	if len(e.Ports) > 0 {
		a.changes.Add(1)
		a.agent.Kick("ports of " + e.Key().String())
	}
}

// AssignPrivate gives a private address to every attachment that has none of
// the present subnet: one that an earlier version made, or that was adopted.
func (a *PublishedPorts) AssignPrivate(ctx context.Context) error {
	if a.way.Addresses.Subnet() == nil {
		return nil
	}
	for _, e := range a.journal.all() {
		if e.State == StatePendingRelease || e.Request.OnHost || a.way.Addresses.Has(e.Key(), e.Private) {
			continue
		}
		if err := a.assignPrivateOf(ctx, e.Key()); err != nil {
			return err
		}
	}
	a.agent.Kick("private addresses")
	return nil
}

func (a *PublishedPorts) assignPrivateOf(ctx context.Context, k attach.Key) error {
	unlock, err := a.journal.turns.Lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := a.journal.get(k)
	if !ok || e.State != StateDone || a.way.Addresses.Has(k, e.Private) {
		return nil // it has changed meanwhile
	}
	if e.Private, err = a.way.Addresses.Take(k, e.Endpoint); err != nil {
		a.log.Warn("an attachment has no egress", "attachment", k.String(), "error", err)
		return nil
	}
	a.recordEntry(e)
	return nil
}
