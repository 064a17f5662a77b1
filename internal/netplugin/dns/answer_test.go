package dns

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// outside answers what no test of local names may ask.
func outside(q *dns.Msg, _ bool) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeNameError) }

// TestLocalNamesAreAnswered: every kind of name, type and asker, over UDP and TCP.
func TestLocalNamesAreAnswered(t *testing.T) {
	up := newResolver(t, outside)
	b := serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	for _, tc := range []struct {
		from  netip.Addr
		name  string
		qtype uint16
		want  string
		apex  string // of the SOA in an answer without records
	}{
		{blue1, "w1", dns.TypeA, "NOERROR 10.1.0.1", ""},
		{blue1, "W1.", dns.TypeA, "NOERROR 10.1.0.1", ""},
		{blue1, "w1.blue", dns.TypeA, "NOERROR 10.1.0.1", ""},
		{blue1, "w1", dns.TypeAAAA, "NOERROR fd00::1", ""},
		{blue1, "w1", dns.TypeANY, "NOERROR 10.1.0.1 fd00::1", ""},
		{blue1, "w2", dns.TypeAAAA, "NOERROR", "w2."},
		{blue1, "w2.blue", dns.TypeAAAA, "NOERROR", "blue."},
		{blue1, "w2", dns.TypeMX, "NOERROR", "w2."},
		{blue1, "w9.blue", dns.TypeA, "NXDOMAIN", "blue."},
		{blue1, "blue", dns.TypeA, "NOERROR", "blue."},
		{blue1, "web", dns.TypeA, "NOERROR 10.1.0.1 10.1.0.2 10.1.0.3", ""},
		{blue1, "d.1", dns.TypeA, "NOERROR 10.1.0.6", ""},
		{blue1, "db", dns.TypeA, "NOERROR 10.1.0.100", ""}, // the service before the group
		{blue1, "two", dns.TypeA, "NOERROR 10.1.0.4", ""},  // the one on the asker's network
		{blue2, "two", dns.TypeA, "NOERROR 10.2.0.4", ""},
		{red1, "r1", dns.TypeA, "NOERROR 10.1.0.1", ""},
		{red1, "two.red", dns.TypeA, "NXDOMAIN", "red."},
		{blue1, "1.0.1.10.in-addr.arpa", dns.TypePTR, "NOERROR w1.blue.", ""},
		{red1, "1.0.1.10.in-addr.arpa", dns.TypePTR, "NOERROR r1.red.", ""},
		{blue1, "100.0.1.10.in-addr.arpa", dns.TypePTR, "NOERROR db.blue.", ""},
		{blue1, "77.0.1.10.in-addr.arpa", dns.TypePTR, "NXDOMAIN", "77.0.1.10.in-addr.arpa."},
		{blue1, "1.0.1.10.in-addr.arpa", dns.TypeA, "NOERROR", "1.0.1.10.in-addr.arpa."},
		{blue1, "6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa", dns.TypePTR, "NOERROR six.blue.", ""},
	} {
		for _, network := range []string{"udp", "tcp"} {
			m := b.ask(network, tc.from, tc.name, tc.qtype)
			what := fmt.Sprintf("%s from %s over %s, type %s", tc.name, tc.from, network, dns.TypeToString[tc.qtype])
			if got := text(m); got != tc.want {
				t.Errorf("%s: %s, want %s", what, got, tc.want)
			}
			if !m.Authoritative || !m.RecursionAvailable || m.Truncated {
				t.Errorf("%s: flags are wrong: %v", what, m.MsgHdr)
			}
			apex := ""
			for _, rr := range m.Ns {
				apex = rr.Header().Name
				if soa := rr.(*dns.SOA); soa.Minttl != localTTL || soa.Hdr.Ttl != localTTL {
					t.Errorf("%s: %s", what, soa)
				}
			}
			if apex != tc.apex {
				t.Errorf("%s: SOA of %q, want %q", what, apex, tc.apex)
			}
			for _, rr := range m.Answer {
				if rr.Header().Ttl != localTTL || rr.Header().Name != m.Question[0].Name {
					t.Errorf("%s: %s", what, rr)
				}
			}
		}
	}
	if n := up.asked(); n != 0 {
		t.Errorf("the resolver was asked %d times: %q", n, up.seen)
	}
	if s := b.Stats(); s.Queries != s.Local || s.TCP != s.Queries/2 || s.NXDomain != 6 || s.NoData != 10 {
		t.Errorf("counters: %+v", s)
	}
}

// TestSRVRecordsHaveServicePorts: SRV records have a service's ports, by number and by name, with its
// addresses. Other names of that form do not exist.
func TestSRVRecordsHaveServicePorts(t *testing.T) {
	up := newResolver(t, outside)
	b := serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	for _, tc := range []struct {
		name  string
		qtype uint16
		want  string // without the name asked for and the TTL
	}{
		{"_http._tcp.db", dns.TypeSRV, "NOERROR 0 0 80 db.blue. + 10.1.0.100"},
		{"_HTTP._TCP.DB.Blue", dns.TypeSRV, "NOERROR 0 0 80 db.blue. + 10.1.0.100"},
		{"_80._tcp.db.blue", dns.TypeSRV, "NOERROR 0 0 80 db.blue. + 10.1.0.100"},
		{"_443._tcp.db", dns.TypeANY, "NOERROR 0 0 443 db.blue. + 10.1.0.100"},
		{"_http._udp.shop.eu", dns.TypeSRV, "NOERROR 0 0 81 shop.eu.blue. + 10.1.0.101 fd00::101"},
		{"_http._tcp.db", dns.TypeA, "NOERROR"},
		{"_80._udp.db", dns.TypeSRV, "NXDOMAIN"},
		{"_ftp._tcp.db.blue", dns.TypeSRV, "NXDOMAIN"},
		{"_._tcp.db", dns.TypeSRV, "NXDOMAIN"},
		{"db", dns.TypeSRV, "NOERROR"},
		{"_http._tcp.web.blue", dns.TypeSRV, "NXDOMAIN"}, // a group's
	} {
		m := b.ask("udp", blue1, tc.name, tc.qtype)
		parts := []string{dns.RcodeToString[m.Rcode]}
		for _, rr := range m.Answer {
			if s, ok := rr.(*dns.SRV); ok {
				parts = append(parts, fmt.Sprint(s.Priority, s.Weight, s.Port), s.Target)
			} else {
				parts = append(parts, rr.String())
			}
		}
		for i, rr := range m.Extra {
			if i == 0 {
				parts = append(parts, "+")
			}
			switch rr := rr.(type) {
			case *dns.A:
				parts = append(parts, rr.A.String())
			case *dns.AAAA:
				parts = append(parts, rr.AAAA.String())
			}
		}
		got := strings.Join(parts, " ")
		if got != tc.want || !m.Authoritative {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if up.asked() != 0 {
		t.Errorf("the resolver was asked %q", up.seen)
	}
	// Similar names that are no service's go to the resolvers, another tenant's too.
	b.ask("udp", blue1, "_http._tcp.example.com", dns.TypeSRV)
	b.ask("udp", red1, "_http._tcp.db", dns.TypeSRV)
	if up.asked() != 2 {
		t.Errorf("the resolver was asked %q", up.seen)
	}
}

// TestNamesOfOtherTenantsAreForwarded: names and addresses of another tenant are unknown, so the query goes to the
// host's resolvers, whatever the name's form. A client that is no local port is refused.
func TestNamesOfOtherTenantsAreForwarded(t *testing.T) {
	up := newResolver(t, outside)
	b := serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	for _, name := range []string{"secret", "r1", "r1.red", "secret.red", "red", "r1.red.blue2"} {
		if got := text(b.ask("udp", blue1, name, dns.TypeA)); got != "NXDOMAIN" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if n := up.asked(); n != 6 {
		t.Errorf("the resolver was asked %d times, not 6: %q", n, up.seen)
	}
	if got := text(b.ask("udp", nobody, "w1", dns.TypeA)); got != "REFUSED" {
		t.Errorf("a stranger is told %s", got)
	}
	if _, err := b.query("tcp", nobody, new(dns.Msg).SetQuestion("w1.", dns.TypeA)); err == nil {
		t.Error("a stranger is answered over TCP")
	}
	if s := b.Stats(); s.Refused != 1 || s.Local != 0 {
		t.Errorf("counters: %+v", s)
	}
}

// TestEveryMemberComesFirstSometimes: every member of a group comes first some time.
func TestEveryMemberComesFirstSometimes(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	first := map[string]bool{}
	for i := 0; i < 1000 && len(first) < 3; i++ {
		first[b.ask("udp", blue1, "web", dns.TypeA).Answer[0].(*dns.A).A.String()] = true
	}
	if len(first) != 3 {
		t.Errorf("in 1000 answers only %v came first", first)
	}
}

// TestNamesFollowTheDesiredState: names and askers follow the desired state, and nothing stays of a name, an
// address or a port that went.
func TestNamesFollowTheDesiredState(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	h := twoTenants()
	for k, r := range h.DNS.Records.All() {
		if r.Name == "w1" {
			renamed := *r
			renamed.Name = "new"
			h.DNS.Records = h.DNS.Records.Set(k, &renamed)
		}
		if r.Name == "w2" {
			h.DNS.Records = h.DNS.Records.Delete(k)
		}
	}
	// Two ports exchange their addresses.
	one, _ := h.Ports.Get("cv" + blue1.String())
	other, _ := h.Ports.Get("cv" + red1.String())
	a, c := *one, *other
	a.Private, c.Private = c.Private, a.Private
	h.Ports = h.Ports.Set(a.IfName, &a).Set(c.IfName, &c)
	b.Update(h)
	for name, want := range map[string]string{
		"new.blue": "NOERROR 10.1.0.1", "w1.blue": "NXDOMAIN", "w2.blue": "NXDOMAIN", "web.blue": "NOERROR 10.1.0.1 10.1.0.3",
		"1.0.1.10.in-addr.arpa": "NOERROR new.blue.", "2.0.1.10.in-addr.arpa": "NXDOMAIN",
	} {
		qtype := dns.TypeA
		if strings.HasSuffix(name, "arpa") {
			qtype = dns.TypePTR
		}
		if got := text(b.ask("udp", red1, name, qtype)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	b.Update(desired.Host{})
	if len(b.names.zones) != 0 || len(b.names.askers) != 0 || len(b.Names()) != 0 {
		t.Errorf("left: %v %v", b.names.zones, b.names.askers)
	}
	if got := text(b.ask("udp", red1, "new.blue", dns.TypeA)); got != "REFUSED" {
		t.Errorf("after all has gone: %s", got)
	}
}

// TestNamesListsAllTenants: Names lists the names of all tenants, with their kinds and addresses.
func TestNamesListsAllTenants(t *testing.T) {
	s := New(Config{})
	s.Update(twoTenants())
	addrs := func(texts ...string) []netip.Addr {
		out := []netip.Addr{}
		for _, a := range texts {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	want := []Name{
		{"Blue", "d.1", "container", addrs("10.1.0.6")},
		{"Blue", "six", "container", addrs("fd00::6")},
		{"Blue", "two", "container", addrs("10.1.0.4", "10.2.0.4")},
		{"Blue", "w1", "container", addrs("10.1.0.1", "fd00::1")},
		{"Blue", "w2", "container", addrs("10.1.0.2")},
		{"Blue", "w3", "container", addrs("10.1.0.3")},
		{"Blue", "web", "container", addrs("10.1.0.5")},
		{"Blue", "db", "group", addrs("10.1.0.6")},
		{"Blue", "web", "group", addrs("10.1.0.1", "10.1.0.2", "10.1.0.3", "fd00::1")},
		{"Blue", "db", "service", addrs("10.1.0.100")},
		{"Blue", "shop.eu", "service", addrs("10.1.0.101", "fd00::101")},
		{"red", "r1", "container", addrs("10.1.0.1")},
		{"red", "secret", "group", addrs("10.1.0.1")},
	}
	if diff := cmp.Diff(want, s.Names(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnswersAreAsLongAsTheClientAllows: an answer is as long as the asker takes it, says when it was cut,
// and is whole over TCP.
func TestAnswersAreAsLongAsTheClientAllows(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	h := twoTenants()
	const members = 200
	for i := range members {
		n := askedBy[blue1]
		h.DNS.Records = h.DNS.Records.Set(
			desired.DNSKey{Endpoint: model.EndpointKey{Network: n, ID: model.EndpointID(strconv.Itoa(i))}},
			&desired.DNSRecord{Network: n, Group: "many", IPv4: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})})
	}
	b.Update(h)
	for _, tc := range []struct {
		network string
		edns    uint16 // 0 = none
		limit   int
		whole   bool
	}{
		{"udp", 0, 512, false},
		{"udp", 100, 512, false},
		{"udp", 1000, 1000, false},
		{"udp", 4096, udpSize, false},
		{"tcp", 0, dns.MaxMsgSize, true},
		{"tcp", 4096, dns.MaxMsgSize, true},
	} {
		q := new(dns.Msg).SetQuestion("many.", dns.TypeA)
		if tc.edns > 0 {
			q.SetEdns0(tc.edns, true)
		}
		m, err := b.query(tc.network, blue1, q)
		if err != nil {
			t.Fatal(err)
		}
		m.Compress = true
		if m.Truncated == tc.whole || (len(m.Answer) == members) != tc.whole || m.Len() > tc.limit || m.Len() < tc.limit-100 && !tc.whole {
			t.Errorf("%+v: %d records in %d octets, truncated %v", tc, len(m.Answer), m.Len(), m.Truncated)
		}
		if opt := m.IsEdns0(); (opt != nil) != (tc.edns > 0) || opt != nil && (opt.UDPSize() != udpSize || !opt.Do()) {
			t.Errorf("%+v: EDNS %v", tc, opt)
		}
	}
}

// TestUnservedQuestionsGetTheirCode: a message that is no question served here gets the code that says
// why.
func TestUnservedQuestionsGetTheirCode(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	for name, tc := range map[string]struct {
		edit func(*dns.Msg)
		want int
	}{
		"class":       {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"transfer":    {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		"opcode":      {func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }, dns.RcodeNotImplemented},
		"notify":      {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"update":      {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"two":         {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"none":        {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"EDNS 1":      {func(m *dns.Msg) { m.SetEdns0(512, false).IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"two options": {func(m *dns.Msg) { m.SetEdns0(512, false).SetEdns0(512, false) }, dns.RcodeFormatError},
	} {
		for _, network := range []string{"udp", "tcp"} {
			q := new(dns.Msg).SetQuestion("w1.", dns.TypeA)
			tc.edit(q)
			m, err := b.query(network, blue1, q)
			if err != nil {
				t.Errorf("%s over %s: %v", name, network, err)
			} else if m.Rcode != tc.want || len(m.Answer) > 0 {
				t.Errorf("%s over %s: %s, want %s", name, network, dns.RcodeToString[m.Rcode], dns.RcodeToString[tc.want])
			}
		}
	}
	if got := text(b.ask("udp", blue1, "w1", dns.TypeA)); got != "NOERROR 10.1.0.1" {
		t.Errorf("after all that: %s", got)
	}
}

// TestMalformedQuestionsAreCounted: garbage gets FORMERR or silence, is counted, and the next
// question is answered.
func TestMalformedQuestionsAreCounted(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	whole, err := new(dns.Msg).SetQuestion("w1.blue.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: blue1.AsSlice()}}
	c, err := d.DialContext(t.Context(), "udp", b.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // a test's end
	for i := range whole {
		_, err := c.Write(whole[:i])
		pointer := append(append([]byte{}, whole[:12]...), 0xc0, 12, 0, 1, 0, 1) // a name that points to itself
		if _, err2 := c.Write(pointer); err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
	}
	if _, err := c.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 512); ; {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg)
		if err := m.Unpack(buf[:n]); err != nil {
			t.Fatalf("the answer %x: %v", buf[:n], err)
		}
		if m.Rcode == dns.RcodeSuccess {
			break
		}
		if m.Rcode != dns.RcodeFormatError && m.Rcode != dns.RcodeRefused { // without its end the question has class 0
			t.Errorf("garbage gets %s", dns.RcodeToString[m.Rcode])
		}
	}
	if s := b.Stats(); s.Malformed == 0 || s.Local != 1 {
		t.Errorf("counters: %+v", s)
	}
}

// TestOneContainerCannotTakeAllConnections: one container cannot take all TCP connections.
func TestOneContainerCannotTakeAllConnections(t *testing.T) {
	b := serve(t, Config{Upstreams: []netip.AddrPort{}})
	open := func() *dns.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: blue1.AsSlice()}}).DialContext(t.Context(), "tcp", b.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return &dns.Conn{Conn: c}
	}
	works := func(c *dns.Conn) bool {
		if c.WriteMsg(new(dns.Msg).SetQuestion("w1.", dns.TypeA)) != nil {
			return false
		}
		m, err := c.ReadMsg()
		return err == nil && text(m) == "NOERROR 10.1.0.1"
	}
	var all []*dns.Conn
	defer func() {
		for _, c := range all {
			_ = c.Close() // a test's end
		}
	}()
	for i := range maxConnsPerClient {
		c := open()
		all = append(all, c)
		if !works(c) {
			t.Fatalf("connection %d does not work", i)
		}
	}
	more := open()
	all = append(all, more)
	if works(more) {
		t.Error("one container has a connection too many")
	}
	if got := text(b.ask("tcp", blue2, "w1", dns.TypeA)); got != "NOERROR 10.1.0.1" {
		t.Errorf("another container is told %s", got)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; { // until the server has seen it
		c := open()
		ok := works(c)
		_ = c.Close() // one of many
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a connection that was closed still counts")
		}
	}
}
