package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Docker's names of the address spaces that pools are in.
const (
	spaceLocal  = "contiv-local"
	spaceGlobal = "contiv-global"
)

// pool is the contents of a pool id. The id carries everything, so that it means the
// same after a restart, and asking for a pool twice is harmless.
type pool struct {
	Ref
	prefix netip.Prefix
}

// String is the pool's id: tenant/network/group/address/length. The network is empty
// where a user creates a Docker network without naming a Contiv network.
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
	if err != nil || ok != (ref.Network.Name != "") {
		return p, unknown // there is no group without a network
	}
	if p.Ref = ref; !ok {
		p.Network.Tenant = model.TenantName(f[0])
	}
	if p.prefix, err = netip.ParsePrefix(f[3]); err != nil || p.prefix.Masked() != p.prefix {
		return p, unknown
	}
	return p, nil
}

// ipam is the engine's IPAM driver: it owns the pools offered to the engine and, together with
// the network driver, the addresses reserved for endpoints that are not created yet.
type ipam struct {
	backend  Backend
	engine   *engine // nil = none
	global   bool
	networks *networks
	reserved *reservations
	offered  offers
}

// requestPool finds the subnet of the network that the IPAM options name. If the
// network does not exist yet, the pool is the one asked for: CreateNetwork follows.
func (i *ipam) requestPool(ctx context.Context, r requestPoolRequest) (requestPoolResponse, error) {
	var none requestPoolResponse
	if err := checkOptions("--ipam-opt", r.Options, addressOptions); err != nil {
		return none, err
	}
	ref, ok, err := parseRef(r.Options)
	if err != nil {
		return none, err
	}
	if !ok && (i.engine == nil || i.global || r.Pool == "") {
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
	if !ok { // its name is learnt later; until then its subnet finds it
		ref.Network.Tenant = model.TenantName(r.Options[optTenant]) // checked above
		return requestPoolResponse{PoolID: pool{ref, want}.String(), Pool: want.String(), Data: map[string]string{}}, nil
	}
	if ref.Group != "" {
		g, err := i.backend.Group(ctx, model.GroupKey{Tenant: ref.Network.Tenant, Name: ref.Group})
		if err != nil {
			return none, err
		}
		ref.Network.Name = g.Network
	}
	n, err := i.backend.Network(ctx, ref.Network)
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
	if r.Pool == "" && !r.V6 && !i.global {
		if err := i.offered.isRepeated(out.PoolID, subnet); err != nil {
			return none, err
		}
	}
	if gateway.IsValid() {
		out.Data[keyGateway] = netip.PrefixFrom(gateway, subnet.Bits()).String()
	}
	return out, nil
}

// offers are pools that this host's routes cover, and that were offered to an engine that
// has not taken them yet. Engines before 28 ask for another pool then, without end.
type offers struct {
	mu     sync.Mutex
	pools  map[string]bool
	routes func(netip.Prefix) ([]string, error) // Config.Routes
}

// isRepeated fails when a pool is asked for once more that the engine has not taken.
func (o *offers) isRepeated(id string, subnet netip.Prefix) error {
	if o.routes == nil {
		return nil
	}
	covered, err := o.routes(subnet)
	if err != nil || len(covered) == 0 {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pools[id] {
		if o.pools == nil {
			o.pools = map[string]bool{}
		}
		o.pools[id] = true
		return nil
	}
	delete(o.pools, id)
	const few = 3
	more := ""
	if n := len(covered) - few; n > 0 {
		covered, more = covered[:few], fmt.Sprintf(" and %d more", n)
	}
	return model.Errorf(model.ErrConflict, "this engine does not choose subnet %s by itself, since this host has %s%s, perhaps for a service of the network; name the subnet: docker network create --subnet %s ...",
		subnet, strings.Join(covered, ", "), more, subnet)
}

func (o *offers) taken(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pools, id)
}

func (i *ipam) releasePool(_ context.Context, r releasePoolRequest) (empty, error) {
	_, err := parsePool(r.PoolID)
	return empty{}, err // a pool lives as long as its network
}

// poolOf reads a pool's id. If the id names no network, the network is found by its
// subnet, and poolOf waits for its name, unless knowing the subnet is enough.
func (i *ipam) poolOf(ctx context.Context, id string, named bool) (pool, error) {
	pl, err := parsePool(id)
	if err != nil || pl.Network.Name != "" || !named {
		return pl, err
	}
	b, err := i.networks.await(ctx, func() (binding, error) {
		return i.networks.find(pl)
	})
	pl.Ref = b.Ref
	return pl, err
}

// isUnmade reports whether a pool belongs to a network that is just being created
// without a name: Docker asks for the addresses that it keeps aside before it tells
// the driver of the network.
func (i *ipam) isUnmade(id string) bool {
	pl, err := parsePool(id)
	return err == nil && pl.Network.Name == ""
}

func (i *ipam) requestAddress(ctx context.Context, r requestAddressRequest) (requestAddressResponse, error) {
	var none requestAddressResponse
	i.offered.taken(r.PoolID)
	gateway := r.Options[keyAddressType] == keyGateway
	pl, err := i.poolOf(ctx, r.PoolID, !gateway)
	if !gateway && r.Address != "" && errors.Is(err, model.ErrNotFound) && i.isUnmade(r.PoolID) {
		return none, model.InvalidField("--aux-address", r.Address, "is not possible when the network is made: Contiv has no network yet to keep it out of. "+
			"Leave it out; 'netctl group create --ip-pool' says which addresses a group hands out")
	}
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
	if gateway {
		return i.requestGateway(ctx, pl, want, answer)
	}
	a, err := i.reserve(ctx, AddressRequest{Network: pl.Network, Group: pl.Group, Pool: pl.prefix, Preferred: want, AnyHost: i.global})
	if i.global && want.IsValid() && errors.Is(err, model.ErrConflict) {
		// A swarm's manager reserves addresses for its workers, and each worker asks for
		// the address that it was given; whether it is free shows when the endpoint is made.
		return answer(want)
	}
	if err != nil {
		return none, err
	}
	i.reserved.add(pl.Network, a)
	return answer(a)
}

// reserveTime is how long a reservation is tried for that finds no address.
const reserveTime = 3 * time.Second

// reserve reserves an address. Containers that start at once may reserve all that this host
// gets of a small pool: when one of them is attached, the next one gets its address.
func (i *ipam) reserve(ctx context.Context, r AddressRequest) (a netip.Addr, err error) {
	began := time.Now()
	for {
		if a, err = i.backend.ReserveAddress(ctx, r); !errors.Is(err, model.ErrExhausted) || time.Since(began) > reserveTime {
			return a, err
		}
		if waiting.Pause(ctx, reserveTime/20) != nil {
			return a, err
		}
	}
}

// requestGateway never allocates. Where the network has no gateway, libnetwork still
// insists on an address: it gets the subnet's first, which no endpoint can have.
func (i *ipam) requestGateway(ctx context.Context, pl pool, want netip.Addr, answer func(netip.Addr) (requestAddressResponse, error)) (requestAddressResponse, error) {
	if want.IsValid() {
		return answer(want)
	}
	if pl.Network.Name == "" {
		return answer(pl.prefix.Addr())
	}
	n, err := i.backend.Network(ctx, pl.Network)
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

// releaseAddress frees an address that this plugin has reserved and no endpoint has
// taken. An endpoint's address is freed with the endpoint, a gateway never.
func (i *ipam) releaseAddress(ctx context.Context, r releaseAddressRequest) (empty, error) {
	pl, err := i.poolOf(ctx, r.PoolID, false)
	if err != nil {
		return empty{}, err
	}
	if pl.Network.Name == "" {
		if b, err := i.networks.find(pl); err == nil {
			pl.Ref = b.Ref // otherwise the gateway of a network that came to nothing
		}
	}
	a, err := netip.ParseAddr(r.Address)
	if err != nil {
		return empty{}, model.InvalidField("Address", r.Address, "must be an IP address")
	}
	if !i.reserved.last(pl.Network, a) {
		return empty{}, nil
	}
	if err := i.backend.ReleaseAddress(ctx, pl.Network, a); err != nil && !errors.Is(err, model.ErrInUse) {
		return empty{}, err // in use: it goes with the endpoint that has it
	}
	i.reserved.taken(pl.Network, []netip.Addr{a})
	return empty{}, nil
}

// reservations are the addresses that this plugin holds for future endpoints, each
// with the number of requests for it: in a swarm an address may be given to the next
// task before the former task has released it. A restart forgets them, and they
// expire by themselves.
type reservations struct {
	mu  sync.Mutex
	set map[reservation]int
}

type reservation struct {
	network model.NetworkKey
	addr    netip.Addr
}

func (s *reservations) add(k model.NetworkKey, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[reservation]int{}
	}
	s.set[reservation{k, a}]++
}

// last counts a release, and tells whether it was the last: as many releases as
// requests.
func (s *reservations) last(k model.NetworkKey, a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := reservation{k, a}
	if s.set[r] > 1 {
		s.set[r]--
		return false
	}
	return s.set[r] == 1
}

func (s *reservations) taken(k model.NetworkKey, addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addrs {
		delete(s.set, reservation{k, a})
	}
}
