package driver

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// PendingAudits are audits of established connections that are not reported yet.
type PendingAudits map[desired.Audit]bool

// Note adds the audits that have come or changed from one desired state to the next, and
// forgets audits that have gone.
func (u PendingAudits) Note(before, now desired.Map[desired.PolicySetID, *desired.PolicySet]) {
	for _, a := range desired.NewAudits(before, now) {
		u[a] = true
	}
	maps.DeleteFunc(u, func(a desired.Audit, _ bool) bool {
		_, ok := now.Get(a.Audited)
		return !ok
	})
}

// Sets are those beside which the audits are.
func (u PendingAudits) Sets() map[desired.PolicySetID]bool {
	out := map[desired.PolicySetID]bool{}
	for a := range u {
		out[a.Set] = true
	}
	return out
}

// ConnectionGroup are connections that live and differ in their source ports at most.
type ConnectionGroup struct {
	Network  model.NetworkID
	Src, Dst netip.Addr
	Proto    model.Protocol
	DstPort  uint16 // with ports
	Routed   bool   // they go by the host
	From, To string // local ports at their ends; "" = elsewhere
}

// ConnectionCount is how many are alike, and the lowest of their source ports.
type ConnectionCount struct {
	N       uint64
	SrcPort uint16
}

// EstablishedConnections are connections that live.
type EstablishedConnections map[ConnectionGroup]ConnectionCount

// Add counts one. Broadcasts are none.
func (l EstablishedConnections) Add(a ConnectionGroup, srcPort uint16) {
	if a.Dst.IsMulticast() || a.Dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return
	}
	if !a.Proto.HasPorts() {
		a.DstPort, srcPort = 0, 0
	}
	c, ok := l[a]
	if c.N++; !ok || srcPort < c.SrcPort {
		c.SrcPort = srcPort
	}
	l[a] = c
}

// PolicyEnds are the ends here that have a policy, the source's first. set is a port's,
// peer who an address is, get as PolicyEndOf has it; nil = none, or its rules are not in.
func (a ConnectionGroup) PolicyEnds(
	set func(port string) *desired.PolicySet, peer func(netip.Addr) desired.Peer, get func(desired.PolicySetID) *desired.PolicySet,
) (out []PolicyEnd) {
	for _, x := range []struct {
		dir  model.Direction
		port string
		peer netip.Addr
	}{{model.Out, a.From, a.Dst}, {model.In, a.To, a.Src}} {
		s := set(x.port)
		if s == nil {
			continue
		}
		asked := JudgedConnection{Direction: x.dir, Peer: peer(x.peer), Proto: a.Proto, Port: a.DstPort}
		if a.Routed {
			asked.Peer.Identity = model.IdentityExternal
		}
		out = append(out, PolicyEndOf(asked, s, get))
	}
	return out
}

// event is their report, without the audit rules' part.
func (a ConnectionGroup) event(c ConnectionCount) FlowEvent {
	return FlowEvent{
		Time: time.Now(), Count: c.N, Established: true, Network: a.Network, Port: a.From,
		Src: a.Src, Dst: a.Dst, Proto: a.Proto, SrcPort: c.SrcPort, DstPort: a.DstPort,
	}
}

// EstablishedQueue holds the living connections that a monitor has still to tell of.
// Its methods may be called from several goroutines.
type EstablishedQueue struct {
	mu   sync.Mutex
	list []establishedBatch
}

// establishedBatch are the connections that lived when audits came or changed.
type establishedBatch struct {
	conns     EstablishedConnections
	audits    PendingAudits
	policyEnd func(ConnectionGroup) []PolicyEnd
}

// Add puts connections in; ends finds what Alike.PolicyEnds returns.
func (l *EstablishedQueue) Add(conns EstablishedConnections, audits PendingAudits, ends func(ConnectionGroup) []PolicyEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, establishedBatch{conns, audits, ends})
}

// Report tells how the audits would judge them, for as long as there is time.
func (l *EstablishedQueue) Report(q *FlowQueue, t *MonitorBudget) {
	for t.HasTime() {
		a, n, of, ok := l.next()
		if !ok {
			return
		}
		stop := t.Measure()
		for _, end := range of.policyEnd(a) {
			said := end.Judge(end.Set)
			for _, s := range end.Audits {
				if !of.audits[desired.Audit{Set: end.Set.ID, Audited: s.ID}] {
					continue
				}
				if e, differs := end.auditDecision(said, s); differs {
					q.Send(a.event(n).AsAudit(e))
				}
			}
			if !said.Pass {
				break
			}
		}
		stop()
	}
}

// next takes connections that are alike.
func (l *EstablishedQueue) next() (ConnectionGroup, ConnectionCount, establishedBatch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; len(l.list) > 0; l.list = l.list[1:] {
		for a, n := range l.list[0].conns {
			delete(l.list[0].conns, a)
			return a, n, l.list[0], true
		}
	}
	return ConnectionGroup{}, ConnectionCount{}, establishedBatch{}, false
}
