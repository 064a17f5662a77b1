package attachment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// detachMaster bounds the attempt to release an endpoint while a runtime waits:
// what does not answer by then is owed.
const detachMaster = 3 * time.Second

// releaser detaches: it releases attachments, pays the releases that are owed, and releases
// endpoints that nothing here needs. It owns what asks for that, the state of the spool, and
// what containers have changed of their interfaces.
type releaser struct {
	*deps
	ports            *PublishedPorts
	pending          waiting.Bell // calls releasePending
	followed         waiting.Bell // calls releaseOrphans
	containerChanges containerChanges
	// spoolError is why the spool cannot be read; empty = it can.
	spoolError atomic.Pointer[string]
}

// Detach is attach.Service's.
func (a *releaser) Detach(ctx context.Context, r attach.DetachRequest) error {
	start := time.Now()
	err := a.checkKnown(r)
	if err == nil {
		err = a.detach(ctx, r.Key)
	}
	a.attachTime.WithLabelValues("detach", outcomeLabel(err)).Observe(time.Since(start).Seconds())
	if err != nil {
		return fmt.Errorf("detach %s: %w", r.Key, err)
	}
	a.log.Info("detached", "container", r.Container, "ifname", r.IfName, "took", time.Since(start))
	return nil
}

// checkKnown fails where a person asks for what is not attached, or not in that way.
func (a *releaser) checkKnown(r attach.DetachRequest) error {
	if !r.Known {
		return nil
	}
	if e, ok := a.journal.get(r.Key); ok && e.State != StatePendingRelease {
		return nil
	}
	asked, err := os.Stat(r.Netns)
	for _, e := range a.journal.all() {
		if err != nil || e.State == StatePendingRelease || e.Request.Netns == "" || e.Request.IfName != r.IfName {
			continue
		}
		if its, err := os.Stat(e.Request.Netns); err == nil && os.SameFile(asked, its) {
			return model.Errorf(model.ErrConflict, "it was attached by %s as container %s; delete it there", e.Request.Source, e.Request.Container)
		}
	}
	return model.Errorf(model.ErrNotFound, "nothing is attached there")
}

func (a *releaser) detach(ctx context.Context, k attach.Key) error {
	unlock, err := a.journal.turns.Lock(ctx, k)
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "another request for it is in progress: %w", err)
	}
	defer unlock()
	return a.detachLocked(ctx, k)
}

// detachLocked releases an attachment, or makes its release owed; only what is
// owed and cannot be written down is an error, of kind model.ErrUnavailable. A
// spooled deletion of the attachment is then settled.
func (a *releaser) detachLocked(ctx context.Context, k attach.Key) error {
	if e, ok := a.journal.get(k); ok {
		if err := a.releaseEntry(context.WithoutCancel(ctx), e); err != nil {
			a.pending.Ring()
			if a.journal.isUnsaved(k) {
				return err
			}
			a.log.Warn("a release is pending and will be done later", "attachment", k.String(), "error", err)
		}
	}
	return a.cfg.spool().Remove(k)
}

// releaseEntry undoes an attachment in the order that leaves nothing behind
// whenever the process dies: the journal says owed, the port leaves the desired state,
// the veth goes, netmaster releases the endpoint, the journal forgets. On an
// error the entry stays owed. A journal that cannot be written stops nothing of
// it; only when something else fails too is it part of the error. The caller
// holds the attachment's lock.
func (a *releaser) releaseEntry(ctx context.Context, e Entry) error {
	stood := e.State == StateDone
	second := e.Result != nil && e.Request.Netns != "" && len(e.Result.Routes) == 0
	e.State, e.Result = StatePendingRelease, nil
	unsaved := a.journal.putOrRemember(e)
	if stood {
		a.cluster.Release(e.Endpoint.Network)
	}
	if err := a.cfg.Hook(StepPendingRelease); err != nil {
		return err
	}
	a.cluster.Endpoints.Hide(e.Endpoint)
	a.agent.Kick("detach")
	if err := vethpair.Delete(e.HostIf, aliasOf(e.Endpoint)); err != nil {
		return errors.Join(err, unsaved)
	}
	if err := a.cfg.Hook(StepVethGone); err != nil {
		return err
	}
	if second {
		if err := vethpair.SweepReplyRoutes(e.Request.Netns); err != nil { // they match nothing that is sent
			a.log.Warn("routing rules of a container's former interface cannot be deleted", "attachment", e.Key().String(), "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, detachMaster)
	defer cancel()
	if err := a.masters.Delete(ctx, e.Endpoint, e.Group); err != nil {
		return errors.Join(err, unsaved)
	}
	if err := a.cfg.Hook(StepDeleted); err != nil {
		return err
	}
	if err := a.journal.remove(e.Key()); err != nil {
		return err
	}
	a.cluster.Endpoints.Forget(e.Endpoint)
	a.ports.releasePrivate(e)
	return a.cfg.Hook(StepForgotten)
}

// Collect is attach.Service's.
func (a *releaser) Collect(ctx context.Context, r attach.CollectRequest) error {
	if r.Config == "" {
		return model.InvalidField("config", r.Config, "must be the name of the CNI network configuration")
	}
	var errs []error
	for _, e := range a.journal.all() {
		if e.Request.Source != attach.SourceCNI || e.Request.Config != r.Config || e.State == StatePendingRelease ||
			slices.Contains(r.Valid, e.Key()) {
			continue
		}
		// One that is being made is not touched: either the runtime began it after it
		// had drawn up its list, or it has given it up, and the attempt undoes itself.
		if e.State == StateIntent {
			continue
		}
		a.log.Info("collecting an attachment that the runtime has lost", "attachment", e.Key().String())
		if err := a.detach(ctx, e.Key()); err != nil {
			errs = append(errs, fmt.Errorf("collect %s: %w", e.Key(), err))
		}
	}
	return errors.Join(errs...)
}

// releasePending releases what is owed, whenever something is or netmaster comes back,
// with a back-off for each attachment; and replays the spool. It runs until ctx
// ends.
func (a *releaser) releasePending(ctx context.Context) {
	retries := waiting.NewBackoff[attach.Key](waiting.BackoffConfig{Base: 500 * time.Millisecond, Max: 10 * time.Second})
	poll := time.NewTicker(a.cfg.SpoolEvery)
	defer poll.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		_, masters := a.masters.Known()
		select {
		case <-ctx.Done():
			return
		case <-a.pending:
		case <-masters:
		case <-retry.C:
		case <-poll.C:
			a.repairJournal(ctx)
			a.releaseOrphanedLater(ctx, a.cfg.OrphanGrace)
			a.replaySpool(ctx)
			a.releaseEnded(ctx)
			a.containerChanges.compare(a.journal)
		}
		var failed []attach.Key
		now := time.Now()
		for _, e := range a.journal.all() {
			if e.State != StatePendingRelease || ctx.Err() != nil {
				continue
			}
			if at := retries.At(e.Key()); at.After(now) {
				failed = append(failed, e.Key())
				continue
			}
			if err := a.releaseOnePending(ctx, e.Key()); err != nil {
				a.log.Debug("a release is still pending", "attachment", e.Key().String(), "error", err)
				failed = append(failed, e.Key())
			}
		}
		retries.Settle(now, failed)
		if next, ok := retries.Next(); ok {
			retry.Reset(time.Until(next))
		}
	}
}

func (a *releaser) releaseOnePending(ctx context.Context, k attach.Key) error {
	unlock, err := a.journal.turns.Lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := a.journal.get(k)
	if !ok || e.State != StatePendingRelease {
		return nil // settled, or attached again, meanwhile
	}
	if err := a.releaseEntry(ctx, e); err != nil {
		return err
	}
	a.log.Info("a pending release is done", "attachment", k.String(), "endpoint", e.Endpoint.String())
	return nil
}

// replaySpool does the deletions that contivk8s could not hand over.
func (a *releaser) replaySpool(ctx context.Context) {
	list, err := a.cfg.spool().List()
	text := ""
	if err != nil {
		text = "not all spooled deletions can be read; what they should have deleted may still be in the store: look at them, and delete the files: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if was := a.spoolError.Swap(&text); was == nil && text != "" || was != nil && *was != text {
		a.agent.Kick("spool") // a problem tells people
	}
	for _, r := range list {
		if err := a.Detach(ctx, r); err != nil {
			a.log.Warn("a spooled deletion failed and will be tried again", "attachment", r.String(), "error", err)
		}
	}
}
