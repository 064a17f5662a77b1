package hoststack

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// TestFloodOfQuestionsIsLimited: a container that floods the name server with questions is heard as
// often as it may ask, and another one is answered meanwhile.
func TestFloodOfQuestionsIsLimited(t *testing.T) {
	s := newSite(t)
	s.good()
	var heard [2]atomic.Int64 // of web, of all others
	server := netip.AddrPortFrom(s.want.Private.Addr, s.want.NameServer)
	socket := s.listenUDP(s.host, server)
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := socket.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if from.Addr() == web {
				heard[0].Add(1)
				continue
			}
			heard[1].Add(1)
			_, _ = socket.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	flood, asks := s.dialUDP(web, 53), s.dialUDP(other, 53)
	began := time.Now()
	const sent = 50 * serviceRequestBurst
	for i := range sent {
		if _, err := flood.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if i%serviceRequestBurst != 0 {
			continue
		}
		if _, err := asks.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		_ = asks.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := asks.Read(make([]byte, 10)); err != nil {
			t.Fatalf("another container is not answered while one floods: %v", err)
		}
	}
	may := serviceRequestBurst + int64(time.Since(began).Seconds()*serviceRequestsPerSecond) + 1
	if n := heard[0].Load(); n < serviceRequestBurst/2 || n > may {
		t.Errorf("of %d questions of one container %d are heard; may be at most %d", sent, n, may)
	}
	s.good() // the table is as wanted, and is not made again
}
