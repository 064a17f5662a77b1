package ovs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// auditing is a switch with two containers of one network, and desired states with and
// without a policy under audit that would deny everything to both.
type auditing struct {
	*rig
	from, to      *desired.Port
	with, without desired.Host
}

func newAuditing(t testing.TB) *auditing {
	t.Helper()
	a := &auditing{rig: newRig(t)}
	a.open(t)
	const enforced, audited = 4711, 4712
	_, pic := conformance.DesiredStates(t)
	for name, p := range pic.Ports.All() {
		a.addWire(t, name, p.MAC)
		p := *p
		p.Policies = 0
		switch {
		case a.from == nil && p.IPv4.IsValid():
			a.from, p.Policies = &p, enforced
		case a.to == nil && a.from != nil && p.Network == a.from.Network && p.IPv4.IsValid():
			a.to, p.Policies = &p, enforced
		}
		pic.Ports = pic.Ports.Set(name, &p)
	}
	set := desired.PolicySet{ID: enforced, Name: "some"}
	strict := &desired.PolicySet{ID: audited, Audited: "blue:strict", In: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}}
	beside := set
	beside.Audits = []desired.PolicySetID{audited}
	a.with, a.without = pic, pic
	a.without.PolicySets = pic.PolicySets.Set(enforced, &set)
	a.with.PolicySets = pic.PolicySets.Set(enforced, &beside).Set(audited, strict)
	a.apply(t, a.without)
	return a
}

func (a *auditing) apply(t testing.TB, pic desired.Host) {
	t.Helper()
	if _, err := a.drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
}

// connect sends the first packets of n connections.
func (a *auditing) connect(t testing.TB, from, to *desired.Port, n int) {
	t.Helper()
	for i := range n {
		if err := a.wires[from.IfName].send(a.first(from, to, i)); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 || i == n-1 { // its queue is short
			a.bounce(t, a.wires[from.IfName], func([]byte) {})
		}
	}
}

// first is the first packet of a connection that a number tells from others.
func (*auditing) first(from, to *desired.Port, i int) []byte {
	return conformance.Frame(reference.Packet{
		SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.IPv4, Dst: to.IPv4, Proto: model.ProtoUDP, SrcPort: 1000 + uint16(i), DstPort: 53,
	})
}

// TestTooManyEstablishedConnectionsAreNotListed: a switch that tracks more connections than it lists in a short time is
// not asked for them; their number is reported as lost.
func TestTooManyEstablishedConnectionsAreNotListed(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel counts connections of this process's namespace, and the switch's are in another")
	}
	a := newAuditing(t)
	defer a.drv.Close()
	a.connect(t, a.from, a.to, 3)
	events, err := a.drv.Monitor(t.Context(), driver.MonitorOptions{NoDrops: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, listable := range []uint64{3, 2} {
		a.drv.mu.Lock()
		a.drv.daemon.listable = listable
		a.drv.mu.Unlock()
		a.apply(t, a.with)
		e := <-events
		if e.Count != 3 || e.Established != (listable == 3) || (e.Kind == driver.FlowLost) != (listable == 2) {
			t.Errorf("with room for %d: %+v", listable, e)
		}
		a.apply(t, a.without)
	}
}

var trackedLines = map[string]*tracked{
	"tcp,orig=(src=10.1.1.2,dst=10.1.1.3,sport=40000,dport=80),reply=(src=10.1.1.3,dst=10.1.1.2,sport=80,dport=40000),zone=7,protoinfo=(state=ESTABLISHED)": {
		proto: model.ProtoTCP, src: netip.MustParseAddr("10.1.1.2"), dst: netip.MustParseAddr("10.1.1.3"), srcPort: 40000, dstPort: 80,
	},
	"udp,orig=(src=fd00::2,dst=fd00::3,sport=40000,dport=53),reply=(src=fd00::3,dst=fd00::2,sport=53,dport=40000),zone=7,mark=1,labels=0x1\n": {
		proto: model.ProtoUDP, src: netip.MustParseAddr("fd00::2"), dst: netip.MustParseAddr("fd00::3"), srcPort: 40000, dstPort: 53,
	},
	"icmp,orig=(src=10.1.1.2,dst=8.8.8.8,id=9,type=8,code=0),reply=(src=8.8.8.8,dst=172.19.0.1,id=9,type=0,code=0),zone=7": {
		proto: model.ProtoICMP, src: netip.MustParseAddr("10.1.1.2"), dst: netip.MustParseAddr("8.8.8.8"), translated: true,
	},
	"tcp,orig=(src=8.8.8.8,dst=172.19.0.1,sport=1,dport=22),reply=(src=10.1.1.2,dst=8.8.8.8,sport=22,dport=1),zone=7,protoinfo=(state=SYN_SENT)": {
		proto: model.ProtoTCP, src: netip.MustParseAddr("8.8.8.8"), dst: netip.MustParseAddr("10.1.1.2"), srcPort: 1, dstPort: 22, translated: true,
	},
	"":    nil,
	"tcp": nil,
	"gre,orig=(src=10.1.1.2,dst=10.1.1.3),reply=(src=10.1.1.3,dst=10.1.1.2),zone=7":                                          nil,
	"tcp,orig=(src=10.1.1.2,dst=10.1.1.3,sport=1,dport=80),zone=7":                                                           nil,
	"tcp,orig=(src=10.1.1.2,dst=10.1.1.3,sport=1,dport=80),reply=(src=10.1.1.3,dst=10.1.1.2,sport=80":                        nil,
	"tcp,orig=(src=x,dst=10.1.1.3,sport=1,dport=80),reply=(src=10.1.1.3,dst=10.1.1.2,sport=80,dport=1),zone=7":               nil,
	"tcp,orig=(src=10.1.1.2,dst=10.1.1.3,sport=1,dport=65536),reply=(src=10.1.1.3,dst=10.1.1.2,sport=80,dport=1),zone=7":     nil,
	"tcp,orig=(sport=1,dport=80),reply=(src=10.1.1.3,dst=10.1.1.2,sport=80,dport=1),zone=7,labels=0x10000000000000000000000": nil,
}

// TestTrackedConnectionsAreRead: of a list of the switch's connections each line is read as
// containers see the connection, or is none.
func TestTrackedConnectionsAreRead(t *testing.T) {
	for line, want := range trackedLines {
		c, ok := readTracked(line)
		if ok != (want != nil) {
			t.Errorf("readTracked(%q) = %+v, %v", line, c, ok)
		} else if diff := cmp.Diff(want, &c, cmp.AllowUnexported(tracked{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); ok && diff != "" {
			t.Errorf("readTracked(%q) (-want +got):\n%s", line, diff)
		}
	}
}

// FuzzReadTracked: what a switch of another version says is none, or a connection that is
// read again from what was read.
func FuzzReadTracked(f *testing.F) {
	for line := range trackedLines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if c, ok := readTracked(line); ok && (!c.src.IsValid() || !c.dst.IsValid() || c.proto == model.AnyProtocol) {
			t.Errorf("readTracked(%q) = %+v", line, c)
		} else if ok {
			name := line[:strings.IndexByte(line, ',')]
			to := fmt.Sprintf("dst=%s,sport=%d,dport=%d)", c.dst, c.srcPort, c.dstPort)
			back := fmt.Sprintf(",reply=(src=%s,dst=%s)", c.dst, c.src)
			if again, ok := readTracked(name + ",orig=(src=" + c.src.String() + "," + to + back); !ok || again.translated {
				t.Errorf("readTracked(%q) = %+v, again %+v", line, c, again)
			} else if again.translated = c.translated; again != c {
				t.Errorf("readTracked(%q) = %+v, again %+v", line, c, again)
			}
		}
	})
}
