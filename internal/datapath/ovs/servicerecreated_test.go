package ovs

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRecreatedServiceResetsOldConnections: when a service was gone for a while, a client that speaks in a
// connection of then is reset at once, as the backend is, which has spoken meanwhile.
func TestRecreatedServiceResetsOldConnections(t *testing.T) {
	l := newServed(t)
	a, b := l.boxes[0], l.boxes[1]
	for i, v6 := range []bool{false, true} {
		s := l.served(200, b)
		vip, port := s.IPv4, 8081+i
		if v6 {
			vip = s.IPv6
		}
		s.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: uint16(port)}}
		accepted := l.acceptOne(t, b, fmt.Sprint(":", port))
		l.serve(t, s)
		client, err := l.dial(t, a, vip, 80, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server := <-accepted
		defer server.Close()
		ends := func(who string, c net.Conn) {
			t.Helper()
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the %s's end of a connection of the former service: %v, want it reset:\n%s", vip, who, err, l.Appctl("dpctl/dump-conntrack"))
			}
		}
		l.serve(t)
		if _, err := server.Write([]byte("b")); err != nil {
			t.Fatal(err)
		}
		ends("backend", server)
		l.serve(t, s)
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		ends("client", client)
	}
}
