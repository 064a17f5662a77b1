package openflow_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// dial starts a switch with one bridge and connects to it.
func dial(t testing.TB) (*ovstest.Server, *openflow.Conn, context.Context) {
	t.Helper()
	s := ovstest.Start(t)
	s.Vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type="+ovstest.Datapath(), "fail_mode=secure")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	c, err := openflow.Dial(ctx, filepath.Join(s.RunDir, "br0.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c, ctx
}

// additions adds flows.
func additions(flows ...openflow.Flow) (out []openflow.Mod) {
	for _, f := range flows {
		out = append(out, openflow.Mod{Flow: f})
	}
	return out
}

// normal is how a flow prints, by ovs-ofctl or here: without counters, in one order of
// what it matches, and with one name for the types of ICMP and ICMPv6.
func normal(line string) string {
	head, actions, _ := strings.Cut(strings.TrimSpace(line), " actions=")
	words := strings.FieldsFunc(head, func(r rune) bool { return r == ',' || r == ' ' })
	words = slices.DeleteFunc(words, func(w string) bool {
		k, _, _ := strings.Cut(w, "=")
		return w == "cookie=0x0" || slices.Contains([]string{"duration", "n_packets", "n_bytes", "idle_age", "hard_age", "reset_counts"}, k)
	})
	slices.Sort(words)
	return strings.ReplaceAll(strings.Join(words, ","), "icmpv6_", "icmp_") + " actions=" + actions
}

// TestSwitchReturnsWhatWasInstalled installs every sample in a real switch and reads it back
// twice: over the wire, and as text by ovs-ofctl.
func TestSwitchReturnsWhatWasInstalled(t *testing.T) {
	s, c, ctx := dial(t)
	if err := c.SetMeter(ctx, 3, 100); err != nil { // a sample uses it
		t.Fatal(err)
	}
	for range 2 { // a meter that is there stays
		if err := c.LimitMeters(ctx, 100, 255, 256); err != nil { // which a sample names
			t.Fatal(err)
		}
	}
	var all []openflow.Flow
	want, wantText := map[string]string{}, map[string]bool{}
	for _, x := range openflow.Samples {
		all = append(all, x.Flow)
		want[x.Flow.Key()], wantText[normal(x.Text)] = x.Text, true
	}
	if err := c.Commit(ctx, additions(all...)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := c.DumpFlows(ctx, openflow.AllFlows, func(st openflow.FlowStats) {
		if st.Err != nil {
			t.Errorf("decode: %v", st.Err)
		}
		got[st.Flow.Key()] = st.Flow.String()
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dump over the wire (-want +got):\n%s", diff)
	}
	text := map[string]bool{}
	for l := range strings.SplitSeq(s.Ofctl("br0", "dump-flows"), "\n") {
		if strings.Contains(l, "actions=") {
			text[normal(l)] = true
		}
	}
	if diff := cmp.Diff(wantText, text); diff != "" {
		t.Errorf("dump by ovs-ofctl (-want +got):\n%s", diff)
	}
}

// TestBundleIsAtomic checks that a bundle with one bad flow changes nothing and
// that the error names the flow.
func TestBundleIsAtomic(t *testing.T) {
	_, c, ctx := dial(t)
	bad := additions(
		openflow.Flow{Table: 1, Priority: 1},
		openflow.Flow{Table: 1, Priority: 2, Match: openflow.NewMatch(openflow.EqAddr(openflow.NwSrc, netip.MustParseAddr("10.0.0.1")))}, // no Ethernet type
		openflow.Flow{Table: 1, Priority: 3},
	)
	err := c.Commit(ctx, bad)
	if err == nil || !strings.Contains(err.Error(), "priority=2,nw_src=10.0.0.1") || !strings.Contains(err.Error(), "prerequisite") {
		t.Errorf("Commit() = %v, want the flow and the missing prerequisite", err)
	}
	n := 0
	if err := c.DumpFlows(ctx, openflow.AllFlows, func(openflow.FlowStats) { n++ }); err != nil {
		t.Fatal(err)
	}
	if n != 0 {
		t.Errorf("%d flows after a refused bundle, want 0", n)
	}
}

// TestDeletionIsStrict checks strict deletion, deletion by cookie, and that an addition
// in the same bundle as a deletion of the same key stands.
func TestDeletionIsStrict(t *testing.T) {
	_, c, ctx := dial(t)
	m := additions(
		openflow.Flow{Cookie: 0x10001, Table: 1, Priority: 1},
		openflow.Flow{Cookie: 0x10002, Table: 1, Priority: 2},
		openflow.Flow{Cookie: 0x20003, Table: 1, Priority: 3},
	)
	if err := c.Commit(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(ctx, []openflow.Mod{
		{Delete: true, Flow: m[0].Flow},
		{All: true, Flow: openflow.Flow{Cookie: 0x20000}, CookieMask: 0xffff0000},
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := c.DumpFlows(ctx, openflow.AllFlows, func(s openflow.FlowStats) { got = append(got, s.Flow.String()) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cookie=0x10002, table=1, priority=2 actions=drop"}, got); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
}

// TestConnectionBreaksWithTheSwitch lists ports, and sees the connection break with the switch.
func TestConnectionBreaksWithTheSwitch(t *testing.T) {
	s, c, ctx := dial(t)
	ports, err := c.Ports(ctx)
	if err != nil || len(ports) != 1 || ports[0].Name != "br0" || ports[0].Port != openflow.PortLocal {
		t.Errorf("Ports() = %+v, %v", ports, err)
	}
	if st, err := c.PortStats(ctx); err != nil || len(st) != 1 {
		t.Errorf("PortStats() = %+v, %v", st, err)
	}
	s.KillSwitch()
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the connection did not end")
	}
	if err := c.Barrier(context.Background()); err == nil {
		t.Error("Barrier() on a broken connection succeeded")
	}
}

// Calls that end before their answer leave the connection to others.
func TestCancelledCallsLeaveTheConnection(t *testing.T) {
	_, c, ctx := dial(t)
	over, cancel := context.WithCancel(ctx)
	cancel()
	for range 100 {
		if err := c.Barrier(over); !errors.Is(err, context.Canceled) {
			t.Fatalf("Barrier() of a call that is cancelled = %v", err)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		t.Errorf("Barrier() afterwards: %v", err)
	}
}

// BenchmarkCommit measures bundles of many flows.
func BenchmarkCommit(b *testing.B) {
	_, c, ctx := dial(b)
	var all []openflow.Mod
	for i := range 10000 {
		all = append(all, openflow.Mod{Flow: openflow.Flow{
			Table: 3, Priority: 100, Match: openflow.NewMatch(openflow.Eq(openflow.Reg0, 1), openflow.Eq(openflow.Reg1, i)),
			Actions: []openflow.Action{openflow.Set(openflow.Reg5, i), openflow.Resubmit{Table: 4}},
		}})
	}
	for b.Loop() {
		if err := c.Commit(ctx, all); err != nil {
			b.Fatal(err)
		}
	}
}
