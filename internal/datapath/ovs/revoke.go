package ovs

import (
	"encoding/binary"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// revokes reports whether edits may take something away from traffic that passes now: a
// denial, a removed allow, another identity, a removed endpoint. What it does not know to
// be an addition counts as a revocation.
func (p *flowState) revokes(edits []edit) bool {
	return slices.ContainsFunc(edits, func(e edit) bool { return !p.adds(e) })
}

// adds reports whether an edit is only a flow of a port or a VXLAN endpoint that comes, of
// an allow rule, or of a policy set that no port had before.
func (p *flowState) adds(e edit) bool {
	if _, replaced := p.ledger.installed[e.key]; e.remove || replaced {
		return false
	}
	switch o := p.ledger.owners[e.key][0]; o.kind { //nolint:exhaustive // the others are no additions
	case pipeline.KindPort, pipeline.KindAudit:
		return true
	case pipeline.KindRemote: // on a VLAN its address was a stranger's before
		n, _ := p.have.Networks.Get(model.NetworkID(o.id >> 48))
		return n != nil && n.Encap == model.EncapVXLAN
	case pipeline.KindRule, pipeline.KindDefault:
		return p.policies.fresh[desired.PolicySetID(o.id>>8)] || allows(e.body)
	}
	return false
}

// allows reports whether the flow with this body is an allow rule's.
func allows(body string) bool {
	kind, _, _ := pipeline.KindOf(binary.BigEndian.Uint64([]byte(body[:8])))
	return kind == pipeline.KindAllow
}
