package dns

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// writer keeps the answer to a question.
type writer struct {
	dns.ResponseWriter
	from net.Addr
	m    *dns.Msg
}

func (w *writer) RemoteAddr() net.Addr { return w.from }

func (w *writer) WriteMsg(m *dns.Msg) error {
	w.m = m
	return nil
}

func udpFrom(a netip.Addr) net.Addr { return &net.UDPAddr{IP: a.AsSlice()} }

// FuzzQuestion: no message makes the server fail, every answer can be sent, is
// the answer to its question, is as long as the asker takes it, and holds
// nothing of another tenant.
func FuzzQuestion(f *testing.F) {
	add := func(name string, qtype uint16, edit func(*dns.Msg)) {
		m := new(dns.Msg).SetQuestion(name, qtype)
		if edit != nil {
			edit(m)
		}
		wire, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, false)
		f.Add(wire, true)
	}
	add("web.blue.", dns.TypeA, nil)
	add("secret.red.", dns.TypeANY, nil)
	add("1.0.1.10.in-addr.arpa.", dns.TypePTR, nil)
	add("example.com.", dns.TypeHTTPS, func(m *dns.Msg) { m.SetEdns0(4096, true) })
	add("w1.", dns.TypeAAAA, func(m *dns.Msg) { m.SetEdns0(1, false).IsEdns0().SetVersion(3) })
	s := New(Config{Upstreams: []netip.AddrPort{}, Log: discard})
	s.Update(twoTenants())
	f.Fuzz(func(t *testing.T, wire []byte, tcp bool) {
		q := new(dns.Msg)
		if q.Unpack(wire) != nil || s.accept(dns.Header{
			Qdcount: uint16(len(q.Question)), Ancount: uint16(len(q.Answer)), Nscount: uint16(len(q.Ns)), Arcount: uint16(len(q.Extra)),
		}) != dns.MsgAccept {
			return // the library answers those
		}
		w := &writer{from: udpFrom(blue1)}
		limit := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			limit = udpSize
		}
		if tcp {
			w.from, limit = &net.TCPAddr{IP: blue1.AsSlice()}, dns.MaxMsgSize
		}
		id := q.Id
		handler{s, t.Context()}.ServeDNS(w, q)
		if w.m == nil {
			t.Fatal("no answer: it failed")
		}
		out, err := w.m.Pack()
		if err != nil {
			t.Fatalf("the answer cannot be sent: %v\n%v", err, w.m)
		}
		if len(out) > limit || w.m.Id != id || !w.m.Response {
			t.Fatalf("%d octets, at most %d: %v", len(out), limit, w.m)
		}
		for _, rr := range append(w.m.Answer, w.m.Ns...) {
			if text := strings.ToLower(rr.String()); strings.Contains(text, "r1.red") {
				t.Fatalf("another tenant's name: %s", text)
			}
		}
	})
}
