package ovs

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// counts waits until what is counted is this: by service, backend and "6" for IPv6,
// without bytes, which have to be there where packets are.
func (l *live) counts(t *testing.T, when string, want map[string]driver.ServiceStats) driver.Stats {
	t.Helper()
	var got map[string]driver.ServiceStats
	var all driver.Stats
	defer func() {
		if t.Failed() {
			t.Fatalf("%s: counted %+v, want %+v\n%s", when, got, want, l.Appctl("dpctl/dump-conntrack"))
		}
	}()
	eventually(t, when, func() bool {
		var err error
		if all, err = l.drv.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		got = map[string]driver.ServiceStats{}
		for of, n := range all.Services {
			name := of.Service.Name + " " + string(of.Backend.ID)
			if of.IPv6 {
				name += " 6"
			}
			if n.BytesIn/28 < n.PacketsIn || n.BytesOut/28 < n.PacketsOut {
				t.Errorf("%s: %s: %+v", when, name, n)
			}
			n.BytesIn, n.BytesOut = 0, 0
			got[name] = n
		}
		return maps.Equal(got, want)
	})
	return all
}

// TestServiceCountsOutlastARestart: counts of services stay when a service changes and when the driver
// restarts. Denied packets are not counted, an unanswered datagram begins no second
// connection, and a client that is its own backend counts.
func TestServiceCountsOutlastARestart(t *testing.T) {
	l := newServed(t)
	a, b, c := l.boxes[0], l.boxes[1], l.boxes[2]
	name := l.datagramService().Key.Name
	l.serve(t, l.datagramService(b))
	atB := l.udp(t, b, 8053, netip.AddrPort{})
	vips := []netip.Addr{l.datagramService().IPv4, l.datagramService().IPv6}
	want := map[string]driver.ServiceStats{}
	for i, vip := range vips {
		client := l.udp(t, a, 0, netip.AddrPortFrom(vip, 53))
		for range 3 { // to tracking each may be the first
			sendDatagram(t, client)
			if !waitDatagram(t, atB, 2*time.Second).IsValid() {
				t.Fatal("no datagram came")
			}
		}
		want[name+" b1"+[]string{"", " 6"}[i]] = driver.ServiceStats{Connections: 1, Total: 1, PacketsOut: 3}
		client = l.udp(t, a, 0, netip.AddrPortFrom(vip, 53))
		sendDatagram(t, client)
		from := waitDatagram(t, atB, 2*time.Second)
		for range 2 {
			if _, err := atB.WriteToUDPAddrPort([]byte("answer"), from); err != nil {
				t.Fatal(err)
			}
			if !waitDatagram(t, client, 2*time.Second).IsValid() {
				t.Fatal("no answer came")
			}
		}
		n := want[name+" b1"+[]string{"", " 6"}[i]]
		n.Add(driver.ServiceStats{Connections: 1, Total: 1, PacketsOut: 1, PacketsIn: 2})
		want[name+" b1"+[]string{"", " 6"}[i]] = n
	}
	l.counts(t, "at first", want)

	with := l.datagramService(b, c) // the group's buckets change
	x, _ := with.Backends.Get(c.port.Endpoint)
	drains := *x
	drains.State = desired.BackendDraining
	with.Backends = with.Backends.Set(c.port.Endpoint, &drains)
	l.serve(t, with)
	l.counts(t, "once there is another backend", want)
	if err := l.drv.Close(); err != nil {
		t.Fatal(err)
	}
	l.open(t)
	if rep := l.apply(t); rep.Changes != 0 {
		t.Errorf("a restart made %d changes", rep.Changes)
	}
	l.counts(t, "after a restart", want)

	own := l.udp(t, b, 0, netip.AddrPortFrom(vips[0], 53))
	for range 2 {
		sendDatagram(t, own)
		from := waitDatagram(t, atB, 2*time.Second)
		if !from.IsValid() {
			t.Fatal("no datagram came to its sender")
		}
		if _, err := atB.WriteToUDPAddrPort([]byte("answer"), from); err != nil {
			t.Fatal(err)
		}
		if !waitDatagram(t, own, 2*time.Second).IsValid() {
			t.Fatal("no answer came to its sender")
		}
	}
	n := want[name+" b1"]
	n.Add(driver.ServiceStats{Connections: 1, Total: 1, PacketsOut: 2, PacketsIn: 2})
	want[name+" b1"] = n
	l.counts(t, "with one to itself", want)

	l.serve(t)
	l.counts(t, "without the service", map[string]driver.ServiceStats{})
	l.nothingLeft(t)
}

// TestDeniedIsNotCounted: what policy denies has not begun, and counts when it is let
// through.
func TestDeniedIsNotCounted(t *testing.T) {
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	s := l.served(200, b)
	l.deny(b, 8080, true)
	l.serve(t, s)
	if _, err := l.dial(t, a, s.IPv4, 80, 300*time.Millisecond); err == nil {
		t.Fatal("a denied connection began")
	}
	l.counts(t, "denied", map[string]driver.ServiceStats{s.Key.Name + " b1": {Connections: 1}})
	l.deny(b, 8080, false)
	l.serve(t, s)
	if ovstest.Kernel() { // a packet that meets what is cached yet counts as if it met the change
		l.Appctl("revalidator/purge")
	}
	conn, err := l.dial(t, a, s.IPv4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var n driver.ServiceStats
	defer func() {
		if t.Failed() {
			t.Logf("%+v", n)
		}
	}()
	eventually(t, "the connection counts", func() bool {
		all, err := l.drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n = all.Services[driver.ServiceOf{Service: s.Key, Protocol: model.ProtoTCP, Port: 80, Backend: b.port.Endpoint}]
		return n.Total == 1 && n.PacketsOut >= 2 && n.PacketsIn >= 1
	})
}

// TestServicePacketsAreCountedByPort: packets are counted for the port of the service that they were sent
// to, also where several lead to one port of the backend.
func TestServicePacketsAreCountedByPort(t *testing.T) {
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	s := l.served(200, b)
	s.Ports = nil
	for port := range uint16(3) {
		s.Ports = append(s.Ports, desired.ServicePort{Protocol: model.ProtoTCP, Port: 80 + port, Backend: 8080})
	}
	l.serve(t, s)
	trips := map[uint16]int{80: 40, 81: 60, 82: 80}
	for port, n := range trips {
		conn, err := l.dial(t, a, s.IPv4, int(port), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range n {
			if err := roundTrip(conn, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all driver.Stats
	defer func() {
		if t.Failed() {
			t.Logf("%+v", all.Services)
		}
	}()
	eventually(t, "each port has its packets", func() bool {
		var err error
		if all, err = l.drv.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		right := 0
		for port, n := range trips {
			one := all.Services[driver.ServiceOf{Service: s.Key, Protocol: model.ProtoTCP, Port: port, Backend: b.port.Endpoint}]
			least, most := uint64(n), uint64(2*n+10) // with acknowledgements
			if one.Total == 1 && one.Connections == 1 && one.PacketsOut >= least && one.PacketsOut <= most && one.PacketsIn >= least && one.PacketsIn <= most {
				right++
			}
		}
		return right == len(trips)
	})
}

// TestCountersAreBounded: services beyond the room for counters are named, in the report
// and with the counts, and get theirs when there is room; and it is said when what lives
// cannot be counted.
func TestCountersAreBounded(t *testing.T) {
	l := newServed(t)
	b := l.boxes[1]
	l.drv.flows.pic.services.counts.most = 3 * 4 // two ports by two families
	first, second := l.served(201, b), l.served(202, b)
	l.pic.Services = l.pic.Services.Set(first.Key, first).Set(second.Key, second)
	rep := l.apply(t)
	if len(rep.Problems) != 1 || rep.Problems[0].Object != "counts of services" || !strings.Contains(rep.Problems[0].Err.Error(), "1 of 2 services are not counted") {
		t.Errorf("problems: %+v, want one about a service that is not counted", rep.Problems)
	}
	stats := func() driver.Stats {
		t.Helper()
		all, err := l.drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := stats()
	if len(all.Uncounted) != 1 || all.ConnectionsUnknown != "" {
		t.Errorf("uncounted: %v, %q", all.Uncounted, all.ConnectionsUnknown)
	}
	for k := range all.Uncounted { // one of the two; the other goes
		gone := first.Key
		if k == gone {
			gone = second.Key
		}
		l.pic.Services = l.pic.Services.Delete(gone)
	}
	if rep := l.apply(t); len(rep.Problems) != 0 || len(stats().Uncounted) != 0 {
		t.Errorf("with room for the other one: %+v, %v", rep.Problems, stats().Uncounted)
	}
	if conn, err := l.dial(t, l.boxes[0], first.IPv4, 80, time.Second); err == nil {
		defer conn.Close()
	} else if conn, err := l.dial(t, l.boxes[0], second.IPv4, 80, time.Second); err != nil {
		t.Error(err)
	} else {
		defer conn.Close()
	}
	l.drv.daemon.listable = 1
	if why := stats().ConnectionsUnknown; !strings.Contains(why, "more than 1") {
		t.Errorf("with more connections than are listed: %q", why)
	}
}

// TestFreedCountersGoToWaitingServices: freed room goes to waiting services, in order of their keys, whatever was
// refused meanwhile.
func TestFreedCountersGoToWaitingServices(t *testing.T) {
	key := func(name string) model.ServiceKey { return model.ServiceKey{Tenant: "t", Name: name} }
	c := newCounters()
	c.most = 12
	takes := func(name string, need int, want bool) {
		t.Helper()
		if got := c.take(key(name), need); got != want {
			t.Errorf("%s takes %d of %d with %d taken: %v", name, need, c.most, c.taken, got)
		}
	}
	next := func(want string) {
		t.Helper()
		if got := c.next(); got.Name != want {
			t.Errorf("next with %d taken is %q, want %q", c.taken, got.Name, want)
		}
	}
	takes("a", 6, true)
	takes("big", 9, false)
	next("")
	takes("b", 3, true)
	takes("b", 3, true) // again: it has them
	takes("late", 6, false)
	takes("c", 3, true)
	takes("early", 6, false)
	next("")
	c.release(key("c"))
	next("") // 3 are free
	c.release(key("b"))
	next("early")
	takes("early", 6, true)
	next("")
	takes("a", 9, false) // it has grown, and has none then
	next("late")
	takes("late", 6, true)
	next("")
	if len(c.waiting) != 2 || c.waiting[0] != key("a") || len(c.without) != 2 || c.taken != 12 {
		t.Errorf("%v wait, %v, %d are taken", c.waiting, c.without, c.taken)
	}
}
