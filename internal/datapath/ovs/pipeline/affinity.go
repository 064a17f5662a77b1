package pipeline

import (
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// With whom the clients of a service stay: flows that the switch learns.

// affinityRegs are the registers, XXReg3 together, into which a learned flow writes the
// backend's address.
var affinityRegs = []of.Field{of.Reg12, of.Reg13, of.Reg14, of.Reg15}

func affinityTerms(a netip.Addr) []of.Term {
	if a.Is4() {
		return []of.Term{of.EqValue(of.Reg12, of.Addr(a))}
	}
	v := of.Addr(a)
	return []of.Term{of.Eq(of.Reg12, v.Hi>>32), of.Eq(of.Reg13, uint32(v.Hi)), of.Eq(of.Reg14, v.Lo>>32), of.Eq(of.Reg15, uint32(v.Lo))}
}

// learnAffinity adds the flows by which the switch learns to whom a client's connection
// went that was let through.
func (s Service) learnAffinity(l *list, c Config, v6 bool, self []of.Term) {
	learn := of.Learn{
		Table: uint8(SessionAffinity), Priority: 1, Idle: uint16(min(max(s.Affinity, time.Second), of.MaxIdle) / time.Second),
		Limit: desired.MaxAffine, Cookie: AffineMagic | uint64(s.Number), EthType: ethIP, Same: regService,
		At: of.NwSrc, From: of.NwSrc, Load: of.NwDst, Into: of.Reg12,
	}
	if v6 {
		learn.EthType, learn.At, learn.From, learn.Load, learn.Into = ethIPv6, of.IPv6Src, of.IPv6Src, of.IPv6Dst, of.XXReg3
	}
	fresh := match(append(self, of.State(of.StateNew|of.StateTrk, 0))...)
	l.add(LearnAffinity, 10, fresh, learn)
	l.add(ConntrackCommit, 14, fresh, goTo(CountConnections), learn, commitMarked(markService))
	if s.isExposed(c) {
		l.add(ConntrackCommit, 15, match(append(fresh, origin(fromExternalLocal))...), goTo(CountConnections), learn, commitMarked(markService|markExternalLocal))
	}
	learn.From = learn.Load // the client is its own backend
	l.add(Hairpin, 10, match(append(self, isBackendChosen, of.State(of.StateNew|of.StateTrk, of.StateInv))...),
		goTo(CountConnections), goTo(CountPackets), learn, of.Output{Port: of.PortInPort})
}
