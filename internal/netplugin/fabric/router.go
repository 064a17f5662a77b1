package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

const (
	// checkInterval is how often sessions are looked at for the host's status.
	checkInterval = 2 * time.Second
	// rereadInterval is how often the kernel's routes and tables are read again.
	rereadInterval = time.Minute
	// endTime bounds the end of the speaker.
	endTime = 3 * time.Second
)

// StateFile is what a Router keeps in netplugin's state directory: the addresses that it
// has given to interfaces.
const StateFile = "bgp.json"

// Config is what a Router needs.
type Config struct {
	StateDir string
	Uplinks  []string // the first that exists is the one on which routers are
	Log      *slog.Logger
	Tell     func()               // what Problems or State say has changed
	Changes  *hostchanges.History // of the routes that are learned; nil = none are noted
	Repairs  hoststack.Repairs    // hear of tables that are put back
}

// Router is this host's part of the physical network's routing. Its methods are safe for
// concurrent use.
type Router struct {
	cfg      Config
	wanted   waiting.Bell
	reread   atomic.Bool // what the kernel has is to be read
	lost     chan netip.Prefix
	received waiting.Bell // the speaker has learned something

	mu           sync.Mutex
	in           *model.Bgp // nil = none
	otherTenants []model.HostName
	have         *hostPrefixes // nil = no desired state yet
	speaker      *bgp.Speaker
	state        bgp.State
	problems     map[string]string // sentences by their objects

	// Of Run's goroutine.
	fresh   bool // nothing was spoken yet
	kernel  hoststack.Fabric
	put     []hoststack.HostAddr // that this or an earlier process has given
	owners  map[netip.Prefix]model.TenantName
	running bgpRun
	retry   *waiting.Retry
	again   <-chan time.Time // when a failure is tried again
	read    time.Time
}

// bgpRun is a speaker that runs.
type bgpRun struct {
	speaker   *bgp.Speaker
	cfg       bgp.Config
	device    string
	stop      context.CancelFunc
	following sync.WaitGroup
}

// New returns a Router that does nothing before Run.
func New(cfg Config) *Router {
	return &Router{
		cfg: cfg, wanted: waiting.NewBell(), lost: make(chan netip.Prefix, 64), received: waiting.NewBell(), problems: map[string]string{}, fresh: true,
		kernel: hoststack.Fabric{Changes: cfg.Changes, Repairs: cfg.Repairs},
		retry:  waiting.NewRetry(waiting.BackoffConfig{}),
	}
}

// Follow takes what this host is. It returns at once.
func (r *Router) Follow(in Input) {
	h := hostPrefixesOf(in)
	r.mu.Lock()
	defer r.mu.Unlock()
	same := r.have != nil && r.have.equal(h) && slices.Equal(r.otherTenants, in.OtherTenants) &&
		(r.in == nil) == (in.Settings == nil) && (r.in == nil || r.in.Equal(*in.Settings))
	r.in, r.otherTenants, r.have = in.Settings, in.OtherTenants, h
	if !same {
		r.wanted.Ring()
	}
}

// FollowChanges takes routes back, and adds them again, as Config.Changes says now.
func (r *Router) FollowChanges() { r.wanted.Ring() }

// LostTable tells that somebody else has taken something from hoststack.FabricTable, which is
// put back.
func (r *Router) LostTable() {
	r.cfg.Log.Warn("the nftables rules for BGP were changed from outside; they are restored")
	r.requestReread()
}

// requestReread has all read that this host's stack has.
func (r *Router) requestReread() {
	r.reread.Store(true)
	r.wanted.Ring()
}

// LostRoute tells that the route to a prefix has gone, which is put back if it is wanted.
func (r *Router) LostRoute(p netip.Prefix) {
	select {
	case r.lost <- p:
	default: // more than it can look at one by one
		r.requestReread()
	}
}

// Problems tells what keeps the host from what its settings ask for.
func (r *Router) Problems() (out []compile.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for object, text := range r.problems {
		out = append(out, compile.Problem{Object: object, Text: text})
	}
	slices.SortFunc(out, func(a, b compile.Problem) int { return strings.Compare(a.Object, b.Object) })
	return out
}

// Run follows until ctx ends, and leaves routes and announcements to the process that
// follows.
func (r *Router) Run(ctx context.Context) {
	r.put = r.readAssigned()
	look := time.NewTicker(checkInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			r.end(true)
			return
		case <-r.wanted:
		case <-r.received:
		case p := <-r.lost:
			if !r.kernel.Has(p) { // it was this host that removed it
				continue
			}
			r.cfg.Log.Warn("a route learned by BGP was deleted; it is restored if the interface is up", "prefix", p)
			r.reread.Store(true)
		case <-r.again:
		case <-look.C:
			if r.observe(ctx); time.Since(r.read) < rereadInterval {
				continue
			}
		}
		r.step(ctx)
	}
}

// step makes all as it is wanted now.
func (r *Router) step(ctx context.Context) {
	r.mu.Lock()
	settings, rivals, h := r.in, r.otherTenants, r.have
	r.mu.Unlock()
	if h == nil { // what an earlier process left stays until there is a desired state
		return
	}
	problems := map[string]string{}
	err := r.configure(ctx, settings, rivals, h, problems)
	if ctx.Err() != nil {
		return
	}
	r.again = nil
	if err != nil {
		problems["BGP"] = err.Error()
		r.again = time.After(r.retry.Delay())
	} else {
		r.retry.Reset()
	}
	r.reportProblems(ctx, problems)
}

func (r *Router) configure(ctx context.Context, b *model.Bgp, rivals []model.HostName, h *hostPrefixes, problems map[string]string) error {
	look := r.reread.Swap(false) || time.Since(r.read) >= rereadInterval
	if look {
		r.read = time.Now()
	}
	if b == nil {
		return r.leave(ctx, look)
	}
	if len(rivals) > 0 {
		return r.withdrawAll(ctx, look, model.Errorf(model.ErrConflict, "host %s has the same router address, %s: this host does not run BGP", rivals[0], b.RouterIP.Addr()))
	}
	if h.private == "" {
		return r.withdrawAll(ctx, look, model.Errorf(model.ErrConflict, "forwarding mode bridge, or no egress: only in forwarding mode routing can this host announce and use routes"))
	}
	here := *b // the part that this host can have
	b = &here
	device, links, err := r.assignAddresses(b, h, problems)
	if errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrNotFound) {
		return r.withdrawAll(ctx, look, err)
	}
	if err != nil {
		return err
	}
	cfg := speakerConfig(b, h, problems)
	cfg.Links = links
	if r.running.speaker != nil && r.running.device != device {
		r.end(false)
	}
	restarting := r.fresh && r.kernel.Exists()
	chosen, owners, refused := h.choose(r.owners)
	r.owners = owners
	for _, text := range slices.Concat(refused, h.withheld) {
		addr, _, _ := strings.Cut(text, " ")
		problems["BGP address "+addr] = text
	}
	for _, d := range h.ambiguities {
		problems["BGP network "+d.network.String()] = fmt.Sprintf("network %s has a subnet in common with it: if another host has containers of that one, both may announce the same address, and routers send one tenant's packets to the other", d.other)
	}
	want := hoststack.FabricConfig{Device: device, Private: h.private, Own: map[netip.Addr]netip.Addr{}, Keep: true}
	var announced []bgp.Announcement
	for _, x := range chosen {
		announced = append(announced, x.Announcement)
		if x.private.IsValid() {
			want.Own[x.private] = x.Prefix.Addr()
		}
	}
	if r.running.speaker != nil {
		if !reflect.DeepEqual(cfg, r.running.cfg) {
			if err := r.running.speaker.Configure(ctx, cfg); err != nil {
				r.end(false)
				return err
			}
			r.running.cfg = cfg
		}
		// What it learned was judged by what was protected then.
		want.Routes, want.Keep = routesOf(r.running.speaker.Routes(), b, problems)
	}
	var missing *hoststack.RouteError // what a neighbor says must not keep containers from being told of
	err = r.kernel.Apply(ctx, want, look)
	if err != nil && !errors.As(err, &missing) { // before any announcement
		return err
	}
	if r.running.speaker == nil {
		if err := r.start(ctx, cfg, device, restarting); err != nil {
			return err
		}
	}
	if err := r.running.speaker.Announce(ctx, announced); err != nil {
		return err
	}
	for _, p := range r.cfg.Changes.Suspended(hostchanges.Learned) {
		problems["BGP route "+p] = hoststack.RolledBack
	}
	if missing != nil {
		return missing
	}
	return nil
}

// routesOf are the routes that were learned, by next hops on the routers' networks. The
// rest of what is there stays while not all is known.
func routesOf(pic *bgp.Routes, b *model.Bgp, problems map[string]string) (out map[netip.Prefix][]netip.Addr, keep bool) {
	out = make(map[netip.Prefix][]netip.Addr, len(pic.Routes))
	away := 0
	for p, hops := range pic.Routes {
		var to []netip.Addr
		for _, hop := range hops {
			if onNetwork(b, hop.Address) {
				to = append(to, hop.Address)
			}
		}
		if len(to) > 0 {
			out[p] = to
		} else {
			away++
		}
	}
	if away > 0 {
		problems["BGP routes"] = fmt.Sprintf("%d learned prefixes lead to what is no router's address on a network of routerip: they are not followed", away)
	}
	return out, !pic.Complete
}

// onNetwork reports whether a may be a router's address: not of what is sent to all.
func onNetwork(b *model.Bgp, a netip.Addr) bool {
	return model.HostRange(b.RouterIP).Contains(a) || b.RouterIP6.IsValid() && model.HostRange(b.RouterIP6).Contains(a)
}

// speakerConfig is what the speaker should be.
func speakerConfig(b *model.Bgp, h *hostPrefixes, problems map[string]string) bgp.Config {
	own := b.RouterIP.Addr()
	cfg := bgp.Config{AS: b.AS, RouterID: own, Listen: []netip.Addr{own}, Protected: h.protected, Default: b.Default}
	if b.RouterIP6.IsValid() {
		cfg.Listen = append(cfg.Listen, b.RouterIP6.Addr())
	}
	for _, x := range b.Routers() {
		if !onNetwork(b, x.Address) {
			problems["BGP neighbor "+x.Address.String()] = fmt.Sprintf("it is not on the network of routerip, %s: no session", b.RouterIP.Masked())
			continue
		}
		n := bgp.Neighbor{
			Address: x.Address, AS: x.AS, Local: own, Password: b.Password, IPv4: x.Address.Is4(), IPv6: b.RouterIP6.IsValid(), MaxPrefixes: b.MaxPrefixes,
		}
		if x.Address.Is6() {
			n.Local = b.RouterIP6.Addr()
		}
		if !b.NoBFD {
			n.BFD = &bgp.BFD{}
		}
		cfg.Neighbors = append(cfg.Neighbors, n)
	}
	return cfg
}

// start begins to speak.
func (r *Router) start(ctx context.Context, cfg bgp.Config, device string, restarting bool) error {
	s, err := bgp.Start(ctx, cfg, bgp.Options{Log: r.cfg.Log, Restarting: restarting})
	if err != nil {
		return err
	}
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.running.speaker, r.running.cfg, r.running.device, r.running.stop, r.fresh = s, cfg, device, stop, false
	r.running.following.Go(func() {
		var seen uint64
		for {
			pic, err := s.Changed(follow, seen)
			if err != nil { // its end
				return
			}
			seen = pic.Generation
			r.received.Ring()
		}
	})
	r.mu.Lock()
	r.speaker = s
	r.mu.Unlock()
	r.cfg.Log.Info("this host speaks BGP", "as", cfg.AS, "routerIp", cfg.RouterID, "neighbors", len(cfg.Neighbors), "restarting", restarting)
	return nil
}

// end ends the speaker, if one runs; with restart neighbors keep what it told.
func (r *Router) end(restart bool) {
	if r.running.speaker == nil {
		return
	}
	r.mu.Lock()
	r.speaker, r.state = nil, bgp.State{}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if err := r.running.speaker.Close(ctx, restart); err != nil {
		r.cfg.Log.Warn("the BGP speaker did not shut down cleanly", "error", err)
	}
	r.running.stop()
	r.running.following.Wait()
	r.running = bgpRun{}
}

// withdrawAll ends what was, and says why there is nothing else.
func (r *Router) withdrawAll(ctx context.Context, look bool, why error) error {
	if err := r.leave(ctx, look); err != nil {
		r.cfg.Log.Warn("addresses and routes made for BGP cannot be removed", "error", err)
	}
	return why
}

// leave ends the speaker for good and takes away what it made.
func (r *Router) leave(ctx context.Context, look bool) error {
	r.end(false)
	r.owners = nil
	if err := r.kernel.Apply(ctx, hoststack.FabricConfig{}, look); err != nil {
		return err
	}
	return r.withdraw(nil)
}

// stateFile is where it is.
func (r *Router) stateFile() string { return filepath.Join(r.cfg.StateDir, StateFile) }
