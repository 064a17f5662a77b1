package attachment

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// hasAddresses reports whether a result has all addresses that are asked for.
func hasAddresses(r attach.Result, asked []netip.Addr) bool {
	return !slices.ContainsFunc(asked, func(ip netip.Addr) bool {
		return !slices.ContainsFunc(r.Addresses, func(a attach.Address) bool { return a.Prefix.Addr() == ip })
	})
}

// followProcess gives the endpoint of a bare process that stands the labels and name
// that are asked for now: who asks again has no other way to change them. Of a
// container its runtime asks again for nothing else than before.
func (a *attacher) followProcess(ctx context.Context, e Entry, r attach.Request) error {
	if r.Source != attach.SourceProcess || r.Name == e.Request.Name && maps.Equal(r.Labels, e.Request.Labels) {
		return nil
	}
	before := labelsOf(e)
	e.Request.Name, e.Request.Labels = r.Name, r.Labels
	told := e
	told.Facts.Name = r.Name
	if err := a.facts.update(ctx, told, before); err != nil {
		return err
	}
	return a.journal.put(e)
}

// releaseEnded releases the attachments whose namespaces are gone, and their interfaces
// with them: of bare processes, which no runtime deletes, and of containers whose runtime
// did not. A namespace that has lost only its interface stays attached.
func (a *releaser) releaseEnded(ctx context.Context) {
	for _, e := range a.journal.all() {
		if e.State != StateDone || !isGoneNetns(e.Request.Netns) {
			continue
		}
		if err := a.releaseIfEnded(ctx, e); err != nil {
			a.log.Warn("an attachment whose namespace is gone is not released yet", "attachment", e.Key().String(), "error", err)
		}
	}
}

// isGoneNetns reports whether a namespace was named and its path leads to none of a container
// any more: another process, which has the host's, may have the number of one that ended.
func isGoneNetns(path string) bool {
	if path == "" {
		return false
	}
	err := vethpair.CheckNetns(path)
	return errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrInvalid)
}

func (a *releaser) releaseIfEnded(ctx context.Context, e Entry) error {
	if there, err := vethpair.Exists(e.HostIf); there || err != nil {
		return err
	}
	unlock, err := a.journal.turns.Lock(ctx, e.Key())
	if err != nil {
		return err
	}
	defer unlock()
	now, ok := a.journal.get(e.Key())
	if !ok || now.State != StateDone {
		return nil // it has changed meanwhile
	}
	if there, err := vethpair.Exists(now.HostIf); there || err != nil {
		return err
	}
	a.log.Info("releasing an attachment whose namespace is gone", "attachment", e.Key().String())
	return a.detachLocked(ctx, e.Key())
}
