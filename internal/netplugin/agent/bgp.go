package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/fabric"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// inspectTime bounds one look at the BGP speaker.
const inspectTime = 5 * time.Second

// bgpRoutes announces this host's routes to the physical network by BGP. Agent.pass hands it
// desired states, from the runner's goroutine; fabric.Router guards what it keeps of them.
type bgpRoutes struct {
	cfg          *Config
	takesUplinks bool
	mirror       *mirror
	fabric       *fabric.Router
}

// newBGPRoutes returns the routes of a host, before any is announced; takesUplinks is
// the driver's capability.
func newBGPRoutes(cfg *Config, takesUplinks bool, m *mirror, repairs hoststack.Repairs, kick func(reason string)) *bgpRoutes {
	return &bgpRoutes{cfg: cfg, takesUplinks: takesUplinks, mirror: m, fabric: fabric.New(fabric.Config{
		StateDir: cfg.StateDir, Uplinks: cfg.Uplinks, Log: cfg.Log,
		Tell: func() { kick("BGP") }, Changes: m.cluster.HostChanges, Repairs: repairs,
	})}
}

// routerInterface is the interface that the data plane makes for BGP where it has taken
// the uplinks; empty = none is wanted.
func (f *bgpRoutes) routerInterface(want desired.Host) string {
	if b, _ := f.mirror.cluster.Hosts.Bgp(); b == nil || !f.takesUplinks || len(f.cfg.Uplinks) == 0 || want.HostNAT == nil || want.FwdMode != model.FwdRouting {
		return ""
	}
	return desired.RouterInterface
}

// followBGP tells the physical network what the data plane now holds.
func (f *bgpRoutes) followBGP(pic statemirror.Compilation, report driver.Report) {
	in := fabric.Input{Desired: pic.Want, Refused: map[string]bool{}}
	if in.Settings, in.OtherTenants = f.mirror.cluster.Hosts.Bgp(); in.Settings != nil {
		in.Machines = append(f.mirror.cluster.Hosts.Addresses(), f.mirror.control.Targets()...)
		in.Networks, in.VLANs = f.mirror.cluster.Lookup.Subnets(), f.mirror.cluster.Lookup.VLANs()
		in.Routers = f.mirror.cluster.Hosts.Routers()
		in.Allowed, in.Underlay = f.mirror.cluster.Settings.TenantPrefixes(), f.nearby()
	}
	for name, st := range report.Ports.All() {
		if st.Err != nil {
			in.Refused[name] = true
		}
	}
	f.fabric.Follow(in)
}

// nearby are the subnets of this host's own addresses towards other hosts, and the
// addresses of its gateways and name servers.
func (f *bgpRoutes) nearby() (out []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		f.cfg.Log.Debug("this host's own addresses cannot be read", "error", err)
	}
	for _, x := range all {
		n, ok := x.(*net.IPNet)
		if !ok {
			continue
		}
		at, _ := netip.AddrFromSlice(n.IP)
		if at = at.Unmap(); at == f.cfg.Control || at == f.cfg.VTEP {
			ones, _ := n.Mask.Size()
			out = append(out, netip.PrefixFrom(at, ones).Masked())
		}
	}
	for at := range hoststack.Lifelines(f.mirror.control.ReachabilityAddresses()) {
		out = append(out, netip.PrefixFrom(at, at.BitLen()))
	}
	return out
}

// getBGP answers as 1.x did, and more.
func (f *bgpRoutes) getBGP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), inspectTime)
	defer cancel()
	writeJSON(w, http.StatusOK, f.fabric.State(ctx))
}

// Unroute takes away what BGP has made on the host; it tells whether there was anything.
func (h *Idle) Unroute(ctx context.Context, log *slog.Logger) (bool, error) {
	was := fabric.HasLeftovers(h.cfg.StateDir)
	return was, fabric.Remove(ctx, h.cfg.StateDir, log)
}
