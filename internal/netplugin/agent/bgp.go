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

func (a *Agent) newFabric() *fabric.Router {
	return fabric.New(fabric.Config{
		StateDir: a.cfg.StateDir, Uplinks: a.cfg.Uplinks, Log: a.log,
		Tell: func() { a.kick("BGP") },
	})
}

// routerInterface is the interface that the data plane makes for BGP where it has taken
// the uplinks; empty = none is wanted.
func (a *Agent) routerInterface(want desired.Host) string {
	if b, _ := a.cluster.Hosts.Bgp(); b == nil || !a.can.TakesUplinks || len(a.cfg.Uplinks) == 0 || want.Private == nil || want.FwdMode != model.FwdRouting {
		return ""
	}
	return desired.RouterInterface
}

// followBGP tells the physical network what the data plane now holds.
func (a *Agent) followBGP(pic statemirror.Compilation, report driver.Report) {
	in := fabric.Input{Picture: pic.Want, Refused: map[string]bool{}}
	if in.Settings, in.Rivals = a.cluster.Hosts.Bgp(); in.Settings != nil {
		in.Machines = append(a.cluster.Hosts.Addresses(), a.control.Targets()...)
		in.Networks, in.VLANs = a.cluster.Lookup.Subnets(), a.cluster.Lookup.VLANs()
		in.Allowed, in.Near = a.cluster.Settings.TenantPrefixes(), a.nearby()
	}
	for name, st := range report.Ports.All() {
		if st.Err != nil {
			in.Refused[name] = true
		}
	}
	a.fabric.Follow(in)
}

// nearby are the subnets of this host's own addresses towards other hosts, and the
// addresses of its gateways and name servers.
func (a *Agent) nearby() (out []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		a.log.Debug("this host's own addresses cannot be read", "error", err)
	}
	for _, x := range all {
		n, ok := x.(*net.IPNet)
		if !ok {
			continue
		}
		at, _ := netip.AddrFromSlice(n.IP)
		if at = at.Unmap(); at == a.cfg.Control || at == a.cfg.VTEP {
			ones, _ := n.Mask.Size()
			out = append(out, netip.PrefixFrom(at, ones).Masked())
		}
	}
	for at := range hoststack.Lifelines() {
		out = append(out, netip.PrefixFrom(at, at.BitLen()))
	}
	return out
}

// getBGP answers as 1.x did, and more.
func (a *Agent) getBGP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), inspectTime)
	defer cancel()
	writeJSON(w, http.StatusOK, a.fabric.State(ctx))
}

// Unroute takes away what BGP has made on the host; it tells whether there was anything.
func (h *Idle) Unroute(ctx context.Context, log *slog.Logger) (bool, error) {
	was := fabric.Left(h.cfg.StateDir)
	return was, fabric.Remove(ctx, h.cfg.StateDir, log)
}
