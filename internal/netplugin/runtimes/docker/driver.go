package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// endpointIf names the interface in an attachment's key; Docker numbers the
// interfaces of a container itself.
const endpointIf = "eth0"

func endpointAttachment(id string) attach.Key {
	return attach.Key{Container: id, IfName: endpointIf}
}

func (p *Plugin) createNetwork(ctx context.Context, r createNetworkRequest) (empty, error) {
	if r.NetworkID == "" {
		return empty{}, model.InvalidField("NetworkID", "", "must not be empty")
	}
	options := stringOptions(r.Options[keyGeneric])
	if err := errors.Join(checkInternal(r.Options), checkReserved(slices.Concat(r.IPv4Data, r.IPv6Data)), checkOptions("-o", options, networkOptions)); err != nil {
		return empty{}, err
	}
	ref, ok, err := parseRef(options)
	if err != nil {
		return empty{}, err
	}
	if !ok {
		return empty{}, p.createPendingName(ctx, r, ref.Network.Tenant, options)
	}
	if old, ok := p.networks.get(r.NetworkID); ok && old.Name() != ref.Name() {
		return empty{}, model.Errorf(model.ErrExists, "network id %s already belongs to %s", short(r.NetworkID), old.Ref)
	}
	if ref.Group != "" {
		g, err := p.backend.Group(ctx, model.GroupKey{Tenant: ref.Network.Tenant, Name: ref.Group})
		if err != nil {
			return empty{}, err
		}
		if ref.Network.Name != "" && g.Network != ref.Network.Name {
			return empty{}, model.Errorf(model.ErrConflict, "group %s is on network %s, not on %s", g.Key, g.Network, ref.Network.Name)
		}
		ref.Network.Name = g.Network
	}
	want, err := wantedNetwork(ref.Network, r, options)
	if err != nil {
		return empty{}, err
	}
	b := binding{Ref: ref, Want: want}
	have, err := p.backend.Network(ctx, ref.Network)
	switch {
	case errors.Is(err, model.ErrNotFound):
		if !want.Subnet.IsValid() {
			return empty{}, err
		}
		if err := p.backend.CreateNetwork(ctx, want); err != nil {
			return empty{}, err
		}
		b.Created = true
		p.log.Info("created a network for Docker", "network", ref.Network.String(), "subnet", want.Subnet)
	case err != nil:
		return empty{}, err
	default:
		if err := differs(want, have, options); err != nil {
			return empty{}, err
		}
	}
	if old, ok := p.networks.get(r.NetworkID); ok {
		b.Created = b.Created || old.Created
	}
	return empty{}, p.networks.put(r.NetworkID, b)
}

// differs refuses what is asked of a network that exists and is otherwise.
func differs(want, have model.Network, options map[string]string) error {
	for _, f := range []struct {
		asked     bool
		what      string
		have, not any
	}{
		{want.Subnet.IsValid() && want.Subnet != have.Subnet, "the subnet", have.Subnet, want.Subnet},
		{want.Subnet6.IsValid() && want.Subnet6 != have.Subnet6, "the IPv6 subnet", have.Subnet6, want.Subnet6},
		{options[optEncap] != "" && want.Encap != have.Encap, "encap", have.Encap, want.Encap},
		{want.ReqTag != 0 && want.ReqTag != have.Tag, "pkt-tag", have.Tag, want.ReqTag},
	} {
		if f.asked {
			return model.Errorf(model.ErrConflict, "network %s exists with %s %v, not %v", have.Key, f.what, f.have, f.not)
		}
	}
	return nil
}

// wantedNetwork is the network that a request describes.
func wantedNetwork(k model.NetworkKey, r createNetworkRequest, options map[string]string) (model.Network, error) {
	n := model.Network{Key: k, Encap: model.EncapVXLAN}
	if s := options[optEncap]; s != "" {
		n.Encap = model.Encap(s) // netmaster checks it
	}
	if s := options[optTag]; s != "" {
		tag, err := strconv.ParseUint(s, 10, 24)
		if err != nil {
			return n, model.InvalidField("option "+optTag, s, "must be a VLAN id or a VNI")
		}
		n.ReqTag = uint32(tag)
	}
	if len(r.IPv4Data) > 1 || len(r.IPv6Data) > 1 {
		return n, model.InvalidField("IPv4Data", len(r.IPv4Data), "at most one subnet of each family is possible")
	}
	for _, f := range []struct {
		data    []ipamData
		subnet  *netip.Prefix
		gateway *netip.Addr
	}{{r.IPv4Data, &n.Subnet, &n.Gateway}, {r.IPv6Data, &n.Subnet6, &n.Gateway6}} {
		for _, d := range f.data {
			pool, err := netip.ParsePrefix(d.Pool)
			if err != nil {
				return n, model.InvalidField("Pool", d.Pool, "must be a subnet such as 10.1.1.0/24")
			}
			*f.subnet = pool.Masked()
			if gw, err := netip.ParsePrefix(d.Gateway); err == nil && gw.Addr() != f.subnet.Addr() {
				*f.gateway = gw.Addr()
			}
		}
	}
	return n, nil
}

// stringOptions reads the generic options, whose values are strings or, with
// some engines, anything.
func stringOptions(generic any) map[string]string {
	out := map[string]string{}
	m, _ := generic.(map[string]any)
	for k, v := range m {
		out[k] = fmt.Sprint(v)
	}
	return out
}

// deleteNetwork removes the Contiv network only if Docker created it. The engine removes
// its own network whatever the answer.
func (p *Plugin) deleteNetwork(ctx context.Context, r networkRequest) (empty, error) {
	b, ok := p.networks.get(r.NetworkID)
	if !ok {
		return empty{}, nil
	}
	if !b.Created || b.Group != "" || b.hasPendingName() {
		return empty{}, p.networks.remove(r.NetworkID)
	}
	// Docker forgets its network whatever the answer is: what fails here is tried again.
	b.Removed = true
	if err := p.networks.put(r.NetworkID, b); err != nil {
		return empty{}, err
	}
	if err := p.deleteRemoved(ctx, r.NetworkID, b); err != nil {
		if p.engine == nil || p.global { // nothing tries again
			return empty{}, fmt.Errorf("the Contiv network is kept: %w", errors.Join(err, p.networks.remove(r.NetworkID)))
		}
		p.wake.Ring()
		return empty{}, fmt.Errorf("the Contiv network is kept, and its deletion is retried for %v: %w", goneAfter, err)
	}
	return empty{}, nil
}

// deleteRemoved deletes the Contiv network of a Docker network that a user has removed,
// unless a user has made it again by now.
func (p *Plugin) deleteRemoved(ctx context.Context, id string, b binding) error {
	if p.networks.made(b.Network) {
		return p.networks.remove(id)
	}
	if err := p.backend.DeleteNetwork(ctx, b.Network); err != nil && !errors.Is(err, model.ErrNotFound) {
		return err
	}
	p.log.Info("deleted a network that Docker had created", "network", b.Network.String())
	return p.networks.remove(id)
}

func (p *Plugin) createEndpoint(ctx context.Context, r createEndpointRequest) (createEndpointResponse, error) {
	var none createEndpointResponse
	b, err := p.network(ctx, r.NetworkID)
	if err != nil {
		return none, err
	}
	if r.EndpointID == "" {
		return none, model.InvalidField("EndpointID", "", "must not be empty")
	}
	if err := checkEndpointOptions(r.Options); err != nil {
		return none, err
	}
	key := endpointAttachment(r.EndpointID)
	if _, ok := p.backend.Attached(key); ok {
		return none, model.Errorf(model.ErrExists, "endpoint %s exists already", short(r.EndpointID))
	}
	in := endpointInterface{}
	if r.Interface != nil {
		in = *r.Interface
	}
	req := attach.Request{
		Key: key, Parked: true, Source: attach.SourceDocker, LabelsLater: p.engine != nil,
		Tenant: string(b.Network.Tenant), Network: string(b.Network.Name), Group: string(b.Group),
	}
	for _, text := range []string{in.Address, in.AddressIPv6} {
		if text == "" {
			continue
		}
		a, err := netip.ParsePrefix(text)
		if err != nil {
			return none, model.InvalidField("Address", text, "must be an address with its length")
		}
		req.Addresses = append(req.Addresses, a.Addr())
	}
	if in.MacAddress != "" {
		if req.MAC, err = model.ParseMAC(in.MacAddress); err != nil {
			return none, err
		}
	}
	res, err := p.backend.Attach(ctx, req)
	if err != nil {
		return none, err
	}
	p.preStart.add(key, r.NetworkID)
	if !p.global { // a swarm's manager releases what it has asked for
		p.reserved.taken(b.Network, req.Addresses)
	}
	return createEndpointResponse{Interface: newParts(in, res)}, nil
}

// newParts returns the parts of the interface that the request left open:
// libnetwork refuses an answer that repeats a part that it gave.
func newParts(in endpointInterface, res attach.Result) *endpointInterface {
	var out endpointInterface
	if in.MacAddress == "" {
		out.MacAddress = res.MAC.String()
	}
	for _, a := range res.Addresses {
		switch {
		case a.Prefix.Addr().Is4() && in.Address == "":
			out.Address = a.Prefix.String()
		case a.Prefix.Addr().Is6() && in.AddressIPv6 == "":
			out.AddressIPv6 = a.Prefix.String()
		}
	}
	if out == (endpointInterface{}) {
		return nil
	}
	return &out
}

func (p *Plugin) deleteEndpoint(ctx context.Context, r endpointRequest) (empty, error) {
	if r.EndpointID == "" {
		return empty{}, model.InvalidField("EndpointID", "", "must not be empty")
	}
	p.routers.leave(r.EndpointID) // an engine that was killed has not said Leave
	return empty{}, p.backend.Detach(ctx, attach.DetachRequest{Key: endpointAttachment(r.EndpointID)})
}

func (p *Plugin) operInfo(_ context.Context, r endpointRequest) (operInfoResponse, error) {
	res, err := p.endpoint(r)
	if err != nil {
		return operInfoResponse{}, err
	}
	return operInfoResponse{Value: map[string]any{
		"endpoint": res.Endpoint, "interface": res.HostIf, "mac": res.MAC.String(), "mtu": strconv.Itoa(res.MTU),
	}}, nil
}

// join names the interface that libnetwork moves into the container. The
// gateway service of Docker (docker_gwbridge) stays off: it would be a way
// around the network's policy.
func (p *Plugin) join(_ context.Context, r joinRequest) (joinResponse, error) {
	res, err := p.endpoint(r.endpointRequest)
	if err != nil {
		return joinResponse{}, err
	}
	out := joinResponse{
		InterfaceName:         &interfaceName{SrcName: res.Parked, DstPrefix: "eth"},
		DisableGatewayService: true,
	}
	for _, a := range res.Addresses {
		switch {
		case !a.Gateway.IsValid():
		case a.Gateway.Is4():
			out.Gateway = a.Gateway.String()
		default:
			out.GatewayIPv6 = a.Gateway.String()
		}
	}
	// The router is in no subnet: it needs a route of its own, of which a container can
	// have one only.
	if out.Gateway == "" && res.Router.IsValid() && p.routers.join(r.SandboxKey, r.EndpointID, res.Router) {
		out.Gateway = res.Router.String()
		out.StaticRoutes = []staticRoute{{Destination: netip.PrefixFrom(res.Router, 32).String(), RouteType: routeConnected}}
	}
	if out.GatewayIPv6 == "" && res.Router6.IsValid() && p.routers.join(r.SandboxKey, r.EndpointID, res.Router6) {
		out.GatewayIPv6 = res.Router6.String()
		out.StaticRoutes = append(out.StaticRoutes, staticRoute{Destination: netip.PrefixFrom(res.Router6, 128).String(), RouteType: routeConnected})
	}
	return out, nil
}

// network finds the Contiv object behind a Docker network. While the name of a
// Docker network is still unknown, it waits.
func (p *Plugin) network(ctx context.Context, id string) (binding, error) {
	return p.networks.await(ctx, func() (binding, error) {
		b, ok := p.networks.get(id)
		if !ok {
			return b, model.Errorf(model.ErrNotFound, "network id %q is not known to this plugin", short(id))
		}
		return b, nil
	})
}

func (p *Plugin) endpoint(r endpointRequest) (attach.Result, error) {
	res, ok := p.backend.Attached(endpointAttachment(r.EndpointID))
	if !ok {
		return res, model.Errorf(model.ErrNotFound, "endpoint %q is not known to this plugin", short(r.EndpointID))
	}
	return res, nil
}

// short is a Docker id as people see it.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
