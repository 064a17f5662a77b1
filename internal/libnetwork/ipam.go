package libnetwork

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Docker's names of the pools' scopes.
const (
	spaceLocal  = "contiv-local"
	spaceGlobal = "contiv-global"
)

// pool is what a pool id says: it carries all there is to know, so that it
// means the same after a restart and asking for it again is harmless.
type pool struct {
	Ref
	prefix netip.Prefix
}

// String is the pool's id: tenant/network/group/address/length.
func (p pool) String() string {
	return strings.Join([]string{string(p.Network.Tenant), string(p.Network.Name), string(p.Group), p.prefix.String()}, "/")
}

func parsePool(id string) (p pool, err error) {
	unknown := model.Errorf(model.ErrNotFound, "pool %q is not one of Contiv's", id)
	f := strings.SplitN(id, "/", 4)
	if len(f) != 4 {
		return p, unknown
	}
	ref, ok, err := parseRef(map[string]string{optTenant: f[0], optNetwork: f[1], optGroup: f[2]})
	if err != nil || !ok || ref.Network.Name == "" {
		return p, unknown
	}
	p.Ref = ref
	if p.prefix, err = netip.ParsePrefix(f[3]); err != nil || p.prefix.Masked() != p.prefix {
		return p, unknown
	}
	return p, nil
}

// requestPool finds the subnet of the network that the IPAM options name. A
// network that does not exist yet is taken as asked for: CreateNetwork follows.
func (p *Plugin) requestPool(ctx context.Context, r requestPoolRequest) (requestPoolResponse, error) {
	var none requestPoolResponse
	ref, ok, err := parseRef(r.Options)
	if err != nil {
		return none, err
	}
	if !ok {
		return none, model.InvalidField("IPAM option network", "",
			"must name the Contiv network: docker network create --ipam-opt network=NAME (and tenant=, group=)")
	}
	if r.SubPool != "" {
		return none, model.InvalidField("SubPool", r.SubPool, "must be empty: a group's pool is given with netctl group create")
	}
	var want netip.Prefix
	if r.Pool != "" {
		if want, err = netip.ParsePrefix(r.Pool); err != nil {
			return none, model.InvalidField("Pool", r.Pool, "must be a subnet such as 10.1.1.0/24")
		}
		want = want.Masked()
	}
	if ref.Group != "" {
		g, err := p.backend.Group(ctx, model.GroupKey{Tenant: ref.Network.Tenant, Name: ref.Group})
		if err != nil {
			return none, err
		}
		ref.Network.Name = g.Network
	}
	n, err := p.backend.Network(ctx, ref.Network)
	if errors.Is(err, model.ErrNotFound) && want.IsValid() {
		return requestPoolResponse{PoolID: pool{ref, want}.String(), Pool: want.String(), Data: map[string]string{}}, nil
	}
	if err != nil {
		return none, err
	}
	subnet, gateway := n.Subnet, n.Gateway
	if r.V6 {
		subnet, gateway = n.Subnet6, n.Gateway6
	}
	switch {
	case !subnet.IsValid():
		return none, model.InvalidField("Pool", r.Pool, "network "+n.Key.String()+" has no subnet of that family")
	case want.IsValid() && want != subnet:
		return none, model.InvalidField("Pool", r.Pool, "must be the subnet of network "+n.Key.String()+", "+subnet.String())
	}
	out := requestPoolResponse{PoolID: pool{ref, subnet}.String(), Pool: subnet.String(), Data: map[string]string{}}
	if gateway.IsValid() {
		out.Data[keyGateway] = netip.PrefixFrom(gateway, subnet.Bits()).String()
	}
	return out, nil
}

func (p *Plugin) releasePool(_ context.Context, r releasePoolRequest) (empty, error) {
	_, err := parsePool(r.PoolID)
	return empty{}, err // a pool lives as long as its network
}

func (p *Plugin) requestAddress(ctx context.Context, r requestAddressRequest) (requestAddressResponse, error) {
	var none requestAddressResponse
	pl, err := parsePool(r.PoolID)
	if err != nil {
		return none, err
	}
	var want netip.Addr
	if r.Address != "" {
		if want, err = netip.ParseAddr(r.Address); err != nil {
			return none, model.InvalidField("Address", r.Address, "must be an IP address")
		}
		if !pl.prefix.Contains(want) {
			return none, model.InvalidField("Address", r.Address, "must lie inside the subnet "+pl.prefix.String())
		}
	}
	answer := func(a netip.Addr) (requestAddressResponse, error) {
		return requestAddressResponse{Address: netip.PrefixFrom(a, pl.prefix.Bits()).String(), Data: map[string]string{}}, nil
	}
	if r.Options[keyAddressType] == keyGateway {
		return p.requestGateway(ctx, pl, want, answer)
	}
	a, err := p.backend.ReserveAddress(ctx, pl.Network, pl.Group, pl.prefix, want)
	if err != nil {
		return none, err
	}
	p.reserved.add(pl.Network, a)
	return answer(a)
}

// requestGateway never allocates. libnetwork insists on an address where the
// network has no gateway: it gets the subnet's own, which nobody can have.
func (p *Plugin) requestGateway(ctx context.Context, pl pool, want netip.Addr, answer func(netip.Addr) (requestAddressResponse, error)) (requestAddressResponse, error) {
	if want.IsValid() {
		return answer(want)
	}
	n, err := p.backend.Network(ctx, pl.Network)
	switch {
	case err != nil && !errors.Is(err, model.ErrNotFound):
		return requestAddressResponse{}, err
	case n.Subnet == pl.prefix && n.Gateway.IsValid():
		return answer(n.Gateway)
	case n.Subnet6 == pl.prefix && n.Gateway6.IsValid():
		return answer(n.Gateway6)
	}
	return answer(pl.prefix.Addr())
}

// releaseAddress frees what this plugin has reserved and no endpoint has taken;
// an endpoint's address goes with the endpoint, and a gateway never.
func (p *Plugin) releaseAddress(ctx context.Context, r releaseAddressRequest) (empty, error) {
	pl, err := parsePool(r.PoolID)
	if err != nil {
		return empty{}, err
	}
	a, err := netip.ParseAddr(r.Address)
	if err != nil {
		return empty{}, model.InvalidField("Address", r.Address, "must be an IP address")
	}
	if !p.reserved.has(pl.Network, a) {
		return empty{}, nil
	}
	if err := p.backend.ReleaseAddress(ctx, pl.Network, a); err != nil {
		return empty{}, err
	}
	p.reserved.taken(pl.Network, []netip.Addr{a})
	return empty{}, nil
}

// reservations are the addresses that this plugin holds for endpoints to come.
// After a restart they are unknown, and run out by themselves.
type reservations struct {
	mu  sync.Mutex
	set map[reservation]bool
}

type reservation struct {
	network model.NetworkKey
	addr    netip.Addr
}

func (s *reservations) add(k model.NetworkKey, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[reservation]bool{}
	}
	s.set[reservation{k, a}] = true
}

func (s *reservations) has(k model.NetworkKey, a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[reservation{k, a}]
}

func (s *reservations) taken(k model.NetworkKey, addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addrs {
		delete(s.set, reservation{k, a})
	}
}
