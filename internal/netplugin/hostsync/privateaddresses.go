package hostsync

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// settings are the cluster's: *statemirror.Settings.
type settings interface {
	Global() (g model.Global, known bool)
}

// compilerInput is what the Compiler learns of this host: *statemirror.HostInput.
type compilerInput interface {
	SetEgress(*desired.HostNAT)
	SetPrivate(model.EndpointKey, netip.Addr)
}

// PrivateAddresses owns the host-local NAT addresses: which attachment has which, and
// whether the cluster's private subnet can be used on this host. Attachments take, keep and
// release addresses; the runner's goroutine refreshes.
type PrivateAddresses struct {
	enabled, enabled6 bool // as of EgressConfig
	tunnelPort        uint16
	log               *slog.Logger
	settings          settings
	input             compilerInput

	mu      sync.Mutex
	subnet  *desired.HostNAT // as the cluster is set; nil = not known yet
	taken   map[netip.Addr]attach.Key
	next    netip.Addr // where the search for a free address begins
	checked bool       // subnet does not collide
	blocked []compile.Problem
}

func newPrivateAddresses(log *slog.Logger, settings settings, input compilerInput, cfg EgressConfig) *PrivateAddresses {
	return &PrivateAddresses{
		enabled: cfg.Able, enabled6: cfg.Able6, tunnelPort: uint16(cfg.VXLANPort), log: log,
		settings: settings, input: input, taken: map[netip.Addr]attach.Key{},
	}
}

// Subnet returns the private subnet as the cluster is set now; nil while unknown.
func (d *PrivateAddresses) Subnet() *desired.HostNAT {
	p, _ := d.knownSubnet()
	return p
}

// knownSubnet is Settled, and whether the cluster's settings are known.
func (d *PrivateAddresses) knownSubnet() (*desired.HostNAT, bool) {
	if !d.enabled {
		return nil, true
	}
	g, known := d.settings.Global()
	d.mu.Lock()
	defer d.mu.Unlock()
	want := desired.NewHostNAT(g.PvtSubnet)
	if want != nil {
		want.TunnelPort = d.tunnelPort
		if d.enabled6 {
			want.WithIPv6()
		}
	}
	if known && (d.subnet == nil || want == nil || *want != *d.subnet) {
		d.subnet, d.checked = want, false
	}
	return d.subnet, known
}

// Take finds a private address for a new attachment: the next free one after
// the last that was handed out, so that addresses come back late. The zero
// address while there is no egress; ErrExhausted when all are taken.
func (d *PrivateAddresses) Take(k attach.Key, ep model.EndpointKey) (netip.Addr, error) {
	p := d.Subnet()
	if p == nil {
		return netip.Addr{}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.next
	for range 1 << (32 - p.Subnet.Bits()) {
		if !p.Contains(a) {
			a = p.Subnet.Addr().Next()
		}
		if _, used := d.taken[a]; !used {
			d.taken[a], d.next = k, a.Next()
			d.input.SetPrivate(ep, a)
			return a, nil
		}
		a = a.Next()
	}
	return netip.Addr{}, model.Errorf(model.ErrExhausted,
		"private subnet %s has no address left for another container on this host: all %d are taken", p.Subnet, len(d.taken))
}

// Keep takes the private address that an attachment has had, unless another one has
// it too (a journal that was edited): then Has says that this attachment has none,
// and it gets another.
func (d *PrivateAddresses) Keep(k attach.Key, ep model.EndpointKey, a netip.Addr) {
	if !a.IsValid() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, used := d.taken[a]; used {
		return
	}
	d.taken[a] = k
	if d.next.Less(a.Next()) {
		d.next = a.Next()
	}
	d.input.SetPrivate(ep, a)
}

// Release gives an attachment's address back.
func (d *PrivateAddresses) Release(k attach.Key, ep model.EndpointKey, a netip.Addr) {
	d.mu.Lock()
	if d.taken[a] == k {
		delete(d.taken, a)
	}
	d.mu.Unlock()
	d.input.SetPrivate(ep, netip.Addr{})
}

// Taken counts the private addresses that attachments have.
func (d *PrivateAddresses) Taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.taken)
}

// Has reports whether an attachment has a private address of the present subnet,
// or none is to be had.
func (d *PrivateAddresses) Has(k attach.Key, a netip.Addr) bool {
	p := d.Subnet()
	if p == nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.Contains(a) && d.taken[a] == k
}

// Refresh tells the compiler of egress, unless the private subnet collides
// with a network of this host: then there is none, and a problem says why. Where
// the network came later, which is seen with look only, egress stays for
// containers whose addresses do not collide, and the problem says so. Only the
// runner's goroutine calls it. It returns whether the cluster's settings were known:
// until then a desired state has no egress, and would take the one away that an earlier
// netplugin has left.
func (d *PrivateAddresses) Refresh(look bool) (known bool) {
	p, known := d.knownSubnet()
	d.mu.Lock()
	defer d.mu.Unlock()
	if p == nil || d.checked && !look {
		return known
	}
	routes, pools, err := vethpair.Overlaps(p.Subnet, p.Interface)
	routes6, pools6, err6 := vethpair.Overlaps(p.Subnet6, p.Interface)
	err, pools = errors.Join(err, err6), append(pools, pools6...)
	var blocked6 []compile.Problem
	if len(routes6) > 0 {
		blocked6 = []compile.Problem{{Object: "IPv6 egress", Text: "containers reach neither this host nor the outside by IPv6: private subnet " +
			p.Subnet6.String() + " collides with " + strings.Join(routes6, ", ") + " of this host; that network needs another subnet"}}
	}
	if d.checked {
		if err == nil {
			d.blocked = blocked6
		}
		if len(routes) > 0 {
			d.blocked = append(collision("containers with private addresses there reach neither this host nor the outside: ", p, routes), blocked6...)
		}
		return known
	}
	switch {
	case err != nil:
		d.log.Debug("the host's routes cannot be compared with the private subnet", "error", err)
	case len(pools) > 0:
		d.log.Warn("the cluster's private subnet collides with address pools of this host's Docker engine; "+anotherSubnet,
			"privateSubnet", p.Subnet, "collidesWith", pools)
	}
	d.blocked = blocked6
	d.checked = len(routes) == 0 && len(routes6) == 0 // what collides may go
	switch {
	case len(routes) > 0:
		d.blocked = collision("containers reach neither this host nor the outside: ", p, routes)
		p = nil
	case len(routes6) > 0:
		p = p.WithoutIPv6()
	}
	d.input.SetEgress(p)
	return known
}

func collision(effect string, p *desired.HostNAT, routes []string) []compile.Problem {
	return []compile.Problem{{Object: "egress", Text: effect + "private subnet " +
		p.Subnet.String() + " collides with " + strings.Join(routes, ", ") + " of this host; " + anotherSubnet}}
}

const anotherSubnet = "choose another with 'netctl global set --private-subnet a.b.0.0/16' (and --private-subnet of netplugin, if given)"
