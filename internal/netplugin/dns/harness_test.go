package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Who asks in the tests: local ports, by their private addresses. Loopback has
// all of 127.0.0.0/8, so that each is a source address of its own.
var (
	blue1   = netip.MustParseAddr("127.0.1.1") // of blue, on n1
	blue2   = netip.MustParseAddr("127.0.1.2") // of blue, on n2
	red1    = netip.MustParseAddr("127.0.2.1") // of red, on n1
	nobody  = netip.MustParseAddr("127.0.3.1")
	askedBy = map[netip.Addr]model.NetworkKey{
		blue1: {Tenant: "Blue", Name: "n1"}, blue2: {Tenant: "Blue", Name: "n2"}, red1: {Tenant: "red", Name: "n1"},
	}
)

// twoTenants is a host with the names of two tenants that have the same addresses.
func twoTenants() desired.Host {
	var h desired.Host
	for a, n := range askedBy {
		p := &desired.Port{IfName: "cv" + a.String(), Endpoint: model.EndpointKey{Network: n, ID: "x"}, Private: a}
		h.Ports = h.Ports.Set(p.IfName, p)
		h.DNS.Networks = h.DNS.Networks.Set(n, &desired.DNSNetwork{
			Subnet: netip.MustParsePrefix(map[model.NetworkName]string{"n1": "10.1.0.0/24", "n2": "10.2.0.0/24"}[n.Name]),
		})
	}
	add := func(tenant, network, service, group, name, v4, v6 string) {
		r := &desired.DNSRecord{
			Network: model.NetworkKey{Tenant: model.TenantName(tenant), Name: model.NetworkName(network)},
			Service: service, Group: group, Name: name,
		}
		if v4 != "" {
			r.IPv4 = netip.MustParseAddr(v4)
		}
		if v6 != "" {
			r.IPv6 = netip.MustParseAddr(v6)
		}
		k := desired.DNSKey{Service: model.ServiceKey{Tenant: r.Network.Tenant, Name: service}}
		if service == "" {
			k = desired.DNSKey{Endpoint: model.EndpointKey{Network: r.Network, ID: model.EndpointID(name + v4 + v6)}}
		}
		h.DNS.Records = h.DNS.Records.Set(k, r)
	}
	add("Blue", "n1", "", "web", "w1", "10.1.0.1", "fd00::1")
	add("Blue", "n1", "", "web", "w2", "10.1.0.2", "")
	add("Blue", "n1", "", "web", "w3", "10.1.0.3", "")
	add("Blue", "n1", "", "", "two", "10.1.0.4", "")
	add("Blue", "n2", "", "", "two", "10.2.0.4", "")
	add("Blue", "n1", "", "", "web", "10.1.0.5", "") // a container that calls itself as a group
	add("Blue", "n1", "db", "", "", "10.1.0.100", "")
	add("Blue", "n1", "shop.eu", "", "", "10.1.0.101", "fd00::101")
	for _, key := range []string{"db", "shop.eu"} {
		k := desired.DNSKey{Service: model.ServiceKey{Tenant: "Blue", Name: key}}
		r, _ := h.DNS.Records.Get(k)
		r.Ports = []desired.ServicePort{
			{Protocol: model.ProtoTCP, Name: "http", Port: 80, Backend: 8080},
			{Protocol: model.ProtoTCP, Port: 443, Backend: 8443},
			{Protocol: model.ProtoUDP, Name: "http", Port: 81, Backend: 8081},
		}
	}
	add("Blue", "n1", "", "db", "d.1", "10.1.0.6", "")
	add("Blue", "n2", "", "", "six", "", "fd00::6")
	add("red", "n1", "", "secret", "r1", "10.1.0.1", "")
	return h
}

// resolver is a fake resolver of the host.
type resolver struct {
	addr netip.AddrPort
	mu   sync.Mutex
	seen []string
}

// answers makes what a resolver answers; nil = it stays silent.
type answers func(r *dns.Msg, tcp bool) *dns.Msg

func newResolver(t *testing.T, f answers) *resolver {
	t.Helper()
	return newResolverAt(t, "127.0.0.1:0", f)
}

func newResolverAt(t *testing.T, at string, f answers) *resolver {
	t.Helper()
	l, err := Listen(t.Context(), netip.MustParseAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	r := &resolver{addr: l.Addr()}
	for _, srv := range []*dns.Server{{PacketConn: l.UDP}, {Listener: l.TCP}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		srv.UDPSize = 4096
		srv.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			_, tcp := w.RemoteAddr().(*net.TCPAddr)
			r.mu.Lock()
			r.seen = append(r.seen, fmt.Sprint(strings.ToLower(q.Question[0].Name), " ", dns.TypeToString[q.Question[0].Qtype], " ", tcp))
			r.mu.Unlock()
			if m := f(q, tcp); m != nil {
				_ = w.WriteMsg(m)
			}
		})
		done := make(chan error, 1)
		go func() { done <- srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = srv.Shutdown()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return r
}

// asked is how often the resolver was asked, without a loop's probes.
func (r *resolver) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(r.seen), func(s string) bool { return strings.Contains(s, loopSuffix) }))
}

func outsideA(q *dns.Msg, ttl uint32) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.IPv4(192, 0, 2, 7)}}
	return m
}

func outsideNone(q *dns.Msg, ttl, minimum uint32) *dns.Msg {
	m := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
	m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: "example.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl}, Ns: "a.", Mbox: "b.", Minttl: minimum}}
	return m
}

// bed is a server that serves on loopback.
type bed struct {
	t *testing.T
	*Server
	addr  netip.AddrPort
	clock *clock
}

var discard = slog.New(slog.DiscardHandler)

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func serve(t *testing.T, cfg Config) *bed {
	t.Helper()
	cl := &clock{t: time.Unix(1e9, 0)}
	cfg.Log, cfg.now = discard, cl.now
	b := &bed{t: t, Server: New(cfg), clock: cl}
	b.Update(twoTenants())
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	serving := func() bool {
		b.upstreams.mu.Lock()
		defer b.upstreams.mu.Unlock()
		return len(b.upstreams.self) > 0
	}
	for deadline := time.Now().Add(time.Minute); !serving(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not begin to serve")
		}
	}
	return b
}

// query asks over the network "udp" or "tcp" from a source address.
func (b *bed) query(network string, from netip.Addr, m *dns.Msg) (*dns.Msg, error) {
	b.t.Helper()
	d := &net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	c := dns.Client{Net: network, Dialer: d, Timeout: 10 * time.Second}
	r, _, err := c.ExchangeContext(b.t.Context(), m, b.addr.String())
	return r, err
}

func (b *bed) ask(network string, from netip.Addr, name string, qtype uint16) *dns.Msg {
	b.t.Helper()
	r, err := b.query(network, from, new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype))
	if err != nil {
		b.t.Fatalf("%s from %s for %s: %v", network, from, name, err)
	}
	return r
}

// text is an answer in short: the code and the sorted data of its records.
func text(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		f := strings.Fields(rr.String())
		out = append(out, f[len(f)-1])
	}
	slices.Sort(out)
	return strings.Join(append([]string{dns.RcodeToString[m.Rcode]}, out...), " ")
}
