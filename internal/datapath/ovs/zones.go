package ovs

import (
	"context"
	"iter"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The zones of connection tracking have 16 bits, so a network by itself and a
// tenant's joined networks may have the same one, one after the other. Therefore a
// zone is emptied when its domain has left the host, and before another one comes
// into it.

func zoneOf(d desired.Domain) uint16 { return uint16(d) }

// count keeps how many of the desired state's networks a domain has, and which domains
// have none any more.
func (p *flowState) count(n *desired.Network, by int) {
	if n == nil {
		return
	}
	d := n.Domain()
	p.domains[d] += by
	if p.domains[d] > 0 {
		delete(p.removed, d)
		return
	}
	delete(p.domains, d)
	p.removed[d] = true
}

// findRemovedDomains looks for domains that the switch's flows know and the desired state does not.
func (p *flowState) findRemovedDomains() {
	for f := range p.ledger.entries() {
		if d := pipeline.DomainOf(f); d != 0 && p.domains[d] == 0 {
			p.removed[d] = true
		}
	}
}

// entries yields the flows by which packets enter the switch's tables.
func (l *ledger) entries() iter.Seq[openflow.Flow] {
	return func(yield func(openflow.Flow) bool) {
		for k, body := range l.installed {
			if k[0] != byte(pipeline.Classify) {
				continue
			}
			if f, err := openflow.FromParts(k, body); err == nil && !yield(f) {
				return
			}
		}
	}
}

// reclaimZones closes domains that have left and whose zones others come into, and
// empties these zones. A port that goes from the one domain to the other is closed
// until its new flows come.
func (t *flows) reclaimZones(ctx context.Context) error {
	taken := map[uint16]bool{}
	if len(t.pic.removed) > 0 {
		for is := range t.pic.domains {
			taken[zoneOf(is)] = true
		}
	}
	for was := range t.pic.removed {
		if !taken[zoneOf(was)] {
			continue
		}
		var edits []edit
		for f := range t.pic.ledger.entries() {
			if pipeline.DomainOf(f) == was {
				edits = append(edits, edit{key: f.Key(), body: f.Body(), remove: true})
			}
		}
		if err := t.write(ctx, edits); err != nil {
			return err
		}
		for _, e := range edits { // the new domain may want a flow of this key
			t.pic.ledger.pending[e.key] = struct{}{}
		}
		if err := t.emptyZone(ctx, was); err != nil {
			return err
		}
	}
	return nil
}

// emptyZones forgets the connections of the domains that have left.
func (t *flows) emptyZones(ctx context.Context) error {
	for was := range t.pic.removed {
		if err := t.emptyZone(ctx, was); err != nil {
			return err
		}
	}
	return nil
}

// emptyZone forgets a domain's connections, and first the datapath's cached flows,
// which would remember more.
func (t *flows) emptyZone(ctx context.Context, was desired.Domain) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	zone := zoneOf(was)
	t.daemon.purgeKernel(ctx, "a domain that is gone")
	if err := t.conns.sw.FlushZone(ctx, zone); err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	delete(t.pic.removed, was)
	return nil
}
