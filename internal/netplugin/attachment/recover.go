package attachment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// Recover brings the host to what the journal says stands, before anything is
// served: attachments that never became done, and veths of ours that no entry
// knows, go. It needs neither the store nor netmaster; what netmaster has to
// release becomes owed.
func (a *Service) Recover() error {
	known := map[string]bool{}
	for _, e := range a.journal.all() {
		a.way.Addresses.Keep(e.Key(), e.Endpoint, e.Private)
		switch {
		case e.State == StateDone && !e.Request.OnHost && e.BootID != a.bootID && !a.vethExists(e):
			// The machine was restarted: the container is gone with its kernel.
			fallthrough
		case e.State == StateIntent:
			a.log.Info("undoing an incomplete attachment", "attachment", e.Key().String(), "state", e.State)
			e.State, e.Result = StatePendingRelease, nil
			a.recordEntry(e)
			fallthrough
		case e.State == StatePendingRelease:
			a.cluster.Endpoints.Hide(e.Endpoint)
			if err := vethpair.Delete(e.HostIf, aliasOf(e.Endpoint)); err != nil {
				a.log.Warn("a veth cannot be removed yet", "interface", e.HostIf, "error", err)
			}
		default:
			known[e.HostIf] = true
			a.cluster.Require(e.Endpoint.Network)
		}
	}
	if err := a.sweep(known); err != nil {
		return err
	}
	a.Ports.reservePublished(a.journal.all()) // the first pass reports failures
	return nil
}

func (a *Service) vethExists(e Entry) bool {
	there, err := vethpair.Exists(e.HostIf)
	return there || err != nil // when in doubt it is
}

// recordEntry enters what is so, whether it can be written or not: a full disk must
// not keep netplugin from starting. The status tells of it, and repairJournal
// writes later.
func (a *deps) recordEntry(e Entry) {
	if err := a.journal.putOrRemember(e); err != nil {
		a.log.Error("a journal entry cannot be written yet", "attachment", e.Key().String(), "error", err)
	}
}

// sweep removes veths of ours that no entry knows, because their maker died before
// it wrote anything down. A veth whose entry was lost belongs to a container and is
// adopted by its alias: that is so when the journal is new, when the entry is
// damaged, or when the container's side has addresses, which it gets only after the
// entry is written. Veths of an agent with another host name are left alone: two
// agents may share a machine, on purpose or by mistake, and containers must not pay
// for it.
func (a *Service) sweep(known map[string]bool) error {
	found, err := vethpair.List()
	if err != nil {
		return fmt.Errorf("sweep veths: %w", err)
	}
	for _, v := range found {
		if known[v.Name] {
			continue
		}
		key, ok := endpointOf(v)
		switch {
		case ok && !isOurs(a.cfg.Host, key.ID):
			a.log.Warn("leaving a veth alone that a netplugin with another --host created; delete it (ip link del) if that netplugin is gone",
				"interface", v.Name, "endpoint", key.String())
		case ok && a.adopt(v, key):
		default:
			a.log.Info("removing a veth that no attachment knows", "interface", v.Name, "alias", v.Alias)
			if err := vethpair.Delete(v.Name, v.Alias); err != nil {
				a.log.Warn("a veth cannot be removed", "interface", v.Name, "error", err)
			}
		}
	}
	return nil
}

// adopt takes a veth of this host over whose journal entry is not there, and
// tells whether it is a container's and must stay.
func (a *Service) adopt(v vethpair.Veth, key model.EndpointKey) bool {
	k, plain := attachmentOf(a.cfg.Host, key)
	if isInfra(k) { // it is made again, with its endpoint's addresses
		return false
	}
	why := "the journal is new"
	if !a.journal.fresh {
		why = "its journal entry cannot be read"
		if !plain || !a.journal.isDamaged(k) {
			configured, err := vethpair.Configured(v.Name)
			if err == nil && !configured {
				return false
			}
			why = "its journal entry is gone"
		}
	}
	if !plain {
		a.log.Warn("leaving a container's veth alone without its journal entry, as its alias does not name the container; it goes with the container",
			"interface", v.Name, "endpoint", key.String(), "why", why)
		return true
	}
	a.log.Warn("adopting an attachment by its interface's alias", "interface", v.Name, "endpoint", key.String(),
		"why", why, "journal", a.journal.dir)
	a.recordEntry(Entry{
		State: StateDone, Endpoint: key, HostIf: v.Name, BootID: a.bootID, Request: attach.Request{Key: k},
	})
	a.cluster.Require(key.Network)
	return true
}

func aliasOf(k model.EndpointKey) string { return vethpair.AliasPrefix + k.String() }

// endpointOf returns the endpoint that a veth was made for.
func endpointOf(v vethpair.Veth) (model.EndpointKey, bool) {
	key, err := model.ParseEndpointKey(strings.TrimPrefix(v.Alias, vethpair.AliasPrefix))
	return key, err == nil
}

// releaseOrphans releases endpoints that an agent of this host created and no
// journal entry knows: their journal was lost. Endpoints that others created on
// this host are left alone. It asks once, when everything else runs, and again when
// the store was not followed for a while.
func (a *releaser) releaseOrphans(ctx context.Context) {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: time.Second, Max: time.Minute})
	for ctx.Err() == nil {
		err := a.tryReleaseOrphans(ctx)
		if err == nil {
			retry.Reset()
			select {
			case <-a.followed: // a restored store has endpoints that have gone since, whose addresses others may have now
				continue
			case <-ctx.Done():
				return
			}
		}
		a.log.Debug("endpoints without attachment are not released yet", "error", err)
		if retry.Pause(ctx) != nil {
			return
		}
	}
}

func (a *releaser) tryReleaseOrphans(ctx context.Context) error {
	if err := a.agent.Owns(); err != nil {
		return err
	}
	eps, err := a.masters.Endpoints(ctx)
	if err != nil {
		return err
	}
	journalled := map[model.EndpointKey]bool{}
	for _, e := range a.journal.all() {
		journalled[e.Endpoint] = true
	}
	// The name is claimed by this installation (Mine), so these are not another's.
	for _, ep := range eps {
		if journalled[ep.Key] || !isOurs(a.cfg.Host, ep.Key.ID) {
			continue
		}
		// The interface of a container whose entry was lost, or one of another
		// netplugin of this name: the endpoint is in use.
		if there, err := vethpair.Exists(compile.IfName(ep.Key)); there || err != nil {
			continue
		}
		if ep.Key.ID == model.HostEndpoint(a.cfg.Host) {
			wanted, err := a.wantsInfra(ep.Key.Network)
			if err != nil {
				return err
			}
			if wanted { // it gets its interface, with these addresses
				continue
			}
		}
		// An attachment may have begun since netmaster was asked.
		if k, ok := attachmentOf(a.cfg.Host, ep.Key); ok {
			if _, begun := a.journal.get(k); begun {
				continue
			}
		}
		a.log.Info("releasing an endpoint of this host that no attachment knows", "endpoint", ep.Key.String())
		if err := a.masters.Delete(ctx, ep.Key, ep.Group); err != nil {
			return err
		}
	}
	return nil
}
