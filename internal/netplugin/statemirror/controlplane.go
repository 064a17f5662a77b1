package statemirror

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

const (
	// controlGrace is how long an address is kept after the registry has ceased to
	// name it: a netmaster that comes back is reachable before it is registered.
	controlGrace = time.Hour
	// controlInterval is how often the store is asked for its members, and names
	// of hosts are resolved again.
	controlInterval = time.Minute
)

// ControlPlane knows where the cluster's control plane answers, which this
// host's containers are kept from, and no service is led to: netmasters by the
// registry, the store by its members and the flags, netplugins by the hosts' records.
type ControlPlane struct {
	ControlConfig
	config *Config
	hosts  *HostTable
	input  *HostInput
	ready  chan struct{} // closed once all sources have been heard

	mu       sync.Mutex
	sources  map[string][]listener  // by what tells of them, sorted
	waiting  map[string]bool        // sources that have not been heard yet
	previous map[listener]time.Time // named by no source any more, since
	version  uint64                 // of sources
	// machines has, by each address of a machine that tells what it listens on, all
	// of that machine's: an etcd beside a netmaster is reached by all of them.
	machines map[netip.Addr][]netip.Addr

	// last is built, for others than the runner's goroutine.
	last atomic.Pointer[hoststack.Control]

	// Of the runner's goroutine.
	hostAddrs [][2]netip.Addr    // of each host, for control and for tunnels
	built     *hoststack.Control // nil = not yet
	denied    deniedTargets      // what containers of VLAN networks could reach past their host, so their ports deny it
	known     []netip.Addr       // of all machines that the control plane is on, sorted; each built has a list of its own
	of        [2]uint64          // versions of sources and hosts that built and hosts are of
}

// Sources, beside the services of the registry.
const (
	sourceStore = "store"
	sourceFlag  = "--netmaster"
)

// ControlConfig is what a ControlPlane needs.
type ControlConfig struct {
	Off        bool   // containers may reach all of it
	Netmasters string // base URLs, separated by commas; optional
	// Addresses tells where the store answers, as host:port; with an error, what
	// it knows. nil = nowhere that containers could reach.
	Addresses func(context.Context) ([]string, error)
	// Listening is where this netplugin listens: inspection first, when it does.
	Listening func() []string
}

// NewControlPlane returns a ControlPlane that has heard of nothing until Run.
func NewControlPlane(c *State, cfg ControlConfig) *ControlPlane {
	p := &ControlPlane{
		ControlConfig: cfg, config: &c.Config, hosts: c.Hosts, input: c.HostInput, ready: make(chan struct{}),
		sources: map[string][]listener{}, previous: map[listener]time.Time{},
		waiting: map[string]bool{sourceStore: true, sourceFlag: true},
	}
	for _, name := range cluster.ControlServices {
		p.waiting[name] = true
	}
	c.control = p
	return p
}

// Known reports whether all sources have been heard: before, nothing that leads
// containers anywhere may be made.
func (p *ControlPlane) Known() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// Run follows the sources until ctx ends.
func (p *ControlPlane) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, name := range cluster.ControlServices {
		running.Go(func() {
			err := cluster.WatchServices(ctx, p.config.Store, name, func(list []cluster.Service) error {
				if name == cluster.ListenService {
					list = reachable(list)
					p.setMachines(list)
				}
				var now []listener
				for _, s := range list {
					host := ""
					if s.Role == cluster.RoleAgent {
						host = s.Hostname
					}
					now = append(now, p.resolve(ctx, host, net.JoinHostPort(s.HostAddr, strconv.Itoa(s.Port)))...)
				}
				p.set(name, now)
				return nil
			})
			if ctx.Err() == nil {
				p.config.Log.Error("the control plane's addresses are not updated any more", "service", name, "error", err)
			}
		})
	}
	for ctx.Err() == nil {
		p.set(sourceFlag, p.resolve(ctx, "", hostsOfURLs(p.Netmasters)...))
		var at []string
		if ask := p.Addresses; ask != nil {
			var err error
			if at, err = ask(ctx); err != nil {
				p.config.Log.Debug("not all addresses of the store are known", "error", err)
			}
		}
		p.set(sourceStore, p.resolve(ctx, "", at...))
		_ = waiting.Pause(ctx, controlInterval) // the loop sees the end
	}
	running.Wait()
}

// hostsOfURLs are host:port of URLs, separated by commas.
func hostsOfURLs(list string) (at []string) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			continue // netplugin's client has refused it
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		at = append(at, net.JoinHostPort(u.Hostname(), port))
	}
	return at
}

// reachable leaves out addresses that other machines do not reach. No part of the control
// plane enters any, but earlier netmasters entered what a host reported.
func reachable(list []cluster.Service) []cluster.Service {
	return slices.DeleteFunc(slices.Clone(list), func(s cluster.Service) bool {
		a, err := netip.ParseAddr(s.HostAddr)
		return err == nil && !a.Unmap().IsGlobalUnicast()
	})
}

// resolve returns the addresses of host:port, where the netplugin of a host listens, or with
// "" another part of the control plane. A name that has none now is passed over: the next
// time may tell.
func (p *ControlPlane) resolve(ctx context.Context, agent string, at ...string) (out []listener) {
	for _, text := range at {
		host, service, err := net.SplitHostPort(text)
		port, bad := strconv.ParseUint(service, 10, 16)
		if err != nil || bad != nil || port == 0 {
			continue
		}
		addrs := []netip.Addr{}
		if a, err := netip.ParseAddr(host); err == nil {
			addrs = append(addrs, a)
		} else if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			p.config.Log.Debug("a host of the control plane has no address", "host", host, "error", err)
		}
		for _, a := range addrs {
			out = append(out, listener{netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(port)), agent})
		}
	}
	return out
}

// set takes what a source names now.
func (p *ControlPlane) set(source string, now []listener) { p.setSource(source, now, false) }

// setSource is set; with onlyFirst it does nothing when the source has told already.
func (p *ControlPlane) setSource(source string, now []listener, onlyFirst bool) {
	slices.SortFunc(now, listener.compare)
	now = slices.Compact(now)
	p.mu.Lock()
	first := p.waiting[source]
	if onlyFirst && !first {
		p.mu.Unlock()
		return
	}
	changed := first || !slices.Equal(p.sources[source], now)
	if changed {
		p.keepPreviousLocked(p.sources[source])
		for _, l := range now {
			delete(p.previous, l)
		}
		p.sources[source] = now
		p.version++
	}
	if first {
		if delete(p.waiting, source); len(p.waiting) == 0 {
			close(p.ready)
		}
	}
	p.mu.Unlock()
	if changed {
		p.config.Agent.Kick("control plane")
	}
}

func (p *ControlPlane) setMachines(list []cluster.Service) {
	byName := map[string][]netip.Addr{}
	for _, s := range list {
		if a, err := netip.ParseAddr(s.HostAddr); err == nil && !slices.Contains(byName[s.Hostname], a) {
			byName[s.Hostname] = append(byName[s.Hostname], a)
		}
	}
	machines := map[netip.Addr][]netip.Addr{}
	for _, all := range byName {
		for _, a := range all {
			machines[a] = all
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machines = machines // set, called with the same records, tells of the change
}

// Want is what containers are to be kept from now, nil = nothing, and the addresses of
// the machines that the control plane is on. With look it also sees whether time or the
// host's own addresses have changed that.
func (p *ControlPlane) Want(look bool) (*hoststack.Control, []netip.Addr) {
	addrs, version := p.hosts.known(p.of[1])
	if version != p.of[1] {
		p.hostAddrs = addrs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := [2]uint64{p.version, version}; p.built == nil || look || of != p.of {
		p.built, p.of = p.buildLocked(), of
		p.known = nil
		for _, ap := range p.built.Targets {
			p.known = append(p.known, ap.Addr())
		}
		p.known = slices.Compact(p.known) // Targets are sorted
		p.last.Store(p.built)
	}
	if p.Off {
		return nil, p.known
	}
	return p.built, p.known
}

// NetmasterAddresses are those at which netmasters are asked, sorted.
func (p *ControlPlane) NetmasterAddresses() []netip.Addr {
	return p.addressesOf(cluster.ServiceMaster, sourceFlag)
}

// ReachabilityAddresses are those of netmasters and the store, by which they are asked. What else
// their machines listen on is not among them: on infra networks that is every host's own
// address there.
func (p *ControlPlane) ReachabilityAddresses() []netip.Addr {
	return p.addressesOf(cluster.ServiceMaster, cluster.ServiceRPC, sourceFlag, sourceStore)
}

func (p *ControlPlane) addressesOf(sources ...string) (out []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, source := range sources {
		for _, l := range p.sources[source] {
			out = append(out, l.At.Addr())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// OwnPorts are the control plane's ports on this host, as of the last pass.
func (p *ControlPlane) OwnPorts() []uint16 {
	if k := p.last.Load(); k != nil {
		return k.Ports
	}
	return nil
}

// Refresh tells the compiler what containers must not reach past their host; with
// look it sees whether time or the host's own addresses have changed that. Only the
// runner's goroutine calls it.
func (p *ControlPlane) Refresh(look bool) {
	if p.Want(look); p.Off {
		return
	}
	p.input.setControl(p.denied.denied)
}

// Targets are where the control plane answers, as of the last sync.
func (p *ControlPlane) Targets() (out []netip.Addr) {
	if k := p.last.Load(); k != nil {
		for _, t := range k.Targets {
			out = append(out, t.Addr())
		}
	}
	return out
}
