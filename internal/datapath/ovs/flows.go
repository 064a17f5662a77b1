package ovs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// flows are the desired flows and groups, and the switch's. Driver.mu guards it.
type flows struct {
	*env
	conns  *connections
	daemon *daemon

	pic       *flowState
	known     bool            // the ledger knows what the switch holds
	verified  time.Time       // when the switch's flows were last read
	dumpTook  time.Duration   // what that took
	unmanaged unmanagedFlows  // as of verified
	groupc    openflow.Groups // by which groups are changed; none until there are services
	answers   bool            // the switch bounds what comes to be answered
	watching  *switchMonitor  // the monitor; nil = none
	shared    *openflow.Conn  // to the switch that has the meters of shares
}

// setMeters bounds the packets that come to be answered. A switch that cannot bound
// them sends none.
func (t *flows) setMeters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	t.answers = true
	for _, id := range []uint32{pipeline.MeterRefusals, pipeline.MeterNeighbours, pipeline.MeterServices, pipeline.MeterReopen} {
		if err := t.conns.sw.SetMeter(ctx, id, repliesPerSecond); err != nil {
			t.answers = false
			t.cfg.Log.Warn("routers send no ICMP errors, since the switch cannot limit their rate", "error", err)
			return
		}
	}
	if err := t.conns.sw.SetMeter(ctx, pipeline.MeterProbes, pipeline.ProbeRate); err != nil {
		t.answers = false
		t.cfg.Log.Warn("tunnels are not tested and routers send no ICMP errors, since the switch cannot limit their rate", "error", err)
		return
	}
	if err := t.conns.sw.LimitMeters(ctx, pipeline.MembershipRate, pipeline.MembershipMeters()...); err != nil {
		t.answers = false
		t.cfg.Log.Warn("multicast members are unknown and routers send no ICMP errors, since the switch cannot limit their rate", "error", err)
	}
}

// sync writes the desired flows and groups. It calls switched when the switch has them.
// changed reports whether the Apply has changed anything else.
func (t *flows) sync(ctx context.Context, force, changed bool, switched func()) (changes int, err error) {
	unknown := !t.known
	if unknown {
		if err := t.readBack(ctx); err != nil {
			return 0, err
		}
	}
	if err := t.reclaimZones(ctx); err != nil {
		return 0, err
	}
	edits := t.pic.ledger.edits()
	// Reading back costs up to a twentieth of the time.
	if force && !unknown || len(edits) == 0 && !changed && time.Since(t.verified) > 20*t.dumpTook {
		own := len(edits) + t.pic.services.groups.unmade()
		if err := t.readBack(ctx); err != nil {
			return 0, err
		}
		edits = t.pic.ledger.edits()
		t.drift.Add(t.cfg.Log, driver.DriftFlow, t.cfg.Bridge, max(len(edits)+t.pic.services.groups.unmade()-own, 0))
	}
	first, last := t.pic.services.groups.edits() // flows lead to groups
	if err := t.changeGroups(ctx, first); err != nil {
		return 0, err
	}
	if err := t.write(ctx, edits); err != nil {
		return 0, err
	}
	if err := t.changeGroups(ctx, last); err != nil {
		return 0, err
	}
	switched()
	if err := t.emptyZones(ctx); err != nil {
		return 0, err
	}
	if err := t.endTranslations(ctx); err != nil {
		return 0, err
	}
	return len(edits) + len(first) + len(last), nil
}

// readBack learns what flows of ours, and of others, the switch holds.
func (t *flows) readBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	start := time.Now()
	found := map[string]string{}
	var odd []openflow.Mod
	var strange unmanagedFlows
	err := t.conns.sw.DumpFlows(ctx, openflow.AllFlows, func(s openflow.FlowStats) {
		switch {
		case !strange.note(s):
		case s.Err != nil: // ours, but of another version
			odd = append(odd, openflow.Mod{All: true, Flow: openflow.Flow{Cookie: s.Flow.Cookie}, CookieMask: ^uint64(0)})
		default:
			found[s.Flow.Key()] = s.Flow.Body()
		}
	})
	t.unmanaged = strange
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: read flows: %w", err)
	}
	t.pic.ledger.found(found)
	t.pic.findRemovedDomains()
	if err := t.findServices(ctx, found, !t.known); err != nil {
		return err
	}
	t.known, t.verified, t.dumpTook = true, time.Now(), time.Since(start)
	if len(odd) == 0 {
		return nil
	}
	// Flows that cannot be decoded go in the bundle in which their replacements come.
	for _, m := range odd {
		for k, body := range found {
			if f, err := openflow.FromParts(k, body); err == nil && f.Cookie == m.Flow.Cookie {
				delete(found, k) // goes with the odd flow of its cookie, so it is written again
			}
		}
	}
	t.pic.ledger.found(found)
	edits := t.pic.ledger.edits()
	mods, err := toMods(edits)
	if err != nil {
		return err
	}
	if err := t.commit(ctx, append(odd, mods...), true); err != nil {
		return err
	}
	t.pic.ledger.done(edits)
	return nil
}

func toMods(edits []edit) ([]openflow.Mod, error) {
	mods := make([]openflow.Mod, 0, len(edits))
	for _, e := range edits {
		f, err := openflow.FromParts(e.key, e.body)
		if err != nil {
			return nil, err
		}
		mods = append(mods, openflow.Mod{Delete: e.remove, Flow: f})
	}
	return mods, nil
}

// write commits edits as one atomic change.
func (t *flows) write(ctx context.Context, edits []edit) error {
	mods, err := toMods(edits)
	if err != nil {
		return fmt.Errorf("open vswitch: %w", err)
	}
	if err := t.commit(ctx, mods, t.pic.revokes(edits)); err != nil {
		return err
	}
	t.pic.ledger.done(edits)
	return nil
}

// commit changes the switch's flows at once. What revokes has taken effect when it returns.
func (t *flows) commit(ctx context.Context, mods []openflow.Mod, revokes bool) error {
	if len(mods) == 0 {
		return nil
	}
	// Giving up in the middle would leave open whether the bundle was committed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.patience)
	defer cancel()
	if t.fault != nil {
		if err := t.fault(); err != nil {
			return err
		}
	}
	if t.watching != nil && t.shared != t.conns.sw { // the monitor's flows name meters
		if err := t.conns.sw.LimitMeters(ctx, pipeline.AuditRate, pipeline.AuditMeters()...); err != nil {
			return model.Errorf(model.ErrUnavailable, "open vswitch: limit the events of each port: %w", err)
		}
		t.shared = t.conns.sw
	}
	err := t.conns.sw.Commit(ctx, mods)
	if err == nil {
		t.daemon.forgetCached(ctx, revokes)
		return nil
	}
	t.known, t.shared = false, nil // the bundle may or may not have been committed
	if e := (*openflow.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("open vswitch: %w", err)
	}
	return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
}
