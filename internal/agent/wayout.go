package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/attach/plumb"
	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/hostnet"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// wayOut is this host's part of the way out: which private address an
// attachment has, whether the private subnet can be used here, and what the
// host's own stack has to hold.
type wayOut struct {
	a         *Agent
	able      bool // the driver makes the host's interface
	net       *hostnet.Stack
	published atomic.Uint64 // counts changes of published ports
	dns       atomic.Uint32 // port of the host's name server; 0 = none

	mu      sync.Mutex
	private *desired.Private // as the cluster is set; nil = not known yet
	taken   map[netip.Addr]attach.Key
	next    netip.Addr // where the search for a free address begins
	checked bool       // private does not collide
	blocked []compile.Problem
}

func newWayOut(a *Agent) *wayOut {
	return &wayOut{
		a: a, able: a.can.WayOut, net: hostnet.New(a.log, a.cfg.IPForward), taken: map[netip.Addr]attach.Key{},
	}
}

// SetNameServer tells at which port of the host's private address a name server
// answers; containers' queries to any address are handed to it. 0 = none.
func (a *Agent) SetNameServer(port uint16) {
	a.way.dns.Store(uint32(port))
	a.kick("name server")
}

// settled returns the way out as the cluster is set now; nil while unknown.
func (w *wayOut) settled() *desired.Private {
	if !w.able {
		return nil
	}
	g, ok := w.a.cluster.settings()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := desired.NewPrivate(g.PvtSubnet)
	if want != nil {
		want.TunnelPort = uint16(w.a.cfg.VXLANPort)
	}
	if ok && (w.private == nil || want == nil || *want != *w.private) {
		w.private, w.checked = want, false
	}
	return w.private
}

// take finds a private address for a new attachment: the next free one after
// the last that was handed out, so that addresses come back late. The zero
// address while there is no way out; ErrExhausted when all are taken.
func (w *wayOut) take(e entry) (netip.Addr, error) {
	p := w.settled()
	if p == nil {
		return netip.Addr{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.next
	for range 1 << (32 - p.Subnet.Bits()) {
		if !p.Holds(a) {
			a = p.Subnet.Addr().Next()
		}
		if _, used := w.taken[a]; !used {
			w.taken[a], w.next = e.key(), a.Next()
			w.a.cluster.setPrivate(e.Endpoint, a)
			return a, nil
		}
		a = a.Next()
	}
	return netip.Addr{}, model.Errorf(model.ErrExhausted,
		"private subnet %s has no address left for another container on this host: all %d are taken", p.Subnet, len(w.taken))
}

// keep takes what the journal says of an attachment.
func (w *wayOut) keep(e entry) {
	if !e.Private.IsValid() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, used := w.taken[e.Private]; used {
		return // a journal that was edited: one of them gets another, by assign
	}
	w.taken[e.Private] = e.key()
	if w.next.Less(e.Private.Next()) {
		w.next = e.Private.Next()
	}
	w.a.cluster.setPrivate(e.Endpoint, e.Private)
}

func (w *wayOut) release(e entry) {
	w.mu.Lock()
	if w.taken[e.Private] == e.key() {
		delete(w.taken, e.Private)
	}
	w.mu.Unlock()
	w.a.cluster.setPrivate(e.Endpoint, netip.Addr{})
	if len(e.Ports) > 0 {
		w.published.Add(1)
		w.a.kick("ports of " + e.key().String())
	}
}

// assign gives an address to every attachment that has none of the present
// subnet: one that an earlier version made, or that was adopted.
func (w *wayOut) assign(ctx context.Context) error {
	p := w.settled()
	if p == nil {
		return nil
	}
	for _, e := range w.a.journal.all() {
		if e.State == stateOwed || w.holds(p, e) {
			continue
		}
		if err := w.assignOne(ctx, p, e.key()); err != nil {
			return err
		}
	}
	w.a.kick("private addresses")
	return nil
}

func (w *wayOut) holds(p *desired.Private, e entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.Holds(e.Private) && w.taken[e.Private] == e.key()
}

func (w *wayOut) assignOne(ctx context.Context, p *desired.Private, k attach.Key) error {
	unlock, err := w.a.turns.Take(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := w.a.journal.get(k)
	if !ok || e.State != stateDone || w.holds(p, e) {
		return nil // it has changed meanwhile
	}
	if e.Private, err = w.take(e); err != nil {
		w.a.log.Warn("an attachment has no way out", "attachment", k.String(), "error", err)
		return nil
	}
	w.a.holdEntry(e)
	return nil
}

// refresh tells the compiler of the way out, unless the private subnet is a
// network of this host already: then there is none, and a problem says why.
// Where it became one later, which is seen when look says to see what is there,
// the way out stays for those whose addresses are not concerned, and the problem
// says so. Only the runner's goroutine calls it.
func (w *wayOut) refresh(look bool) {
	p := w.settled()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p == nil || w.checked && !look {
		return
	}
	routes, pools, err := plumb.Overlaps(p.Subnet, p.Interface)
	if w.checked {
		if err == nil {
			w.blocked = nil
		}
		if len(routes) > 0 {
			w.blocked = collision("containers with private addresses there reach neither this host nor the outside: ", p, routes)
		}
		return
	}
	switch {
	case err != nil:
		w.a.log.Debug("the host's routes cannot be compared with the private subnet", "error", err)
	case len(pools) > 0:
		w.a.log.Warn("the cluster's private subnet collides with address pools of this host's Docker engine; "+anotherSubnet,
			"privateSubnet", p.Subnet, "collidesWith", pools)
	}
	w.blocked = nil
	if len(routes) > 0 {
		w.blocked = collision("containers reach neither this host nor the outside: ", p, routes)
		p = nil
	}
	w.checked = p != nil // what collides may go
	w.a.cluster.setWayOut(p)
}

func collision(effect string, p *desired.Private, routes []string) []compile.Problem {
	return []compile.Problem{{Object: "way out", Text: effect + "private subnet " +
		p.Subnet.String() + " collides with " + strings.Join(routes, ", ") + " of this host; " + anotherSubnet}}
}

const anotherSubnet = "choose another with 'netctl global set --private-subnet a.b.0.0/16' (and --private-subnet of netplugin, if given)"

// follow makes the host's own stack what the picture, which the data plane
// holds now, and the journal ask for. look says whether to see what is there,
// although nothing has changed.
func (w *wayOut) follow(ctx context.Context, pic desired.Host, look bool) []compile.Problem {
	if !w.able {
		return nil
	}
	want := hostnet.Want{Private: pic.Private, NameServer: uint16(w.dns.Load()), Control: w.a.control.want(false)}
	if look {
		w.a.control.sayRefused()
	}
	problems := append([]compile.Problem(nil), w.blocked...)
	journal := w.a.journal.all()
	taken, withheld := w.a.holdPublished(journal)
	for object, err := range taken {
		problems = append(problems, compile.Problem{Object: object, Text: err.Error()})
	}
	if pic.Private != nil {
		for _, e := range journal {
			port, ok := pic.Ports.Get(e.HostIf)
			if e.State != stateDone || e.Result == nil || !ok || port.Private != e.Private || !e.Private.IsValid() {
				continue
			}
			if want.MTU == 0 || e.Result.MTU < want.MTU {
				want.MTU = e.Result.MTU
			}
			if len(e.Ports) == 0 {
				continue
			}
			ep := hostnet.Endpoint{Addr: e.Private, Ports: e.Ports}
			if len(withheld) > 0 {
				ep.Ports = slices.DeleteFunc(slices.Clone(e.Ports), func(b attach.PortBinding) bool { return withheld[hostPort(b)] })
			}
			if n, ok := pic.Networks.Get(port.Network); ok {
				ep.Masquerade = !n.Router().IsValid()
			}
			want.Endpoints = append(want.Endpoints, ep)
		}
	}
	failed := w.net.Apply(ctx, want, look)
	for object, err := range failed {
		problems = append(problems, compile.Problem{Object: object, Text: err.Error()})
	}
	if len(failed) == 0 {
		w.a.giveUpPorts() // nothing leads from them any more
	}
	return problems
}

// guardEvery is how often it is asked whether the host's connection tracking has
// room; the kernel fills a fifth of it in about as long.
const guardEvery = time.Second

// guard keeps containers from filling the host's connection tracking.
func (w *wayOut) guard(ctx context.Context) {
	if !w.able {
		return
	}
	g := hostnet.NewGuard(w.a.log)
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := g.Look(ctx, w.settled())
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != told {
			w.a.log.Warn("the host's connection tracking cannot be guarded", "error", err)
		}
		told = text
	}
}

// watchAgain is the pause before a broken subscription is renewed.
const watchAgain = time.Second

// watch has what others take from the host's stack put back.
func (w *wayOut) watch(ctx context.Context) {
	if !w.able {
		return
	}
	for {
		err := w.net.Watch(ctx, func() { w.a.kick("drift") })
		if ctx.Err() != nil {
			return
		}
		w.a.log.Warn("changes of the host's stack are not told, and found at the next look only", "error", err)
		if waiting.Pause(ctx, watchAgain) != nil {
			return
		}
	}
}

// settings returns the cluster's, and whether they are known.
func (c *clusterView) settings() (model.Global, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.global == nil {
		return model.Global{}, false
	}
	return *c.global, true
}

func (c *clusterView) setWayOut(p *desired.Private) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comp.SetPrivate(p)
}

func (c *clusterView) setPrivate(k model.EndpointKey, a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comp.SetPrivateAddress(k, a)
}
