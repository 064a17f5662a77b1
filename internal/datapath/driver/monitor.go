package driver

import (
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// MonitorOptions say what Monitor tells beside what rules with Log and audited
// policies ask for.
type MonitorOptions struct {
	Connections bool // connections that begin
	NoDrops     bool // packets that go nowhere are not told: a flow log costs a flood nothing
}

// FlowKind says what a FlowEvent tells of.
type FlowKind uint8

// The kinds.
const (
	FlowDrop       FlowKind = iota + 1 // a packet that went nowhere
	FlowConnection                     // the first packet of a connection that was let through
	FlowLost                           // events that could not be told; Time and Count only
	FlowLogged                         // a new connection met a rule with Log; Decisions is that rule and its action
	FlowWouldDeny                      // a connection was let through by a policy, and an audited set would deny it
	FlowWouldAllow                     // a connection was denied by a policy, and an audited set would let it through
)

// FlowEvent tells of a packet that was dropped, or that began a connection
// between two ends (broadcasts begin none), or would have.
type FlowEvent struct {
	Time   time.Time // by the host's clock
	Kind   FlowKind
	Count  uint64 // packets that it stands for: alike but for source port and time
	Reason string // of a drop: one of the Drop constants

	Network          model.NetworkID // 0 = of none known
	Port             string          // local port that it came from; "" = from elsewhere
	SrcMAC, DstMAC   model.MAC       // zero when the frame was too short
	ARP              bool            // it is ARP, of Src for Dst
	Src, Dst         netip.Addr      // invalid unless it is ARP or IP that could be read
	Proto            model.Protocol  // AnyProtocol unless it is IP that could be read
	SrcPort, DstPort uint16          // with ports
	ICMPType         uint8           // of ICMP

	// Decisions say who decided. Of a drop by policy: the one that denied. Of a
	// connection: those of its ends on this host that have a policy, source first.
	// Of a would-be verdict: the one that the audited set has for its end.
	Decisions []Decision

	Policy      string // of a would-be verdict: the audited policy (desired.PolicySet.Audited)
	Established bool   // of a would-be verdict: of connections that lived when the policy's audit began or changed; no MACs are known
}

// Decision is the verdict of one end's policy.
type Decision struct {
	Direction model.Direction // Out: of the source's policy, In: of the destination's
	Rule      string          // id of the rule that decided; "" = none matched
	Tier      model.Tier      // of a denial without a rule: the tier whose default it was; 0 = the policy is not loaded
	DefaultOf string          // of a denial without a rule: the policies whose default it was, as desired.Tier has them
	Action    model.Action    // of FlowLogged: what the rule says; Pass = the next tier decides
}

// DecisionOf is what a policy set decided of a connection.
func DecisionOf(dir model.Direction, said desired.Ruling) Decision {
	d := Decision{Direction: dir, Rule: said.RuleID()}
	d.ByDefault(said.Tier)
	return d
}

// ByDefault makes the decision the default of a tier.
func (d *Decision) ByDefault(t desired.Tier) { d.Tier, d.DefaultOf = t.Tier, t.DefaultOf }

// flowQueue is how many events wait for a reader before further ones count as lost, and
// lostEvery is how often the number of lost events is reported.
const (
	flowQueue = 1024
	lostEvery = time.Second
)

// FlowQueue hands events to one reader without ever waiting for it. What does
// not fit is counted and told by an event of kind FlowLost, as soon as there is
// room and another event comes, or within a second. Its methods may be called
// from several goroutines.
type FlowQueue struct {
	mu     sync.Mutex
	ch     chan FlowEvent
	lost   uint64
	again  *time.Timer // runs while lost is not 0
	closed bool
}

// NewFlowQueue returns an empty queue.
func NewFlowQueue() *FlowQueue { return &FlowQueue{ch: make(chan FlowEvent, flowQueue)} }

// Events is where the reader finds them; it is closed by Close.
func (q *FlowQueue) Events() <-chan FlowEvent { return q.ch }

// Send queues an event, before it what was lost.
func (q *FlowQueue) Send(e FlowEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sendLost()
	if !q.put(e) {
		q.lost += max(e.Count, 1)
		q.sendLost()
	}
}

// AddLost counts n packets that were not told of.
func (q *FlowQueue) AddLost(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += n
	q.sendLost()
}

// sendLost tells what is lost; where there is no room for that either, the last
// events of a flood may be among it, so nothing else might ever ask again.
func (q *FlowQueue) sendLost() {
	switch {
	case q.lost == 0:
	case q.put(FlowEvent{Time: time.Now(), Kind: FlowLost, Count: q.lost}):
		q.lost = 0
	case q.again == nil:
		q.again = time.AfterFunc(lostEvery, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.again = nil
			q.sendLost()
		})
	}
}

func (q *FlowQueue) put(e FlowEvent) bool {
	if q.closed {
		return true // no reader misses it
	}
	select {
	case q.ch <- e:
		return true
	default:
		return false
	}
}

// Close ends the reader's channel; what is sent later is dropped.
func (q *FlowQueue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		if q.again != nil {
			q.again.Stop()
		}
		close(q.ch)
	}
}
