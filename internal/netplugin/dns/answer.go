package dns

import (
	"context"
	"encoding/hex"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	// localTTL is how long, in seconds, a resolver may cache a container's address,
	// or that a name does not exist: containers come and go.
	localTTL = 5
	// udpSize is the largest datagram sent and announced: one of this size passes
	// every path unfragmented (DNS flag day 2020).
	udpSize = 1232
	// minRecord is the length of the shortest record of an address (RFC 1035
	// section 4.1.3, its name being a pointer).
	minRecord = 16
)

// handler answers questions. The end of ctx ends the answering of questions under way.
type handler struct {
	*Server
	ctx context.Context
}

// ServeDNS implements dns.Handler.
func (h handler) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	defer func() {
		if p := recover(); p != nil { // one question must not take the host's agent along
			h.count.failures.Add(1)
			h.cfg.Log.Error("a question made the name server fail", "problem", p, "stack", string(debug.Stack()))
		}
	}()
	limit := sizeFor(w.RemoteAddr(), r)
	m := h.answer(w.RemoteAddr(), r, limit)
	if opt := r.IsEdns0(); opt != nil {
		m.SetEdns0(udpSize, opt.Do())
		if m.Rcode > 0xf {
			m.IsEdns0().SetExtendedRcode(uint16(m.Rcode))
		}
	}
	m.Truncate(limit)
	if err := w.WriteMsg(m); err != nil {
		h.cfg.Log.Debug("an answer cannot be sent", "to", w.RemoteAddr(), "error", err)
	}
}

// sizeFor is the largest size in octets of the answer to a message.
func sizeFor(from net.Addr, r *dns.Msg) int {
	if _, tcp := from.(*net.TCPAddr); tcp {
		return dns.MaxMsgSize
	}
	if opt := r.IsEdns0(); opt != nil {
		return min(max(int(opt.UDPSize()), dns.MinMsgSize), udpSize)
	}
	return dns.MinMsgSize
}

// answer makes the answer to a message, without EDNS. Of more local records than
// fit into limit octets it has all that fit and one more, so that the message is cut.
func (h handler) answer(from net.Addr, r *dns.Msg, limit int) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(r)
	m.RecursionAvailable = true
	fail := func(rcode int) *dns.Msg {
		m.Rcode = rcode
		return m
	}
	who, ok := h.names.asker(addrOf(from))
	if !ok {
		h.count.refused.Add(1)
		return fail(dns.RcodeRefused)
	}
	opts := 0
	for _, rr := range r.Extra {
		if rr.Header().Rrtype == dns.TypeOPT {
			opts++
		}
	}
	if len(r.Question) != 1 || opts > 1 { // RFC 6891 section 6.1.1
		h.count.malformed.Add(1)
		return fail(dns.RcodeFormatError)
	}
	h.count.queries.Add(1)
	if _, tcp := from.(*net.TCPAddr); tcp {
		h.count.tcp.Add(1)
	}
	q := r.Question[0]
	if opt := r.IsEdns0(); opt != nil && opt.Version() != 0 {
		h.count.refused.Add(1)
		return fail(dns.RcodeBadVers)
	}
	switch {
	case r.Opcode != dns.OpcodeQuery:
		h.count.refused.Add(1)
		return fail(dns.RcodeNotImplemented)
	case q.Qclass != dns.ClassINET, q.Qtype == dns.TypeAXFR, q.Qtype == dns.TypeIXFR, q.Qtype == dns.TypeMAILA,
		q.Qtype == dns.TypeMAILB, q.Qtype == dns.TypeOPT, q.Qtype == dns.TypeTSIG, q.Qtype == dns.TypeNone:
		h.count.refused.Add(1)
		return fail(dns.RcodeRefused)
	}
	if h.loop.isProbe(q.Name) {
		h.reportLoop()
		return fail(dns.RcodeServerFailure)
	}
	if h.local(who, q, m, limit) {
		h.count.local.Add(1)
		return m
	}
	return h.forward(h.ctx, who, h.chosen(from), r, m)
}

// addrOf is the source address of a question.
func addrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// local answers what belongs to the asker's tenant and tells whether it did.
func (h handler) local(who dnsClient, q dns.Question, m *dns.Msg, limit int) bool {
	name := strings.TrimSuffix(dns.CanonicalName(q.Name), ".")
	if addr, ok := parseReverse(name); ok {
		return h.localReverse(who, q, addr, m)
	}
	wanted := q.Qtype == dns.TypeA || q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY
	most := limit/minRecord + 1
	f := h.names.find(who, name, q.Qtype == dns.TypeAAAA, most)
	if !f.ours {
		return false
	}
	m.Authoritative = true
	if q.Qtype == dns.TypeSRV || q.Qtype == dns.TypeANY {
		h.putPorts(q, f, m)
	}
	if wanted {
		h.putAddrs(q, f.addrs, m)
		if q.Qtype == dns.TypeANY {
			h.putAddrs(q, h.names.find(who, name, true, most).addrs, m)
		}
	}
	if len(m.Answer) == 0 {
		h.negative(f.exists, f.apex, m)
	}
	return true
}

func (h handler) putAddrs(q dns.Question, addrs []netip.Addr, m *dns.Msg) {
	for _, a := range addrs {
		m.Answer = append(m.Answer, addrRecord(q.Name, a))
	}
}

func addrRecord(name string, a netip.Addr) dns.RR {
	hdr := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: localTTL}
	if a.Is4() {
		return &dns.A{Hdr: hdr, A: a.AsSlice()}
	}
	hdr.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: hdr, AAAA: a.AsSlice()}
}

// putPorts answers with where a service has the ports that were asked for (RFC 2782),
// its addresses beside.
func (h handler) putPorts(q dns.Question, f lookupResult, m *dns.Msg) {
	if len(f.ports) == 0 {
		return
	}
	target := dns.Fqdn(f.target)
	for _, p := range f.ports {
		m.Answer = append(m.Answer, &dns.SRV{
			Hdr:  dns.RR_Header{Name: q.Name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: localTTL},
			Port: p, Target: target,
		})
	}
	for _, a := range f.targets {
		m.Extra = append(m.Extra, addrRecord(target, a))
	}
}

// negative makes an answer without records: the name does not exist, or has no
// records of the type; the SOA says how long that may be cached (RFC 2308).
func (h handler) negative(exists bool, apex string, m *dns.Msg) {
	if exists {
		h.count.nodata.Add(1)
	} else {
		h.count.nxdomain.Add(1)
		m.Rcode = dns.RcodeNameError
	}
	apex = dns.Fqdn(apex)
	m.Ns = []dns.RR{&dns.SOA{
		Hdr: dns.RR_Header{Name: apex, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: localTTL},
		Ns:  apex, Mbox: "hostmaster." + apex, Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: localTTL,
	}}
}

func (h handler) localReverse(who dnsClient, q dns.Question, addr netip.Addr, m *dns.Msg) bool {
	names, ours := h.names.reverse(who, addr)
	if !ours {
		return false
	}
	m.Authoritative = true
	if q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY {
		for _, n := range names {
			m.Answer = append(m.Answer, &dns.PTR{
				Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: localTTL}, Ptr: dns.Fqdn(n),
			})
		}
	}
	if len(m.Answer) == 0 {
		h.negative(len(names) > 0, strings.TrimSuffix(dns.CanonicalName(q.Name), "."), m)
	}
	return true
}

// parseReverse reads the address of a name under in-addr.arpa (RFC 1035 section
// 3.5) or ip6.arpa (RFC 3596 section 2.5).
func parseReverse(name string) (netip.Addr, bool) {
	if s, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(s, ".")
		slices.Reverse(labels)
		a, err := netip.ParseAddr(strings.Join(labels, "."))
		return a, err == nil && a.Is4()
	}
	if s, ok := strings.CutSuffix(name, ".ip6.arpa"); ok {
		labels := strings.Split(s, ".")
		slices.Reverse(labels)
		b, err := hex.DecodeString(strings.Join(labels, ""))
		if err != nil || len(labels) != 32 || len(b) != 16 {
			return netip.Addr{}, false
		}
		return netip.AddrFrom16([16]byte(b)), true
	}
	return netip.Addr{}, false
}
