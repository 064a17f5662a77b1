package ovs

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestDeniedConnectionsNeverPassAfterApply closes a range of ports hundreds of times while
// packets to them are cached and another bridge keeps the switch revalidating its cache.
// No packet that is sent after Apply has returned may pass.
func TestDeniedConnectionsNeverPassAfterApply(t *testing.T) {
	const first, ports, sentinelPort = 1000, 160, 81
	rounds := 300
	if ovstest.Kernel() {
		rounds = 5
	}
	l := newLive(t, 2)
	defer l.drv.Close()
	l.reviseOften(t)

	conn := l.listenUDP(t, l.boxes[0], 0)
	to := l.boxes[1].port.IPv4
	var round atomic.Uint32 // odd while the ports are closed
	send := func(port uint16, stamp uint32) {
		_, _ = conn.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, stamp), netip.AddrPortFrom(to, port))
	}
	var mu sync.Mutex
	leaked := map[uint32]bool{}
	sentinels := make(chan uint32, 1024)
	for port := range uint16(ports) {
		l.receiveUDP(t, l.boxes[1], first+port, func(stamp uint32) {
			if stamp%2 == 1 {
				mu.Lock()
				defer mu.Unlock()
				leaked[stamp] = true
			}
		})
	}
	l.receiveUDP(t, l.boxes[1], sentinelPort, func(stamp uint32) { sentinels <- stamp })
	var sentinel uint32
	sendAll := func() { // returns when all have been forwarded or dropped
		t.Helper()
		for port := range uint16(ports) {
			send(first+port, round.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), ovstest.Patience(10*time.Second))
		defer cancel()
		sentinel++
		send(sentinelPort, sentinel)
		for {
			select {
			case got := <-sentinels:
				if got == sentinel {
					return
				}
			case <-ctx.Done():
				t.Fatal("the switch forwards nothing to the open port")
			}
		}
	}
	allow := make([]desired.Rule, ports) // a cached flow for each port
	for i := range allow {
		allow[i] = desired.Rule{
			ID: fmt.Sprint("allow", i), Priority: 1, Action: model.Allow, AnyPeer: true,
			Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: first + uint16(i), Hi: first + uint16(i)}},
		}
	}
	deny := desired.Rule{
		ID: "deny", Priority: 5, Action: model.Deny, AnyPeer: true,
		Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: first, Hi: first + ports - 1}},
	}
	closed := *l.boxes[1].port
	closed.Policies = 5
	l.pic.Ports = l.pic.Ports.Set(closed.IfName, &closed)
	apply := func(rules ...desired.Rule) {
		t.Helper()
		tier := desired.Tier{Tier: model.TierContiv, Default: model.Pass, Rules: desired.RulesOf(rules...)}
		l.pic.PolicySets = l.pic.PolicySets.Set(5, &desired.PolicySet{ID: 5, Name: "p", In: []desired.Tier{tier}})
		l.apply(t)
	}
	var took time.Duration
	for i := range rounds {
		apply(allow...)
		// Each change meets another moment of the revalidation.
		for start, late := time.Now(), time.Duration(i%60)*100*time.Microsecond; ; {
			sendAll()
			if time.Since(start) > late {
				break
			}
		}
		start := time.Now()
		apply(slices.Concat(allow, []desired.Rule{deny})...)
		took += time.Since(start)
		round.Add(1)
		sendAll()
		round.Add(1)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(leaked) > 0 {
		t.Errorf("after %d of %d denials a packet passed", len(leaked), rounds)
	}
	t.Logf("a denial took %v", took/time.Duration(rounds))
}

// reviseOften has a bridge of somebody else change its flows until the test ends: after
// each change the switch revalidates all flows that it has cached, also ours.
func (l *live) reviseOften(t testing.TB) {
	t.Helper()
	l.Vsctl("add-br", "other", "--", "set", "bridge", "other", "datapath_type="+ovstest.Datapath())
	ctx, cancel := context.WithCancel(context.Background())
	c, err := openflow.Dial(ctx, filepath.Join(l.RunDir, "other.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = c.Commit(ctx, []openflow.Mod{{Delete: i%2 == 1, Flow: openflow.Flow{Table: 9, Priority: 1}}})
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = c.Close()
	})
}

// listenUDP opens a socket in a box.
func (l *live) listenUDP(t testing.TB, b *box, port uint16) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	if err := inNamespace(b.ns, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: int(port)})
		return err
	}); err != nil {
		t.Fatalf("listen at port %d of %s: %v", port, b.ns, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// receiveUDP hands the numbers that come to a port of a box to got.
func (l *live) receiveUDP(t testing.TB, b *box, port uint16, got func(uint32)) {
	t.Helper()
	conn := l.listenUDP(t, b, port)
	go func() { // ends with the socket
		buf := make([]byte, 4)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if n == len(buf) {
				got(binary.BigEndian.Uint32(buf))
			}
		}
	}()
}
