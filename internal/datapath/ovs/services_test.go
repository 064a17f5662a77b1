package ovs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// served is a service of the boxes' network with these boxes behind it: 80 leads to
// 8080 by TCP, 8053 to itself by UDP.
func (l *live) served(last byte, behind ...*box) *desired.Service {
	v4, v6 := l.net.Subnet.Addr().As4(), l.net.Subnet6.Addr().As16()
	v4[3], v6[15] = last, last
	s := &desired.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: fmt.Sprint("shop", last)}, Network: l.net.ID, IPv4: netip.AddrFrom4(v4), IPv6: netip.AddrFrom16(v6),
		Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, {Protocol: model.ProtoUDP, Port: 8053, Backend: 8053}},
	}
	for _, b := range behind {
		s.Backends = s.Backends.Set(b.port.Endpoint, &desired.Backend{Network: l.net.ID, IPv4: b.port.IPv4, IPv6: b.port.IPv6, Identity: b.port.Identity, Local: true})
	}
	return s
}

// newServed has three boxes; the last two listen at 8080.
func newServed(t testing.TB) *live {
	t.Helper()
	l := newLive(t, 3)
	t.Cleanup(func() { _ = l.drv.Close() })
	for _, b := range l.boxes {
		l.Run("ip", "-n", b.ns, "route", "add", "default", "dev", "eth0")
	}
	for _, b := range l.boxes[1:] {
		l.echo(t, b, 8080)
	}
	return l
}

func (l *live) serve(t testing.TB, all ...*desired.Service) {
	t.Helper()
	l.pic.Services = desired.Map[model.ServiceKey, *desired.Service]{}
	for _, s := range all {
		l.pic.Services = l.pic.Services.Set(s.Key, s)
	}
	l.apply(t)
}

// TestServicesWorkWithRealStacks tries services with containers' own stacks: bytes of TCP, datagrams of
// any size, refusals, and a client that is its own backend.
func TestServicesWorkWithRealStacks(t *testing.T) {
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	s := l.served(200, l.boxes[1:]...)
	l.serve(t, s)
	for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
		c, err := l.dial(t, a, vip, 80, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := bulk(c, 1<<20); err != nil {
			t.Errorf("%s: a megabyte: %v", vip, err)
		}
		c.Close()
		l.refusesClients(t, a, vip)
	}
	l.serve(t, l.served(200, b))
	for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
		for _, size := range []int{64, 4000, 20000} {
			if peer, err := l.datagrams(t, a, b, vip, size); err != nil || peer != a.port.IPv4 && peer != a.port.IPv6 {
				t.Errorf("%s: a datagram of %d bytes: %v, from %s", vip, size, err, peer)
			}
		}
		c, err := l.dial(t, b, vip, 80, 5*time.Second)
		if err != nil {
			t.Errorf("%s: by its own backend: %v", vip, err)
			continue
		}
		if err := bulk(c, 1<<20); err != nil {
			t.Errorf("%s: a megabyte to itself: %v", vip, err)
		}
		c.Close()
		if peer, err := l.datagrams(t, b, b, vip, 4000); err != nil || peer != desired.ServiceAddr && peer.WithZone("") != desired.ServiceAddr6 {
			t.Errorf("%s: a datagram to itself: %v, from %s", vip, err, peer)
		}
	}
}

// refusesClients tries ports that a service does not have, and one that its backends
// do not listen at.
func (l *live) refusesClients(t *testing.T, a *box, vip netip.Addr) {
	t.Helper()
	start := time.Now()
	if _, err := l.dial(t, a, vip, 81, 5*time.Second); !errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) > time.Second {
		t.Errorf("%s: a port that the service has not: %v after %v, want it refused", vip, err, time.Since(start))
	}
	for _, port := range []uint16{54, 8053} { // by the driver, and by a backend's stack
		c := l.udp(t, a, 0, netip.AddrPortFrom(vip, port))
		_, _ = c.Write([]byte("x"))
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: UDP port %d: %v, want it refused", vip, port, err)
		}
	}
}

// TestServiceConnectionsSurviveARestart: a connection to a service goes on while the driver restarts, which
// writes nothing, and after a crash of the switch, whichever end sends first.
func TestServiceConnectionsSurviveARestart(t *testing.T) {
	l := newServed(t)
	a := l.boxes[0]
	s := l.served(200, l.boxes[1:]...)
	s.Affinity = time.Hour
	l.serve(t, s)
	var conns []net.Conn
	for i := range 20 {
		c, err := l.dial(t, a, []netip.Addr{s.IPv4, s.IPv6}[i%2], 80, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	all := func(when string) {
		t.Helper()
		for _, c := range conns {
			if err := roundTrip(c, 5*time.Second); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	all("at first")
	learned := l.learned()
	if len(learned) != 2 {
		t.Fatalf("learned %q, want one of each family", learned)
	}
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	all("without a driver")
	l.open(t)
	if rep := l.apply(t); rep.Changes != 0 {
		t.Errorf("a restart made %d changes", rep.Changes)
	}
	if got := l.learned(); len(got) != 2 {
		t.Errorf("after a restart of the driver: learned %q, want %q", got, learned)
	}
	all("after a restart of the driver")

	_ = l.drv.Close() // one that died while its service went
	l.open(t)
	l.pic.Services = l.pic.Services.Delete(s.Key)
	l.apply(t)
	l.nothingLeft(t)
	if roundTrip(conns[0], 300*time.Millisecond) == nil {
		t.Error("a connection outlives its service")
	}
}

// TestServiceConnectionsSurviveASwitchCrash: after a crash of the switch in user space the client's next segment
// makes translations again; a backend's segments before that are dropped.
func TestServiceConnectionsSurviveASwitchCrash(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's connection tracking outlives the switch")
	}
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	s := l.served(200, b)
	s.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8081}}
	l.serve(t, s)
	accepted := l.acceptOne(t, b, ":8081")
	client, err := l.dial(t, a, s.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()
	got := func(c net.Conn, within time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	l.KillSwitch()
	l.StartSwitch()
	for start := time.Now(); time.Since(start) < 5*time.Second; { // until the flows are back
		if l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() == nil {
			break
		}
	}
	if _, err := server.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if got(client, 500*time.Millisecond) == nil {
		t.Error("the backend's data pass: the documentation says that they do not")
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(got(server, 5*time.Second), got(client, 5*time.Second)); err != nil {
		t.Errorf("after the client has spoken: %v", err)
	}
}

// learned are the flows that the switch has learned.
func (l *live) learned() []string {
	var out []string
	for line := range strings.Lines(l.Ofctl("contivBr", "dump-flows", fmt.Sprintf("cookie=%#x/%#x", pipeline.AffineMagic, pipeline.MagicMask), "--no-stats")) {
		if strings.Contains(line, "table=") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// nothingLeft wants no trace of services in the switch.
func (l *live) nothingLeft(t *testing.T) {
	t.Helper()
	if got := l.learned(); len(got) > 0 {
		t.Errorf("learned flows are left: %q", got)
	}
	if s := l.Ofctl("contivBr", "dump-groups"); strings.Contains(s, "group_id") {
		t.Errorf("groups are left: %s", s)
	}
	for _, kind := range []pipeline.Kind{pipeline.KindService, pipeline.KindCount} {
		if s := l.Ofctl("contivBr", "dump-flows", fmt.Sprintf("cookie=%#x/%#x", pipeline.CookieMagic|uint64(kind)<<40, pipeline.MagicMask|pipeline.KindMask), "--no-stats"); strings.Contains(s, "table=") {
			t.Errorf("flows are left: %s", s)
		}
	}
	if s := l.Appctl("dpctl/dump-conntrack"); strings.Contains(s, "mark=1") || strings.Contains(s, ".200,") || strings.Contains(s, "::c8,") {
		t.Errorf("connections are left: %s", s)
	}
}

// TestRemovedServicesLeaveNothing makes and removes services, with connections to some, and
// finds the switch as it was.
func TestRemovedServicesLeaveNothing(t *testing.T) {
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	l.serve(t)
	flows := func() []string {
		return slices.Sorted(strings.Lines(l.Ofctl("contivBr", "dump-flows", "--no-stats")))
	}
	before := flows()
	s := l.served(200, l.boxes[1:]...)
	s.Affinity = time.Hour
	for round := range 10 {
		all := []*desired.Service{s}
		for i := range 20 {
			all = append(all, l.served(byte(201+i), b))
		}
		l.serve(t, all...)
		c, err := l.dial(t, a, s.IPv4, 80, 5*time.Second)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := roundTrip(c, time.Second); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		l.serve(t, s)
		if err := roundTrip(c, time.Second); err != nil {
			t.Fatalf("round %d, others have gone: %v", round, err)
		}
		l.serve(t)
		c.Close()
		l.nothingLeft(t)
	}
	if diff := cmp.Diff(before, flows()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
	sctp := l.served(200, b)
	sctp.Ports = append([]desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}}, desired.ServicePort{Protocol: model.ProtoSCTP, Port: 9, Backend: 10})
	l.pic.Services = l.pic.Services.Set(sctp.Key, sctp)
	rep := l.apply(t)
	if len(rep.Problems) != 1 || rep.Problems[0].Object != "service blue:shop200" || !strings.HasPrefix(rep.Problems[0].Err.Error(), "port 132/9: ") {
		t.Errorf("a service with SCTP: %+v, want its port refused", rep.Problems)
	}
	if _, err := l.dial(t, a, s.IPv4, 80, 5*time.Second); err != nil {
		t.Errorf("its other port: %v", err)
	}
}

// TestForeignGroupsStayAndOursAreRestored: a foreign group stays, and one of ours that somebody removes
// comes back with the flows that went with it; one that somebody changes is as it was after
// the next comparison.
func TestForeignGroupsStayAndOursAreRestored(t *testing.T) {
	l := newServed(t)
	a, s := l.boxes[0], l.served(200, l.boxes[1:]...)
	l.serve(t, s)
	l.Ofctl("contivBr", "add-group", "group_id=5,type=indirect,bucket=actions=drop")
	l.apply(t)
	conn, err := openflow.DialGroups(t.Context(), l.RunDir+"/contivBr.mgmt")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list := func() int {
		all, err := conn.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, there := all[5]; !there {
			t.Error("a foreign group has gone")
		}
		return len(all)
	}
	want := list()
	for id := range l.drv.flows.pic.services.groups.names {
		l.Ofctl("contivBr", "del-groups", fmt.Sprint("group_id=", id))
		break
	}
	eventually(t, "the group is back", func() bool { return list() == want })
	eventually(t, "its flows are back", func() bool { // a moment later
		_, err := l.dial(t, a, s.IPv4, 80, 5*time.Second)
		return err == nil
	})
	for range 20 {
		if _, err := l.dial(t, a, s.IPv4, 80, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	compare := func() (repairs uint64) {
		before := l.drv.DriftRepairs()[driver.DriftFlow]
		l.drv.flows.verified = time.Time{} // as long ago as may be
		l.apply(t)
		return l.drv.DriftRepairs()[driver.DriftFlow] - before
	}
	compare() // repairs of above may be due
	if n := compare(); n != 0 {
		t.Errorf("%d repairs of what nobody has changed", n)
	}
	for id, g := range l.drv.flows.pic.services.groups.want {
		l.Ofctl("contivBr", "mod-group", fmt.Sprintf("group_id=%d,type=select", id)+strings.Repeat(",bucket=actions=drop", len(g.Buckets)))
	}
	if _, err := l.dial(t, a, s.IPv4, 80, time.Second); err == nil {
		t.Error("groups that drop everything have been reached")
	}
	if n := compare(); n != uint64(len(l.drv.flows.pic.services.groups.want)) {
		t.Errorf("%d repairs of %d groups are counted", n, len(l.drv.flows.pic.services.groups.want))
	}
	if _, err := l.dial(t, a, s.IPv4, 80, 5*time.Second); err != nil {
		t.Errorf("after groups were changed: %v", err)
	}
	l.serve(t)
	if n := list(); n != 1 {
		t.Errorf("%d groups are left, want the foreign one", n)
	}
}
