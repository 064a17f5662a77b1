package docker

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// cluster is a Backend with two networks and a group.
type cluster struct {
	mu       sync.Mutex
	nets     map[model.NetworkKey]model.Network
	groups   map[model.GroupKey]model.Group
	reserved map[netip.Addr]bool
	attached map[attach.Key]attach.Result
	next     netip.Addr
	stays    error // why no network can be deleted

	published map[attach.Key][]attach.PortBinding

	described map[string][]string // what was told, by endpoint id
	own       []string            // calls of AnswerOwn and ForgetOwn
	lost      bool                // AnswerOwn fails
	away      bool
	condition string
	readOnly  error // of MayCreateNetworks
	refuse    error // of CreateNetwork
}

func newCluster() *cluster {
	c := &cluster{
		nets: map[model.NetworkKey]model.Network{}, groups: map[model.GroupKey]model.Group{},
		reserved: map[netip.Addr]bool{}, attached: map[attach.Key]attach.Result{}, next: netip.MustParseAddr("10.1.1.1"),
	}
	n := model.Network{
		Key: model.NetworkKey{Tenant: "default", Name: "net1"}, Subnet: netip.MustParsePrefix("10.1.1.0/24"),
		Gateway: netip.MustParseAddr("10.1.1.254"), Subnet6: netip.MustParsePrefix("fd00:1::/64"), Encap: model.EncapVXLAN, Tag: 7,
	}
	lone := model.Network{Key: model.NetworkKey{Tenant: "blue", Name: "lone"}, Subnet: netip.MustParsePrefix("10.1.2.0/24")}
	c.nets[n.Key], c.nets[lone.Key] = n, lone
	g := model.Group{Key: model.GroupKey{Tenant: "default", Name: "web"}, Network: "net1"}
	c.groups[g.Key] = g
	return c
}

func (c *cluster) Attach(_ context.Context, r attach.Request) (attach.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nets[model.NetworkKey{Tenant: model.TenantName(r.Tenant), Name: model.NetworkName(r.Network)}]
	if !r.Parked || r.Source != attach.SourceDocker {
		return attach.Result{}, errors.New("not a request of Docker's")
	}
	res := attach.Result{Endpoint: "ep", Parked: "cwx", HostIf: "cvx", MTU: 1450}
	var v4 netip.Addr
	for _, a := range r.Addresses {
		delete(c.reserved, a)
		if a.Is4() {
			v4 = a
		}
	}
	if !v4.IsValid() {
		v4 = c.next
		c.next = c.next.Next()
	}
	if res.MAC = r.MAC; res.MAC == (model.MAC{}) {
		res.MAC = model.EndpointMAC(n.Key, v4, netip.Addr{})
	}
	res.Addresses = []attach.Address{{Prefix: netip.PrefixFrom(v4, n.Subnet.Bits()), Gateway: n.Gateway}}
	if !n.Gateway.IsValid() {
		res.Router = netip.MustParseAddr("169.254.1.1")
		res.Router6 = netip.MustParseAddr("fe80::1:ff:fe00:1")
	}
	c.attached[r.Key] = res
	return res, nil
}

func (c *cluster) Detach(_ context.Context, r attach.DetachRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attached, r.Key)
	return nil
}

func (c *cluster) Publish(_ context.Context, r attach.PublishRequest) (attach.PublishResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.attached[r.Key]; !ok {
		return attach.PublishResult{}, model.Errorf(model.ErrNotFound, "no such attachment")
	}
	if c.published == nil {
		c.published = map[attach.Key][]attach.PortBinding{}
	}
	c.published[r.Key] = r.Ports
	return attach.PublishResult{Ports: r.Ports}, nil
}

func (c *cluster) Published(k attach.Key) []attach.PortBinding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.published[k]
}

func (c *cluster) Attached(k attach.Key) (attach.Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.attached[k]
	return r, ok
}

func (c *cluster) AttachedBy(string) []attach.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []attach.Key
	for k := range c.attached {
		out = append(out, k)
	}
	return out
}

func (c *cluster) Network(_ context.Context, k model.NetworkKey) (model.Network, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nets[k]
	if !ok {
		return n, model.Errorf(model.ErrNotFound, "network %q does not exist", k)
	}
	return n, nil
}

func (c *cluster) Networks(context.Context) ([]model.Network, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []model.Network
	for _, n := range c.nets {
		out = append(out, n)
	}
	return out, nil
}

// backend is the cluster as a Plugin knows it.
func (c *cluster) backend() Backend { return Backend{c, c, c} }

func (c *cluster) SetCondition(_, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.condition = text
}

func (c *cluster) says() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.condition
}

func (c *cluster) MayCreateNetworks() error { return c.readOnly }

func (c *cluster) HasTenant(_ context.Context, t model.TenantName) error {
	if t != "default" && t != "blue" {
		return model.Errorf(model.ErrNotFound, "tenant %q does not exist", t)
	}
	return nil
}

func (c *cluster) CreateNetwork(_ context.Context, n model.Network) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse == nil {
		c.nets[n.Key] = n
	}
	return c.refuse
}

func (c *cluster) DeleteNetwork(_ context.Context, k model.NetworkKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stays != nil {
		return c.stays
	}
	delete(c.nets, k)
	return nil
}

func (c *cluster) Group(_ context.Context, k model.GroupKey) (model.Group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.groups[k]
	if !ok {
		return g, model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", k)
	}
	return g, nil
}

func (c *cluster) Groups(context.Context) ([]model.Group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []model.Group
	for _, g := range c.groups {
		out = append(out, g)
	}
	return out, nil
}

func (c *cluster) ReserveAddress(_ context.Context, r AddressRequest) (netip.Addr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := r.Preferred
	if !want.IsValid() {
		want = c.next
		c.next = c.next.Next()
	}
	if c.reserved[want] {
		return want, model.Errorf(model.ErrConflict, "%s is taken", want)
	}
	c.reserved[want] = true
	return want, nil
}

func (c *cluster) ReleaseAddress(_ context.Context, _ model.NetworkKey, a netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, a)
	return nil
}
