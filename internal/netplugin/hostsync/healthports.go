package hostsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// healthPorts are the health check ports of Kubernetes' services: each tells load
// balancers, as kube-proxy does, how many backends of its service are on this host.
type healthPorts struct {
	log  *slog.Logger
	open func(ctx context.Context, addr string) (net.Listener, error)
	// beside reports whether a kube-proxy runs on this host, which answers at all these ports.
	beside func(ctx context.Context) bool
	kick   func() // asks for another follow
	last   desired.Map[model.ServiceKey, *desired.Service]
	of     map[model.ServiceKey]uint16 // whose a port is

	mu      sync.Mutex
	closed  bool
	healthy bool // the host's stack leads to the backends that it should
	ports   map[uint16]*healthPort
}

// healthPort is one port.
type healthPort struct {
	// here are the ready backends of this host: of a service, and of each of its ports that
	// has others.
	here   map[model.ServiceKey][]model.EndpointKey
	server *http.Server // nil = it does not listen
	err    error        // why
	ended  bool         // it listened, and stopped to: the next follow tells, the one after tries again
}

func newHealthPorts(log *slog.Logger, open func(context.Context, string) (net.Listener, error), kick func()) *healthPorts {
	return &healthPorts{log: log, open: open, beside: kubeProxyRuns, kick: kick, of: map[model.ServiceKey]uint16{}, ports: map[uint16]*healthPort{}}
}

// follow notes services, at the cost of what differs, and listens for them; not served =
// for none.
func (h *healthPorts) follow(ctx context.Context, now desired.Map[model.ServiceKey, *desired.Service], served bool) (problems []compile.Problem) {
	if !served {
		now = desired.Map[model.ServiceKey, *desired.Service]{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healthy = true
	for c := range now.Diff(h.last) {
		h.note(c.Key, c.New)
	}
	h.last = now
	beside := len(h.ports) > 0 && h.beside(ctx)
	for port, p := range h.ports {
		switch {
		case beside:
			p.end()
			p.server, p.err, p.ended = nil, nil, false
		case p.ended:
			p.ended = false
		case p.server == nil && !h.closed:
			p.server, p.err = h.listen(ctx, port)
		}
		if p.err != nil {
			problems = append(problems, compile.Problem{Object: fmt.Sprintf("health check port %d", port), Text: fmt.Sprintf("of service %s: %v", p.service(), p.err)})
		}
	}
	return problems
}

// kubeProxyRuns reports whether something answers at kube-proxy's health address
// (--healthz-bind-address), or at the configured one.
func kubeProxyRuns(ctx context.Context) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", "127.0.0.1:10256")
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return err == nil
}

// note notes a service; nil = there is none.
func (h *healthPorts) note(key model.ServiceKey, s *desired.Service) {
	was := h.of[key]
	port := uint16(0)
	if s != nil {
		port = s.HealthPort
	}
	if was != 0 && was != port {
		if p := h.ports[was]; p != nil {
			if delete(p.here, key); len(p.here) == 0 {
				p.end()
				delete(h.ports, was)
			}
		}
		delete(h.of, key)
	}
	if port == 0 {
		return
	}
	h.of[key] = port
	if h.ports[port] == nil {
		h.ports[port] = &healthPort{here: map[model.ServiceKey][]model.EndpointKey{}}
	}
	here := []model.EndpointKey{} // also without an owner
	for of, b := range s.Backends.All() {
		if b.Local && (b.Serving(false).State == desired.BackendActive || b.Serving(true).State == desired.BackendActive) {
			here = append(here, of)
		}
	}
	h.ports[port].here[key] = here
}

// service is the first by name of those whose port it is.
func (p *healthPort) service() (first model.ServiceKey) {
	for k := range p.here {
		if first == (model.ServiceKey{}) || k.String() < first.String() {
			first = k
		}
	}
	return first
}

// local is how many backends are here, each once.
func (p *healthPort) local() int {
	all := map[model.EndpointKey]bool{}
	for _, here := range p.here {
		for _, k := range here {
			all[k] = true
		}
	}
	return len(all)
}

// unhealthy notes that the host's stack is not as it should be.
func (h *healthPorts) unhealthy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healthy = false
}

func (h *healthPorts) listen(ctx context.Context, port uint16) (*http.Server, error) {
	l, err := h.open(ctx, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	const slow = 5 * time.Second
	s := transport.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.answer(w, port) }))
	s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes = slow, slow, slow, 1<<13
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.stopped(port, s, err)
		}
	}()
	return s, nil
}

// stopped notes that a port answers no more, though it should.
func (h *healthPorts) stopped(port uint16, s *http.Server, err error) {
	_ = s.Close() // it listens no more
	h.mu.Lock()
	p := h.ports[port]
	ours := p != nil && p.server == s
	if ours {
		p.server, p.err, p.ended = nil, fmt.Errorf("it stopped answering and is reopened: %w", err), true
	}
	h.mu.Unlock()
	if ours {
		h.log.Warn("a health check port has failed and is reopened", "port", port, "error", err)
		h.kick()
	}
}

// answer tells what kube-proxy tells.
func (h *healthPorts) answer(w http.ResponseWriter, port uint16) {
	type named struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	h.mu.Lock()
	p, healthy := h.ports[port], h.healthy
	var said struct {
		Service named `json:"service"`
		Local   int   `json:"localEndpoints"`
		Healthy bool  `json:"serviceProxyHealthy"`
	}
	if p != nil {
		name, _, _ := strings.Cut(p.service().Name, ":") // of one of the service's ports
		said.Service.Namespace, said.Service.Name, _ = strings.Cut(name, "/")
		said.Local = p.local()
	}
	h.mu.Unlock()
	said.Healthy = healthy
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(said.Local))
	if said.Local == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(said) // who is gone needs no answer
}

func (p *healthPort) end() {
	if p.server != nil {
		_ = p.server.Close() // nothing is lost
	}
}

// close ends all, for good.
func (h *healthPorts) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, p := range h.ports {
		p.end()
		p.server = nil
	}
}

// HealthPortOf returns the service of which this host answers the health check at a port;
// empty = of none.
func (w *Egress) HealthPortOf(port uint16) string { return w.health.serviceOf(port) }

func (h *healthPorts) serviceOf(port uint16) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.ports[port]; p != nil && p.server != nil {
		return p.service().String()
	}
	return ""
}
