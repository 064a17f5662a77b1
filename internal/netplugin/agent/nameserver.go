package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/dns"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// nameServer is this host's name server, which listens on the host's private
// address while there is one; nil = switched off.
type nameServer struct {
	*dns.Server
	listening func(port, port6 uint16)    // where it listens on these addresses; 0 = nowhere
	home      [2]netip.Addr               // of the sockets, IPv4 and IPv6; of the runner's goroutine
	sockets   waiting.Value[*dns.Sockets] // nil = it has no address
	failed    atomic.Bool                 // the sockets are to be opened again
}

func newNameServer(cfg *Config, told func(port, port6 uint16)) *nameServer {
	if cfg.NoDNS {
		return nil
	}
	return &nameServer{
		Server:    dns.New(dns.Config{Upstreams: cfg.DNSUpstreams, ResolvConf: cfg.ResolvConf, Log: cfg.Log, Asked: queriedServer}),
		listening: told,
	}
}

// queriedServer tells which server a container sent a question to, before the
// host's stack handed it to the name server.
func queriedServer(network string, from, at netip.AddrPort) (netip.AddrPort, error) {
	proto := model.ProtoUDP
	if network == "tcp" {
		proto = model.ProtoTCP
	}
	to, err := hoststack.Destination(proto, from, at)
	return netip.AddrPortFrom(to, dns.Port), err
}

// follow takes a desired state; names follow whatever becomes of the data plane. The
// sockets are there, and told of, before the host's stack hands any query over:
// after a restart none may be lost to resolvers that know no container.
func (n *nameServer) follow(ctx context.Context, h desired.Host) []compile.Problem {
	if n == nil {
		return nil
	}
	n.Update(h)
	var home [2]netip.Addr
	if h.HostNAT != nil {
		home = [2]netip.Addr{h.HostNAT.Addr, h.HostNAT.Addr6}
	}
	if home == n.home && !n.failed.Load() {
		return nil
	}
	if !home[0].IsValid() {
		n.home = home
		n.sockets.Set(nil)
		n.listening(0, 0)
		return nil
	}
	s, err := dns.Listen(ctx, netip.AddrPortFrom(home[0], 0))
	var port6 uint16
	if err == nil && home[1].IsValid() {
		var six dns.Sockets
		if six, err = dns.Listen(ctx, netip.AddrPortFrom(home[1], 0)); err == nil {
			s.Beside, port6 = []dns.Sockets{six}, six.Addr().Port()
		} else {
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		return []compile.Problem{{Object: "name server", Text: err.Error()}}
	}
	n.home = home
	n.failed.Store(false)
	n.sockets.Set(&s)
	n.listening(s.Addr().Port(), port6)
	return nil
}

// dnsRetry is how long serveNames waits before it asks for other sockets.
const dnsRetry = 5 * time.Second

// serveNames serves names on the sockets that follow made, until ctx ends.
func (n *nameServer) serveNames(ctx context.Context, log *slog.Logger, kick func(reason string)) {
	if n == nil {
		return
	}
	for {
		s, moved := n.sockets.Get()
		if s == nil {
			select {
			case <-moved:
				continue
			case <-ctx.Done():
				return
			}
		}
		here, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- n.Serve(here, *s) }()
		var err error
		select {
		case <-moved:
			stop()
			err = <-done
		case err = <-done:
			stop()
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		log.Error("containers' names are not served", "address", s.Addr(), "error", err, "retryIn", dnsRetry)
		for again := moved; again != nil; {
			select {
			case <-again:
				again = nil
			case <-time.After(dnsRetry):
				n.failed.Store(true)
				kick("name server")
			case <-ctx.Done():
				return
			}
		}
	}
}

// NameServer is what /inspect/nameserver answers.
type NameServer struct {
	Status  string         `json:"status"`            // serving, waiting (for egress) or off
	Address string         `json:"address,omitempty"` // where it listens; queries to port 53 of any address get there
	Stats   *dns.Stats     `json:"stats,omitempty"`
	Names   map[string]int `json:"names"` // how many, by tenant
	Records []dns.Name     `json:"records"`
}

// NameServer draws up what the name server knows and has done.
func (a *Agent) NameServer() NameServer {
	out := NameServer{Status: "off", Names: map[string]int{}, Records: []dns.Name{}}
	if a.names == nil {
		return out
	}
	out.Status = "waiting"
	if s, _ := a.names.sockets.Get(); s != nil {
		out.Status, out.Address = "serving", s.Addr().String()
	}
	s := a.names.Stats()
	out.Stats, out.Records = &s, a.names.Names()
	for _, n := range out.Records {
		out.Names[string(n.Tenant)]++
	}
	return out
}

func (a *Agent) getNameserver(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.NameServer())
}

// metrics are the name server's counters.
func (n *nameServer) metrics() []prometheus.Collector {
	if n == nil {
		return nil
	}
	var out []prometheus.Collector
	for name, c := range map[string]struct {
		help string
		get  func(dns.Stats) uint64
	}{
		"queries":    {"Queries of containers to the name server.", func(s dns.Stats) uint64 { return s.Queries }},
		"local":      {"Queries answered from the cluster's names.", func(s dns.Stats) uint64 { return s.Local }},
		"nxdomain":   {"Queries answered locally with NXDOMAIN.", func(s dns.Stats) uint64 { return s.NXDomain }},
		"forwarded":  {"Queries forwarded to the host's resolvers.", func(s dns.Stats) uint64 { return s.Forwarded }},
		"cache_hits": {"Queries answered from the cache.", func(s dns.Stats) uint64 { return s.CacheHits }},
		"failures":   {"Queries that no resolver answered.", func(s dns.Stats) uint64 { return s.Failures }},
		"malformed":  {"Malformed messages.", func(s dns.Stats) uint64 { return s.Malformed }},
		"refused":    {"Queries that were refused: not from containers, or not served.", func(s dns.Stats) uint64 { return s.Refused }},
		"limited":    {"Queries that were refused because too many were in progress.", func(s dns.Stats) uint64 { return s.Limited }},
		"loops":      {"Times that a resolver of the host was found to ask this server.", func(s dns.Stats) uint64 { return s.Loops }},
	} {
		out = append(out, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "contiv_netplugin_dns_" + name + "_total", Help: c.help},
			func() float64 { return float64(c.get(n.Stats())) }))
	}
	return out
}
