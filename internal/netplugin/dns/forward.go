package dns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// The bounds of forwarding. A container's resolver gives up after 4 to 5 s
// (Docker's, the C library's): the failure should reach it before.
const (
	tryTimeout   = 1200 * time.Millisecond // one resolver, once
	totalTimeout = 3600 * time.Millisecond
	rounds       = 2
	maxForwards  = 512 // questions under way
	maxPerClient = 64  // questions under way of one container
)

// chosen is the server that the sender of a question chose for itself, as by
// `docker run --dns`; zero if that is not known, is this server, or is one of the
// host's resolvers.
func (h handler) chosen(from net.Addr) netip.AddrPort {
	if h.cfg.Asked == nil {
		return netip.AddrPort{}
	}
	var who netip.AddrPort
	switch a := from.(type) {
	case *net.UDPAddr:
		who = a.AddrPort()
	case *net.TCPAddr:
		who = a.AddrPort()
	}
	who = netip.AddrPortFrom(who.Addr().Unmap(), who.Port())
	at := h.upstreams.listenAddress(who.Addr())
	to, err := h.cfg.Asked(from.Network(), who, at)
	if err != nil {
		h.cfg.Log.Debug("the server that a query was sent to is unknown: the host's resolvers are asked", "error", err)
		return netip.AddrPort{}
	}
	if to.Addr() == at.Addr() || to.Addr() == desired.RouterAddr || h.upstreams.isUpstream(to.Addr()) {
		return netip.AddrPort{}
	}
	return to
}

// forward answers from the cache or asks resolvers, the chosen one first if there
// is one. m is the reply to r as far as it is known.
func (h handler) forward(ctx context.Context, who dnsClient, chosen netip.AddrPort, r, m *dns.Msg) *dns.Msg {
	opt := r.IsEdns0()
	q := question{
		server: chosen,
		name:   dns.CanonicalName(r.Question[0].Name), qtype: r.Question[0].Qtype,
		dnssec: opt != nil && opt.Do(), cd: r.CheckingDisabled,
	}
	got := h.cache.get(q)
	if got != nil {
		h.count.cacheHits.Add(1)
	} else {
		if !h.underWay.begin(who.addr) {
			h.count.limited.Add(1)
			m.Rcode = dns.RcodeServerFailure
			return m
		}
		got = h.askOnce(ctx, q)
		h.underWay.end(who.addr)
	}
	if got == nil {
		m.Rcode = dns.RcodeServerFailure
		return m
	}
	m.Rcode, m.CheckingDisabled = got.Rcode, r.CheckingDisabled
	m.AuthenticatedData = got.AuthenticatedData && (q.dnssec || r.AuthenticatedData)
	m.Answer, m.Ns, m.Extra = got.Answer, got.Ns, got.Extra
	return m
}

// askOnce asks the resolvers, or waits for the answer if the same question is
// under way already, so that many askers, or a loop, cost one exchange. The
// answer is a copy for the caller; nil = no resolver answered.
func (h handler) askOnce(ctx context.Context, q question) *dns.Msg {
	v, err, shared := h.flights.Do(fmt.Sprint(q), func() (any, error) {
		h.count.forwarded.Add(1)
		m, err := h.ask(ctx, q)
		if err != nil {
			h.count.failures.Add(1)
			h.cfg.Log.Debug("a DNS query is not answered", "name", q.name, "type", dns.TypeToString[q.qtype], "error", err)
			h.probeLoop(ctx)
			return nil, err
		}
		h.cache.put(q, m)
		return m, nil
	})
	if err != nil {
		return nil
	}
	m := v.(*dns.Msg)
	if shared {
		m = m.Copy()
	}
	return m
}

// ask asks the resolvers in order until one gives an answer.
func (h handler) ask(ctx context.Context, q question) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	list := h.upstreams.get()
	if q.server.IsValid() { // an engine that finds no resolver for its containers names a public one, out of reach or not
		list = slices.Concat([]netip.AddrPort{q.server}, list)
	}
	if len(list) == 0 {
		return nil, errors.New("no resolver is known")
	}
	var why error
	for range rounds {
		for _, to := range list {
			m, err := h.exchange(ctx, q, to)
			if err == nil {
				return m, nil
			}
			why = fmt.Errorf("resolver %s: %w", to, err)
			if ctx.Err() != nil {
				return nil, why
			}
		}
	}
	return nil, why
}

// exchange asks one resolver: by UDP, by TCP if the answer is too long for UDP,
// and without EDNS if the resolver does not understand EDNS.
func (h handler) exchange(ctx context.Context, q question, to netip.AddrPort) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r := new(dns.Msg)
	r.SetQuestion(q.name, q.qtype)
	r.SetEdns0(udpSize, q.dnssec)
	r.CheckingDisabled, r.AuthenticatedData = q.cd, true
	c := dns.Client{Net: "udp", UDPSize: udpSize}
	m, err := roundTrip(ctx, c, r, to)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) && r.IsEdns0() != nil {
		r.Extra = nil
		m, err = roundTrip(ctx, c, r, to)
	}
	if err == nil && m.Truncated {
		c.Net = "tcp"
		m, err = roundTrip(ctx, c, r, to)
	}
	if err != nil {
		return nil, err
	}
	if !m.Response || len(m.Question) != 1 || dns.CanonicalName(m.Question[0].Name) != q.name || m.Question[0].Qtype != q.qtype {
		return nil, errors.New("it answers another question")
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("it answers %s", dns.RcodeToString[m.Rcode])
	}
	extra := m.Extra
	m.Extra = nil
	for _, rr := range extra {
		if t := rr.Header().Rrtype; t != dns.TypeOPT && t != dns.TypeTSIG && t != dns.TypeSIG {
			m.Extra = append(m.Extra, rr)
		}
	}
	return m, nil
}

// roundTrip is one question and its answer; it ends with ctx.
func roundTrip(ctx context.Context, c dns.Client, r *dns.Msg, to netip.AddrPort) (*dns.Msg, error) {
	conn, err := c.DialContext(ctx, to.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the answer is in
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	m, _, err := c.ExchangeWithConnContext(ctx, r, conn)
	return m, err
}

// forwardLimit bounds the questions that wait for resolvers.
type forwardLimit struct {
	mu    sync.Mutex
	total int
	by    map[netip.Addr]int
}

func (u *forwardLimit) begin(a netip.Addr) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total >= maxForwards || u.by[a] >= maxPerClient {
		return false
	}
	u.total++
	u.by[a]++
	return true
}

func (u *forwardLimit) end(a netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total--
	if u.by[a]--; u.by[a] == 0 {
		delete(u.by, a)
	}
}

// loop finds out whether the host's resolvers ask this server again, by way of a
// container that is a resolver itself, say. It costs nothing while they answer:
// a loop never does.
type loop struct {
	mu       sync.Mutex
	name     string // of the probe; random
	probedAt time.Time
}

const (
	loopSuffix = ".contiv-loop-probe."
	probeEvery = 30 * time.Second
)

func (l *loop) isProbe(name string) bool {
	if !strings.HasSuffix(name, loopSuffix) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name != "" && strings.EqualFold(name, l.name)
}

// probeLoop asks the resolvers for a name that only this server knows, unless
// they were asked for it lately.
func (h handler) probeLoop(ctx context.Context) {
	now := h.cfg.now()
	h.loop.mu.Lock()
	if !h.loop.probedAt.IsZero() && now.Sub(h.loop.probedAt) < probeEvery {
		h.loop.mu.Unlock()
		return
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	h.loop.probedAt, h.loop.name = now, hex.EncodeToString(b[:])+loopSuffix
	name := h.loop.name
	h.loop.mu.Unlock()
	h.work.Go(func() {
		for _, to := range h.upstreams.get() {
			// The answer does not matter: a loop shows by the question arriving here.
			_, _ = h.exchange(ctx, question{name: name, qtype: dns.TypeHINFO}, to)
		}
	})
}

func (h handler) reportLoop() {
	h.count.loops.Add(1)
	h.cfg.Log.Error("a resolver of this host asks the containers' name server, which asks that resolver: names outside the cluster cannot be resolved;"+
		" give another resolver with --dns-upstream, or correct the host's", "resolvers", h.upstreams.get())
}
