package attachment

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// Interfaces makes containers' interfaces, and waits until the data plane has their ports.
// It owns no state.
type Interfaces struct{ *deps }

// routedFamilies tells by which families the virtual router leads an endpoint with a private
// address somewhere: out through the host, or to its tenant's other networks.
func (a *Interfaces) routedFamilies(ep model.Endpoint, private netip.Addr) (v4, v6 bool) {
	routed := a.can.Routes && a.cluster.Settings.Routes()
	return ep.IPv4.IsValid() && (routed || private.IsValid()), ep.IPv6.IsValid() && (routed || a.way.Addresses.Subnet().Private6(private).IsValid())
}

// addresses are those of an endpoint; led6 tells whether the router leads its IPv6
// somewhere.
func addresses(n model.Network, ep model.Endpoint, led6 bool) []attach.Address {
	var out []attach.Address
	if ep.IPv4.IsValid() {
		out = append(out, attach.Address{Prefix: netip.PrefixFrom(ep.IPv4, n.Subnet.Bits()), Gateway: n.Gateway})
	}
	if ep.IPv6.IsValid() {
		gw := n.Gateway6
		if n.Encap != model.EncapVLAN && !led6 {
			// There is no gateway. Without a default route external connections fail at
			// once as unreachable.
			gw = netip.Addr{}
		}
		out = append(out, attach.Address{Prefix: netip.PrefixFrom(ep.IPv6, n.Subnet6.Bits()), Gateway: gw})
	}
	return out
}

// parkedName names the container's side of a pair while it is on the host.
func parkedName(hostIf string) string { return "cw" + hostIf[2:] }

// configure sets up the container's side and returns the routes that it made.
func (a *Interfaces) configure(res attach.Result) ([]attach.Route, error) {
	in := vethpair.ContainerConfig{
		Netns: res.Netns, IfName: res.IfName, MAC: res.MAC,
		TxChecksumOff: a.can.UserSpace,
	}
	if res.Parked != "" {
		in.IfName = res.Parked
		return nil, vethpair.Park(in)
	}
	in.Addresses, in.Gateways = addressesAndGateways(res)
	routed, err := vethpair.Configure(in)
	if err != nil {
		return nil, err
	}
	var out []attach.Route
	for _, gw := range routed {
		dst := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if gw.Is4() {
			dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		out = append(out, attach.Route{Dst: dst, Gateway: gw})
	}
	return out, nil
}

// SetTxChecksum switches the checksum offload of all containers' interfaces.
func (a *Interfaces) SetTxChecksum(on bool) {
	pairs := map[string]string{}
	for _, e := range a.journal.all() {
		pairs[e.HostIf] = e.Request.Netns
	}
	if err := vethpair.SetTxChecksum(pairs, on); err != nil {
		a.log.Warn("the checksum offload of some containers' interfaces cannot be set as the driver needs it", "wanted", on, "error", err)
	}
}
