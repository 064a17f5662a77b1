package docker

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Containers on several networks. The engine gives a container one default route, by the
// network that it prefers. What is sent from the address on another one would leave by it
// too, under the other network's policy, as something that is not that interface's; so each
// interface gets rules of routing and a default route of its own, behind the engine's.

// multihoming has what was set up for which endpoints of ours. The zero value is ready for use.
type multihoming struct {
	mu  sync.Mutex
	set map[string]string // the endpoints of its container, by endpoint
	say map[string]string // what failed last, by endpoint
}

// routeMultihomed gives the interfaces of running containers with several their own egress,
// and looks again at those of containers that have got or lost one since.
func (p *Plugin) routeMultihomed(ctx context.Context, running []container, attached map[attach.Key]bool) {
	there := map[string]bool{}
	for _, c := range running {
		slices.Sort(c.endpoints)
		all := strings.Join(c.endpoints, " ")
		for _, id := range c.endpoints {
			if !attached[endpointAttachment(id)] {
				continue
			}
			there[id] = true
			p.learnRouters(ctx, c.id, id)
			p.multihoming.mu.Lock()
			before, was := p.multihoming.set[id]
			p.multihoming.mu.Unlock()
			if before == all || !was && len(c.endpoints) < 2 {
				continue
			}
			err := p.backend.RouteReplies(endpointAttachment(id))
			if p.multihoming.note(id, all, err) {
				p.log.Warn("a container with several networks answers by one of them alone", "container", c.name, "endpoint", short(id), "error", err)
			}
		}
	}
	p.multihoming.mu.Lock()
	defer p.multihoming.mu.Unlock()
	gone := func(id, _ string) bool { return !there[id] }
	maps.DeleteFunc(p.multihoming.set, gone)
	maps.DeleteFunc(p.multihoming.say, gone)
}

// note keeps what came of an endpoint, and tells whether it is a failure that was not
// there before.
func (s *multihoming) note(id, all string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set, s.say = map[string]string{}, map[string]string{}
	}
	if err == nil {
		s.set[id] = all
		delete(s.say, id)
		return false
	}
	said := s.say[id]
	s.say[id] = err.Error()
	return said != err.Error()
}

// leave: libnetwork takes the interface back right after it, which leaves its rules behind
// in a container that goes on.
func (p *Plugin) leave(_ context.Context, r endpointRequest) (empty, error) {
	p.routers.leave(r.EndpointID)
	p.multihoming.mu.Lock()
	_, has := p.multihoming.set[r.EndpointID]
	p.multihoming.mu.Unlock()
	if !has {
		return empty{}, nil
	}
	if err := p.backend.RemoveReplyRoutes(endpointAttachment(r.EndpointID)); err != nil { // they match nothing that is sent
		p.log.Warn("routing rules of a container's former interface cannot be deleted", "endpoint", short(r.EndpointID), "error", err)
	}
	return empty{}, nil
}

// routers has, by container, which endpoint the router's route is on: the router has the
// same address on every network without a gateway, a container's table one route to it,
// and the engine fails to join a container whose second endpoint brings the same one. The
// zero value is ready for use.
type routers struct {
	mu sync.Mutex
	// Endpoints by sandbox and router: the one that brought the route, or, where several
	// had joined before this process began, all that may have.
	of    map[string]map[netip.Addr]map[string]bool
	known map[string]bool // endpoints whose sandbox is known
}

// join reports whether an endpoint brings the route to a router into its sandbox.
func (r *routers) join(sandbox, endpoint string, router netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.at(sandbox, endpoint)
	if has := have[router]; len(has) > 0 && sandbox != "" {
		return has[endpoint]
	}
	have[router] = map[string]bool{endpoint: true}
	return true
}

// learn notes that an endpoint may have brought the route to a router into its sandbox.
func (r *routers) learn(sandbox, endpoint string, router netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.at(sandbox, endpoint)
	if have[router] == nil {
		have[router] = map[string]bool{}
	}
	have[router][endpoint] = true
}

// at is what a sandbox has, which an endpoint is in.
func (r *routers) at(sandbox, endpoint string) map[netip.Addr]map[string]bool {
	if r.of == nil {
		r.of, r.known = map[string]map[netip.Addr]map[string]bool{}, map[string]bool{}
	}
	r.known[endpoint] = true
	if r.of[sandbox] == nil {
		r.of[sandbox] = map[netip.Addr]map[string]bool{}
	}
	return r.of[sandbox]
}

func (r *routers) leave(endpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, endpoint)
	for sandbox, by := range r.of {
		for router, has := range by {
			if delete(has, endpoint); len(has) == 0 {
				delete(by, router)
			}
		}
		if len(by) == 0 {
			delete(r.of, sandbox)
		}
	}
}

// learnRouters notes the sandbox of an endpoint that joined it before this process began.
// It is not known which of several endpoints of a container brought the route: until all of
// them have left, no other brings it, and has egress by RouteReplies.
func (p *Plugin) learnRouters(ctx context.Context, container, endpoint string) {
	p.routers.mu.Lock()
	known := p.routers.known[endpoint]
	p.routers.mu.Unlock()
	res, ok := p.backend.Attached(endpointAttachment(endpoint))
	if known || !ok || !res.Router.IsValid() && !res.Router6.IsValid() {
		return
	}
	var c struct {
		NetworkSettings struct{ SandboxKey string }
	}
	if err := p.engine.do(ctx, http.MethodGet, "/containers/"+url.PathEscape(container)+"/json", nil, &c); err != nil || c.NetworkSettings.SandboxKey == "" {
		return // it has ended, or is asked for at the next look
	}
	for _, router := range []netip.Addr{res.Router, res.Router6} {
		if router.IsValid() {
			p.routers.learn(c.NetworkSettings.SandboxKey, endpoint, router)
		}
	}
}
