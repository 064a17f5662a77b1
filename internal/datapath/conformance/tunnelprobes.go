package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testTunnelProbes: the data plane answers probes of known hosts without an agent, with as
// many bytes, and hands answers to its own probes over. It answers no other source, and no
// container can send, receive or forge a probe.
func testTunnelProbes(t *testing.T, h Harness) {
	t.Helper()
	top, b := floodingHost(t, h)
	web1 := top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: "web1"})
	vx := top.Network(web1.Key.Network).ID
	h2 := top.vtep("h2")
	port := reference.Packet{Port: compile.IfName(web1.Key)}
	prober := b.drv.Capabilities().TunnelProber
	answers := prober.ProbeAnswers()
	answered := func(nonce uint64) bool { // lately
		for {
			select {
			case got := <-answers:
				if got == nonce {
					return true
				}
			default:
				return false
			}
		}
	}
	nonce := uint64(1 << 60)
	outer := func(frames map[string][][]byte, nonce uint64) (dst netip.Addr, inner []byte) {
		mark := driver.ProbeFrame(nonce, 0)[12:26]
		for _, all := range frames {
			for _, f := range all {
				if to, vni, in, ok := Unwrap(f, TunnelPort); ok && vni == driver.ProbeVNI && len(in) > 26 && bytes.Equal(in[12:26], mark) {
					dst, inner = to, in
				}
			}
		}
		return dst, inner
	}
	// send sends a frame, and then a request that is answered, by which it is seen that
	// the frame is through. It returns what came out.
	send := func(from reference.Packet, frame []byte) map[string][][]byte {
		t.Helper()
		nonce++
		last := nonce
		return b.Frames(t, []reference.Packet{from, {VTEP: h2}}, [][]byte{frame, driver.ProbeFrame(last, 0)}, func(came map[string][][]byte) bool {
			_, in := outer(came, last)
			return in != nil
		})
	}
	asAnswer := func(f []byte) []byte { copy(f, driver.ProbeAnswerMAC[:]); return f }
	goesNowhere := func(name string, from reference.Packet, frame []byte) {
		t.Helper()
		for at, all := range send(from, frame) {
			for _, f := range all {
				if bytes.Contains(f, frame[12:26]) {
					t.Errorf("%s: it came out at %q", name, at)
				}
			}
		}
		if answered(nonceOf(frame)) {
			t.Errorf("%s: it counts as an answer", name)
		}
	}
	for _, size := range []int{0, 1400} {
		nonce++
		request := driver.ProbeFrame(nonce, size)
		dst, inner := outer(send(reference.Packet{VTEP: h2}, request), nonceOf(request))
		if got, ok := driver.ReadProbeAnswer(inner); dst != h2 || !ok || got != nonceOf(request) || len(inner) != len(request) {
			t.Errorf("size %d: the answer goes to %s: %x", size, dst, inner)
		}
		for name, from := range map[string]reference.Packet{
			"a request of nobody": {VTEP: otherHostAddr}, "a request in this host's name": {VTEP: top.Hosts[0].VTEP}, "a request of a container": port,
			"a request on a network": {VTEP: h2, Network: vx}, "a request by the uplink": {Uplink: true, VLAN: 7},
		} {
			nonce++
			goesNowhere(fmt.Sprint(name, ", size ", size), from, driver.ProbeFrame(nonce, size))
			nonce++
			goesNowhere(fmt.Sprint(name, ", an answer, size ", size), from, asAnswer(driver.ProbeFrame(nonce, size)))
		}
		nonce++
		answer := asAnswer(driver.ProbeFrame(nonce, size))
		for at, all := range send(reference.Packet{VTEP: h2}, answer) {
			for _, f := range all {
				if bytes.Contains(f, answer[12:26]) {
					t.Errorf("an answer came out at %q", at)
				}
			}
		}
		for end := time.Now().Add(framesWait); !answered(nonceOf(answer)); <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("size %d: no answer is handed over", size)
			}
		}
		nonce++
		mine := nonce
		sent := false
		b.Frames(t, nil, nil, func(came map[string][][]byte) bool {
			if !sent {
				err := prober.Probe(h2, mine, size)
				if sent = err == nil; !sent && !errors.Is(err, model.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			dst, inner := outer(came, mine)
			return dst == h2 && bytes.Equal(inner, driver.ProbeFrame(mine, size))
		})
	}
	web := driver.ProbeFrame(1<<61, 0) // as what ports of the network get
	web = append(append([]byte{}, web1.MAC[:]...), web[6:]...)
	goesNowhere("a probe to a container", reference.Packet{VTEP: h2}, web)

	b.close(t)
	send(reference.Packet{VTEP: h2}, driver.ProbeFrame(1<<62, 0)) // while there is no agent
	b.restart(t)
}

// nonceOf is the nonce of a probe.
func nonceOf(f []byte) (nonce uint64) {
	for _, x := range f[18:26] {
		nonce = nonce<<8 | uint64(x)
	}
	return nonce
}
