package masterclient

import (
	"context"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Objects are what runtimes ask for beyond attaching: networks and groups as the
// cluster has them now, and addresses before their endpoints exist.
type Objects struct{ netmasters *Client }

// Objects returns them.
func (m *Client) Objects() Objects { return Objects{m} }

// Network returns a network; without one, ErrNotFound.
func (x Objects) Network(ctx context.Context, k model.NetworkKey) (model.Network, error) {
	c := x.netmasters.API()
	if c == nil {
		return model.Network{}, ErrNone
	}
	o, err := c.Networks().Get(ctx, k.String())
	if err != nil {
		return model.Network{}, FromAPI("read network "+k.String(), err)
	}
	return networkOf(o)
}

// Networks returns all networks of all tenants.
func (x Objects) Networks(ctx context.Context) ([]model.Network, error) {
	c := x.netmasters.API()
	if c == nil {
		return nil, ErrNone
	}
	list, err := c.Networks().List(ctx)
	if err != nil {
		return nil, FromAPI("list networks", err)
	}
	out := make([]model.Network, 0, len(list))
	for _, o := range list {
		n, err := networkOf(o)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// Group returns a group; without one, ErrNotFound.
func (x Objects) Group(ctx context.Context, k model.GroupKey) (model.Group, error) {
	c := x.netmasters.API()
	if c == nil {
		return model.Group{}, ErrNone
	}
	o, err := c.EndpointGroups().Get(ctx, k.String())
	if err != nil {
		return model.Group{}, FromAPI("read group "+k.String(), err)
	}
	return groupOf(o), nil
}

// Groups returns all groups of all tenants.
func (x Objects) Groups(ctx context.Context) ([]model.Group, error) {
	c := x.netmasters.API()
	if c == nil {
		return nil, ErrNone
	}
	list, err := c.EndpointGroups().List(ctx)
	if err != nil {
		return nil, FromAPI("list groups", err)
	}
	out := make([]model.Group, 0, len(list))
	for _, o := range list {
		out = append(out, groupOf(o))
	}
	return out, nil
}

// CreateNetwork creates a network; of n only key, encapsulation, requested tag,
// subnets and gateways count.
func (x Objects) CreateNetwork(ctx context.Context, n model.Network) error {
	c, err := x.netmasters.writing()
	if err != nil {
		return err
	}
	o := api.Network{
		TenantName: string(n.Key.Tenant), NetworkName: string(n.Key.Name), Encap: string(n.Encap), PktTag: int(n.ReqTag),
	}
	for _, f := range []struct {
		valid bool
		text  string
		to    *string
	}{
		{n.Subnet.IsValid(), n.Subnet.String(), &o.Subnet},
		{n.Gateway.IsValid(), n.Gateway.String(), &o.Gateway},
		{n.Subnet6.IsValid(), n.Subnet6.String(), &o.IPv6Subnet},
		{n.Gateway6.IsValid(), n.Gateway6.String(), &o.IPv6Gateway},
	} {
		if f.valid {
			*f.to = f.text
		}
	}
	if _, err := c.Networks().Create(ctx, o); err != nil {
		return FromAPI("create network "+n.Key.String(), err)
	}
	return nil
}

// MayCreateNetworks fails where no request to create a network can succeed: the
// netmasters know this host by its certificate, which does not create networks, and it
// has no other token.
func (x Objects) MayCreateNetworks() error {
	_, err := x.netmasters.writing()
	return err
}

// writing returns the client that creates and deletes networks.
func (m *Client) writing() (*api.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.writer == nil:
		return nil, ErrNone
	case m.networkToken == nil && m.token == nil && strings.Contains(m.bases, "https://"):
		return nil, model.Errorf(model.ErrInvalid, "this host may use Contiv networks and not create or delete them: create the network with 'netctl network create' and name it with -o network=NAME, "+
			"or give netplugin the token of an administrator of the tenant with --docker-token-file")
	}
	return m.writer, nil
}

// HasTenant fails with ErrNotFound when there is no such tenant.
func (x Objects) HasTenant(ctx context.Context, t model.TenantName) error {
	c := x.netmasters.API()
	if c == nil {
		return ErrNone
	}
	if _, err := c.Tenants().Get(ctx, string(t)); err != nil {
		return FromAPI("read tenant "+string(t), err)
	}
	return nil
}

// DeleteNetwork deletes a network; without one, ErrNotFound.
func (x Objects) DeleteNetwork(ctx context.Context, k model.NetworkKey) error {
	c, err := x.netmasters.writing()
	if err != nil {
		return err
	}
	if err := c.Networks().Delete(ctx, k.String()); err != nil {
		return FromAPI("delete network "+k.String(), err)
	}
	return nil
}

// ReserveAddress reserves an address for an endpoint that does not exist yet.
func (x Objects) ReserveAddress(ctx context.Context, r attach.AddressRequest) (netip.Addr, error) {
	c := x.netmasters.API()
	if c == nil {
		return netip.Addr{}, ErrNone
	}
	req := api.AllocAddressRequest{
		NetworkID: networkID(r.Network, r.Group), AddressPool: r.Pool.String(), Requester: attach.SourceDocker,
		Host: string(x.netmasters.host), AnyHost: r.AnyHost,
	}
	if r.Preferred.IsValid() {
		req.PreferredIPv4Address = r.Preferred.String()
	}
	resp, err := c.AllocAddress(ctx, req)
	if err != nil {
		return netip.Addr{}, FromAPI("reserve address on network "+r.Network.String(), err)
	}
	text, _, _ := strings.Cut(resp.IPv4Address, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, model.InvalidField("address from netmaster", resp.IPv4Address, "must be an address with its length")
	}
	return addr, nil
}

// ReleaseAddress gives a reserved address back; one that is not reserved any
// more is fine.
func (x Objects) ReleaseAddress(ctx context.Context, k model.NetworkKey, addr netip.Addr) error {
	c := x.netmasters.API()
	if c == nil {
		return ErrNone
	}
	err := c.ReleaseAddress(ctx, api.ReleaseAddressRequest{NetworkID: networkID(k, ""), IPv4Address: addr.String()})
	if err != nil && !api.IsNotFound(err) {
		return FromAPI("release address "+addr.String(), err)
	}
	return nil
}

func networkID(k model.NetworkKey, g model.GroupName) string {
	id := string(k.Name) + "." + string(k.Tenant)
	if g != "" {
		id += ":" + string(g)
	}
	return id
}

// networkOf reads what runtimes need of a network. A subnet may be written as
// first-last/len.
func networkOf(o api.Network) (n model.Network, err error) {
	n.Key = model.NetworkKey{Tenant: model.TenantName(o.TenantName), Name: model.NetworkName(o.NetworkName)}
	n.Type, n.Encap = model.NetworkType(o.NwType), model.Encap(o.Encap)
	bad := func(field, value string) (model.Network, error) {
		return n, model.InvalidField(field+" of network "+n.Key.String(), value, "cannot be read; is this netmaster of the same version?")
	}
	for _, f := range []struct {
		field, text string
		to          *netip.Prefix
	}{{"subnet", o.Subnet, &n.Subnet}, {"ipv6Subnet", o.IPv6Subnet, &n.Subnet6}} {
		if f.text == "" {
			continue
		}
		text := f.text
		if first, rest, ok := strings.Cut(text, "-"); ok {
			_, bits, _ := strings.Cut(rest, "/")
			text = first + "/" + bits
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return bad(f.field, f.text)
		}
		*f.to = p.Masked()
	}
	for _, f := range []struct {
		field, text string
		to          *netip.Addr
	}{{"gateway", o.Gateway, &n.Gateway}, {"ipv6Gateway", o.IPv6Gateway, &n.Gateway6}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = netip.ParseAddr(f.text); err != nil {
			return bad(f.field, f.text)
		}
	}
	return n, nil
}

func groupOf(o api.EndpointGroup) model.Group {
	return model.Group{
		Key:     model.GroupKey{Tenant: model.TenantName(o.TenantName), Name: model.GroupName(o.GroupName)},
		Network: model.NetworkName(o.NetworkName),
	}
}
