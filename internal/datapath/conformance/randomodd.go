package conformance

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// malform turns some packets into malformed ones, and encodes others in another way.
func (x *randomServices) malform(p reference.Packet) reference.Packet {
	if p.ARP != nil || p.ND != nil || x.unusual.IntN(6) > 0 {
		return p
	}
	if x.unusual.IntN(2) == 0 {
		p.Form = one(x.unusual, reference.Options, reference.Padded, reference.Unsummed)
		return p
	}
	all := slices.DeleteFunc(damaged(), func(d damagedCase) bool {
		return x.bench.Differs[d.name] != "" || d.proto != p.Proto || d.only4 && p.Src.Is6() ||
			p.Frag != nil && d.damage == reference.UDPTooLong // as each first fragment's is
	})
	later := p.Frag != nil && p.Frag.Offset > 0
	if p.Proto == model.ProtoSCTP || !p.Proto.HasPorts() || later || len(all) == 0 {
		if p.Damage = reference.NoHopsLeft; x.bench.Differs[CutShort] == "" && x.unusual.IntN(2) == 0 {
			p.Damage = reference.CutShort // what IP's header says
		}
		return p
	}
	d := all[x.unusual.IntN(len(all))]
	if p.Damage = d.damage; d.damage == reference.Intact {
		p.TCPFlags = d.flags
	}
	return p
}
