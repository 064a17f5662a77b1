package ovs

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// datagramService has a service whose port 53 leads to 8053 of boxes.
func (l *live) datagramService(behind ...*box) *desired.Service {
	s := l.served(200, behind...)
	s.Ports = []desired.ServicePort{{Protocol: model.ProtoUDP, Port: 53, Backend: 8053}}
	return s
}

// waitDatagram tells who sent the next datagram; invalid = none came in time.
func waitDatagram(t *testing.T, at *net.UDPConn, within time.Duration) netip.AddrPort {
	t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(within))
	_, from, err := at.ReadFromUDPAddrPort(make([]byte, 64))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

func sendDatagram(t *testing.T, c *net.UDPConn) {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// TestUnansweredDatagramsKeepTheirBackend: all datagrams of a client come to the backend of its first
// one, although to tracking they are new ones until that answers.
func TestUnansweredDatagramsKeepTheirBackend(t *testing.T) {
	l := newServed(t)
	s := l.datagramService(l.boxes[1:]...)
	l.serve(t, s)
	var at [2]*net.UDPConn
	for i, b := range l.boxes[1:] {
		at[i] = l.udp(t, b, 8053, netip.AddrPort{})
	}
	for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
		c := l.udp(t, l.boxes[0], 0, netip.AddrPortFrom(vip, 53))
		sendDatagram(t, c)
		to, not := at[0], at[1]
		for range 100 { // the first one shows who was chosen
			if waitDatagram(t, to, 50*time.Millisecond).IsValid() {
				break
			}
			to, not = not, to
		}
		for i := range 4 { // one by one: the later ones may meet what the switch has cached
			sendDatagram(t, c)
			if !waitDatagram(t, to, 5*time.Second).IsValid() {
				t.Fatalf("%s: datagram %d is lost:\n%s", vip, i+2, l.Appctl("dpctl/dump-conntrack"))
			}
			if waitDatagram(t, not, 50*time.Millisecond).IsValid() {
				t.Fatalf("%s: datagram %d is at the other backend", vip, i+2)
			}
		}
	}
}

// TestReturningBackendGetsItsClients: a client's stream of datagrams goes on with a backend that
// has gone and comes back, though that has sent to the client meanwhile, which to
// tracking is a connection of its own by the same tuple.
func TestReturningBackendGetsItsClients(t *testing.T) {
	l := newServed(t)
	a, b, other := l.boxes[0], l.boxes[1], l.boxes[2]
	atB, atOther := l.udp(t, b, 8053, netip.AddrPort{}), l.udp(t, other, 8053, netip.AddrPort{})
	for _, vip := range []netip.Addr{l.datagramService().IPv4, l.datagramService().IPv6} {
		c := l.udp(t, a, 0, netip.AddrPortFrom(vip, 53))
		var client netip.AddrPort
		goes := func(when string, to, not *net.UDPConn) {
			t.Helper()
			for range 3 {
				sendDatagram(t, c)
				if client = waitDatagram(t, to, 2*time.Second); !client.IsValid() {
					t.Fatalf("%s, %s: a datagram is lost:\n%s", vip, when, l.Appctl("dpctl/dump-conntrack"))
				}
				if from := waitDatagram(t, not, 50*time.Millisecond); from.IsValid() {
					t.Errorf("%s, %s: a datagram is at the other backend", vip, when)
				}
				if _, err := to.WriteToUDPAddrPort([]byte("y"), client); err != nil {
					t.Fatal(err)
				}
				if from := waitDatagram(t, c, 2*time.Second); from != netip.AddrPortFrom(vip, 53) {
					t.Errorf("%s, %s: answered by %s", vip, when, from)
				}
			}
		}
		for range 2 {
			l.serve(t, l.datagramService(b))
			goes("at first", atB, atOther)
			l.serve(t, l.datagramService(other))
			if _, err := atB.WriteToUDPAddrPort([]byte("late"), client); err != nil {
				t.Fatal(err)
			}
			goes("the backend has gone, and answers late", atOther, atB)
			l.serve(t, l.datagramService(b))
			goes("it is back", atB, atOther)
		}
		l.serve(t)
	}
}
