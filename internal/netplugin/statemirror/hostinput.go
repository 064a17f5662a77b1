package statemirror

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// HostInput tells the Compiler what this host knows by itself: its part of egress, its
// driver's limits, the control plane's addresses and hosts that do not answer. It owns no
// state beside the Compiler's.
type HostInput struct {
	*shared
	comp *compile.Compiler
}

// SetUnreachable has services send the backends on a host no new connections, since
// nothing is heard of it, or (not yes) do so again. It requests a sync.
func (i *HostInput) SetUnreachable(name model.HostName, yes bool) {
	i.mu.Lock()
	i.comp.Hosts.SetUnhealthy(name, yes)
	i.mu.Unlock()
	i.Agent.Kick("a host's silence")
}

// setControl says what containers must not reach past their host.
func (i *HostInput) setControl(targets []netip.AddrPort) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.comp.Control.Set(targets)
}

// SetEgress says which private subnet containers leave by; nil = there is no egress.
func (i *HostInput) SetEgress(p *desired.HostNAT) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.comp.Egress.SetPrivate(p)
}

// LackRoutedNetworks says that the driver leads nothing between the host and routed networks.
func (i *HostInput) LackRoutedNetworks() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.comp.Egress.SetNoRoutedNetworks()
}

// LackExternalBackends says that the driver leads nothing to backends that are no endpoints.
func (i *HostInput) LackExternalBackends() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.comp.Services.SetNoExternalBackends()
}

// SetPrivate says which host-local NAT address an endpoint has; the zero address = none.
func (i *HostInput) SetPrivate(k model.EndpointKey, a netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.comp.Egress.SetPrivateAddress(k, a)
}
