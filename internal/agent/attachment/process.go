package attachment

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/attach/plumb"
)

// hasAddresses tells whether a result has all addresses that are asked for.
func hasAddresses(r attach.Result, asked []netip.Addr) bool {
	return !slices.ContainsFunc(asked, func(ip netip.Addr) bool {
		return !slices.ContainsFunc(r.Addresses, func(a attach.Address) bool { return a.Prefix.Addr() == ip })
	})
}

// followProcess gives the endpoint of a bare process that stands the labels and name
// that are asked for now: who asks again has no other way to change them. Of a
// container its runtime asks again for nothing else than before.
func (a *Service) followProcess(ctx context.Context, e Entry, r attach.Request) error {
	if r.Source != attach.SourceProcess || r.Name == e.Request.Name && maps.Equal(r.Labels, e.Request.Labels) {
		return nil
	}
	before := labelsOf(e)
	e.Request.Name, e.Request.Labels = r.Name, r.Labels
	told := e
	told.Told.Name = r.Name
	if err := a.update(ctx, told, before); err != nil {
		return err
	}
	return a.journal.put(e)
}

// releaseEnded releases the attachments of bare processes whose namespaces are gone,
// and their interfaces with them.
func (a *Service) releaseEnded(ctx context.Context) {
	for _, e := range a.journal.all() {
		if e.State != StateDone || e.Request.Source != attach.SourceProcess {
			continue
		}
		if err := a.releaseIfEnded(ctx, e); err != nil {
			a.log.Warn("the attachment of a process that has ended is not released yet", "attachment", e.Key().String(), "error", err)
		}
	}
}

func (a *Service) releaseIfEnded(ctx context.Context, e Entry) error {
	if there, err := plumb.Exists(e.HostIf); there || err != nil {
		return err
	}
	unlock, err := a.turns.Take(ctx, e.Key())
	if err != nil {
		return err
	}
	defer unlock()
	now, ok := a.journal.get(e.Key())
	if !ok || now.State != StateDone {
		return nil // it has changed meanwhile
	}
	if there, err := plumb.Exists(now.HostIf); there || err != nil {
		return err
	}
	a.log.Info("releasing the attachment of a process whose namespace is gone", "attachment", e.Key().String())
	return a.detachLocked(ctx, e.Key())
}
