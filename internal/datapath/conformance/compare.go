package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// outcome is what is compared of a verdict.
type outcome struct {
	Ports  []string
	VTEPs  []netip.Addr
	Uplink bool
	Host   bool
	Sent   string // as the reference data plane translated or routed it; "" = neither
	Tag    string // of a routed packet: the network or VLAN that it left with
	Answer string // what the sender was told
}

func outcomeOf(v reference.Verdict) outcome {
	return outcome{Ports: v.Ports, VTEPs: v.VTEPs, Uplink: v.Uplink, Host: v.Host, Answer: answerText(v.Answer)}
}

func (b *bench) compare(tb testing.TB, what string, p reference.Packet) bool {
	tb.Helper()
	if b.SkipPacket != nil && b.SkipPacket(p) != "" {
		return true
	}
	v := b.ref.Send(p)
	return sameVerdict(tb, what, p, v, b.Send(tb, p))
}

// sameVerdict compares the reference data plane's verdict on a packet with another one.
func sameVerdict(tb testing.TB, what string, p reference.Packet, v, v2 reference.Verdict) bool {
	tb.Helper()
	want, got := outcomeOf(v), outcomeOf(v2)
	switch routed := v.Sent != nil && !v.Host && !p.Host; {
	case routed:
		want.Sent, got.Sent = routedText(v.Sent), routedText(v2.Sent)
		want.Tag, got.Tag = fmt.Sprint(v.Network, v.VLAN), fmt.Sprint(v2.Network, v2.VLAN)
	case v.Sent != nil:
		want.Sent, got.Sent = sentText(v.Sent), sentText(v2.Sent)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		tb.Errorf("%s: reference: %s (-want +got):\n%s", what, v, diff)
		return false
	}
	return true
}
