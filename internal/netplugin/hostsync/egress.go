package hostsync

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// Egress is this host's part of egress: which private address an
// attachment has, whether the private subnet can be used here, and what the
// host's own stack has to hold.
type Egress struct {
	EgressConfig
	config         *statemirror.Config
	control        *statemirror.ControlPlane
	Addresses      *PrivateAddresses
	net            *hoststack.Stack
	guard          *hoststack.Guard
	dns            atomic.Uint32                  // port of the host's name server, and in the 16 bits above it the port for IPv6; 0 = none
	routedPrefixes atomic.Pointer[[]netip.Prefix] // subnets of native networks, as followed last; nil = none were

	// Of the runner's goroutine.
	refused        uint64 // as logged
	counted        bool   // refused has a value
	exposed        exposed
	routedNetworks routedNetworks
	fronts         *frontends
	health         *healthPorts
	announceable   announceable
}

// EgressConfig is how egress is set on this host.
type EgressConfig struct {
	Able           bool // the driver makes the host's interface; without, there is no egress
	Able6          bool // ... and leads IPv6 there
	Services       bool // ... and what comes from there to services
	Frontends      bool // ... also at addresses that they share
	RoutedNetworks bool // ... and between there and endpoints of native networks
	// ExternalBackends: it leads containers to backends of services that are no endpoints.
	ExternalBackends bool
	IPForward        bool // set net.ipv4.ip_forward, and the like of IPv6, where it is off
	VXLANPort        int
	Underlay         *Underlay
	// Listen listens on TCP at an address, for health check ports.
	Listen  func(ctx context.Context, addr string) (net.Listener, error)
	Repairs hoststack.Repairs // what others have changed in the host's stack, and is put back
	// Sockets is where this host's own processes are served; without a pin directory the
	// host's stack serves them.
	Sockets hostservices.Config
	// ClientPins is where programs for clients outside are pinned; empty = there are none.
	ClientPins string
	// Answer gets the load balancers' addresses for which this host could answer its
	// neighbours.
	Answer func([]netip.Addr)
}

// HasIPv6 reports whether this host's kernel knows IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// NewEgress returns egress of which nothing is made before the first Follow.
func NewEgress(c *statemirror.State, control *statemirror.ControlPlane, cfg EgressConfig) *Egress {
	if !cfg.RoutedNetworks {
		c.HostInput.LackRoutedNetworks()
	}
	if !cfg.ExternalBackends {
		c.HostInput.LackExternalBackends()
	}
	clientPins := ""
	if cfg.Services && cfg.Frontends {
		clientPins = cfg.ClientPins
	}
	return &Egress{
		Addresses:    newPrivateAddresses(c.Log, c.Settings, c.HostInput, cfg),
		EgressConfig: cfg, config: &c.Config, control: control, net: hoststack.New(c.Log, cfg.IPForward, c.HostChanges, cfg.Repairs), guard: hoststack.NewGuard(c.Log, cfg.Repairs),
		fronts: newFrontends(c.Log, cfg.Repairs, uint16(cfg.VXLANPort), cfg.Sockets, clientPins), health: newHealthPorts(c.Log, cfg.Listen, func() { c.Agent.Kick("health check port") }),
	}
}

// SetNameServer tells at which port of the host's private address, and of its IPv6
// one, a name server answers; containers' queries to any address are handed to it.
// 0 = none.
func (w *Egress) SetNameServer(port, port6 uint16) {
	w.dns.Store(uint32(port) | uint32(port6)<<16)
	w.config.Agent.Kick("name server")
}

// Refused counts the packets of containers to the control plane that the host's
// stack has refused.
func (w *Egress) Refused() (uint64, error) { return w.net.Refused() }

// logRefused logs how often containers were refused since the last look.
func (w *Egress) logRefused() {
	n, err := w.net.Refused()
	if err != nil {
		return
	}
	if w.counted && n > w.refused {
		w.config.Log.Warn("containers tried to reach the control plane and were refused; --containers-reach-control-plane allows it", "packets", n-w.refused)
	}
	w.refused, w.counted = n, true
}

// HostAttachment is an attachment as the host's own stack knows it.
type HostAttachment struct {
	HostIf  string
	Private netip.Addr
	MTU     int
	Ports   []attach.PortBinding // published
}

// Follow makes the host's own stack what the desired state, which the data plane holds
// now, and the attachments ask for. With look it checks what is there, although
// nothing has changed. failed are the objects of problems that another try may end;
// whole reports whether published ports lead where they should, and nowhere else.
func (w *Egress) Follow(ctx context.Context, pic desired.Host, attached []HostAttachment, look bool) (problems []compile.Problem, failed []string, whole bool) {
	if !w.Able {
		return nil, nil, true
	}
	want := hoststack.Config{Private: pic.HostNAT}
	want.Control, want.Machines = w.control.Want(false)
	want.ControlPath = w.control.ReachabilityAddresses()
	six := false // some container or service has IPv6, or is about to: nothing of it is touched, or missed, before
	if w.RoutedNetworks {
		w.routedNetworks.follow(pic.Networks)
	}
	served := w.fronts.follow(pic, w.routedNetworks, want.Control, want.Machines) && pic.HostNAT != nil
	if w.Services {
		var ranges []netip.Prefix
		if served {
			ranges = pic.ServiceRanges
		}
		w.exposed.follow(pic.Services, pic.NodeAddrs, ranges, func(k model.ServiceKey) bool { return w.Frontends && w.fronts.byPlane[k] }, w.fronts.moved)
		want.Services, want.Source, want.ServiceMTU = w.exposed.list, source4(pic.VTEP), w.Underlay.TunnelMTU()
		six = w.exposed.six
	}
	if w.RoutedNetworks {
		if len(w.routedNetworks.subnets) > 0 {
			want.Routed, want.Source, want.ServiceMTU = w.routedNetworks.subnets, source4(pic.VTEP), w.Underlay.TunnelMTU()
			six = six || w.routedNetworks.six
		}
		led := w.routedNetworks.subnets
		w.routedPrefixes.Store(&led)
	}
	if served {
		want.Ranges = pic.ServiceRanges
	}
	for _, port := range pic.Ports.All() {
		if six = six || port.Private6.IsValid(); six {
			break
		}
	}
	if look {
		w.logRefused()
	}
	problems = append(problems, w.Addresses.blocked...)
	if pic.HostNAT != nil {
		for _, o := range attached {
			port, ok := pic.Ports.Get(o.HostIf)
			if !ok || !o.Private.IsValid() {
				continue
			}
			n, known := pic.Networks.Get(port.Network)
			at := [2]netip.Addr{port.Private, port.Private6} // where the host's stack finds it
			if w.RoutedNetworks && known && n.Routed {
				at = [2]netip.Addr{port.IPv4, port.IPv6}
			} else if port.PrivateNumber() != o.Private {
				continue
			}
			if want.MTU == 0 || o.MTU < want.MTU {
				want.MTU = o.MTU
			}
			if len(o.Ports) == 0 {
				continue
			}
			for _, f := range []struct{ addr, router netip.Addr }{{at[0], n.Router()}, {at[1], n.Router6()}} {
				if f.addr.IsValid() && known {
					want.Endpoints = append(want.Endpoints, hoststack.Endpoint{Addr: f.addr, Ports: o.Ports, Masquerade: !f.router.IsValid()})
				}
			}
		}
		ports := w.dns.Load()
		want.NameServer = uint16(ports)
		if six {
			want.NameServer6 = uint16(ports >> 16)
		} else {
			want.Private = want.Private.WithoutIPv6()
		}
	}
	unmade := w.net.Apply(ctx, want, look)
	for object, err := range unmade {
		problems, failed = append(problems, compile.Problem{Object: object, Text: err.Error()}), append(failed, object)
	}
	var nat *desired.HostNAT
	if served {
		nat = pic.HostNAT
	}
	led := w.fronts.apply(ctx, nat, [2]netip.Addr{source4(pic.VTEP), w.net.Source6()}, look)
	if w.fronts.made {
		for _, p := range w.health.follow(ctx, pic.Services, served) {
			problems, failed = append(problems, p), append(failed, p.Object)
		}
	} else {
		failed = append(failed, frontsObject)
		w.health.unhealthy()
	}
	if changed := w.announceable.follow(pic.Services, served && w.fronts.made); changed && w.Answer != nil {
		w.Answer(w.announceable.addrs())
	}
	return append(problems, led...), failed, len(unmade) == 0
}

// guardEvery is how often Guard asks whether the host's connection tracking has
// room; the kernel fills a fifth of it in about as long.
const guardEvery = time.Second

// Guard keeps containers from filling the host's connection tracking.
func (w *Egress) Guard(ctx context.Context) {
	if !w.Able {
		return
	}
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var natives []netip.Prefix
		if led := w.routedPrefixes.Load(); led != nil {
			natives = *led
		}
		err := w.guard.Check(ctx, w.Addresses.Subnet(), natives)
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != told {
			w.config.Log.Warn("the host's connection tracking cannot be guarded", "error", err)
		}
		told = text
	}
}

// AnswerHealth has the health check ports of services answered, until ctx ends.
func (w *Egress) AnswerHealth(ctx context.Context) {
	<-ctx.Done()
	w.health.close()
}

// watchRetry is the pause before a broken subscription is renewed.
const watchRetry = time.Second

// Watch has what others take from the host's stack put back; fabricTable and fabricRoute
// are called for what a hoststack.Fabric made.
func (w *Egress) Watch(ctx context.Context, fabricTable func(), fabricRoute func(netip.Prefix)) {
	if !w.Able {
		return
	}
	for {
		err := w.net.Watch(ctx, hoststack.Watching{
			Changed: func() { w.config.Agent.Kick("drift") }, Firewall: func() { w.config.Agent.Kick("firewall") }, Route: fabricRoute,
			Table: func(name string) {
				if name == hoststack.GuardTable {
					w.guard.NoteTableLost()
				} else {
					fabricTable()
				}
			},
		})
		if ctx.Err() != nil {
			return
		}
		w.config.Log.Warn("changes of the host's network stack cannot be watched; they are found at the next check only", "error", err)
		if waiting.Pause(ctx, watchRetry) != nil {
			return
		}
	}
}
