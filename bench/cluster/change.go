package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// change measures what one endpoint's coming and going on another host costs a
// host, by how many endpoints there are: compile, and the driver's Apply.
func (b *bench) change(ctx context.Context) error {
	b.report.table("One endpoint of another host comes or goes (ms, p50 and p99); the network has a local port with a policy of two rules",
		"endpoints", "compile p50", "p99", "OVS driver p50", "p99", "first Apply of all")
	for _, n := range []int{10, 1000, 10000} {
		if err := b.changeAt(ctx, n); err != nil {
			return fmt.Errorf("%d endpoints: %w", n, err)
		}
	}
	return nil
}

func (b *bench) changeAt(ctx context.Context, n int) (err error) {
	l, err := b.lab(ctx, testcluster.Config{Name: fmt.Sprintf("bchg%d", n), Hosts: 1, Bare: true, Driver: testcluster.DriverOVS})
	if err != nil {
		return err
	}
	h := l.Hosts()[0]
	sw, err := rig.Open(ctx, l, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sw.Close()) }()

	w := newTestNetwork(h.Address)
	if err := rig.IP(ctx, h.NS, "link add "+compile.IfName(w.local.Key)+" up type veth peer name peer", "link set peer up"); err != nil {
		return err
	}
	for i := range n {
		w.c.SetEndpoint(w.endpoint(i))
	}
	rev := int64(1)
	apply := func() (compiled, applied time.Duration, err error) {
		rev++
		start := time.Now()
		pic, _ := w.c.Compile(rev)
		compiled = time.Since(start)
		err = h.NS.Do(func() error {
			start := time.Now()
			rep, err := sw.Apply(ctx, pic)
			applied = time.Since(start)
			return errors.Join(err, rig.Failed(rep))
		})
		return compiled, applied, err
	}
	_, first, err := apply()
	if err != nil {
		return err
	}
	var compiled, applied []time.Duration
	for i := range b.n(400) {
		if i%2 == 0 {
			w.c.SetEndpoint(w.endpoint(n + i))
		} else {
			w.c.DeleteEndpoint(w.endpoint(n + i - 1).Key)
		}
		c, a, err := apply()
		if err != nil {
			return err
		}
		compiled, applied = append(compiled, c), append(applied, a)
	}
	us := func(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d.Microseconds())/1000) }
	cells := []any{n}
	for _, d := range [][]time.Duration{compiled, applied} {
		cells = append(cells, us(percentile(d, .5)), us(percentile(d, .99)))
	}
	b.report.row(append(cells, ms(first))...)
	return nil
}

// testNetwork is one with one local endpoint and any number of others.
type testNetwork struct {
	c     *compile.Compiler
	net   model.NetworkKey
	id    model.Identity
	local model.Endpoint
}

func newTestNetwork(vtep netip.Addr) *testNetwork {
	p := &testNetwork{c: compile.New("h1"), net: model.NetworkKey{Tenant: "t", Name: "net"}, id: model.IdentityFirst}
	p.c.SetGlobal(model.Global{
		Infra: model.InfraDefault, FwdMode: model.FwdBridge, ArpMode: model.ArpProxy,
		VLANs: model.TagRange{Lo: 1, Hi: 4094}, VXLANs: model.TagRange{Lo: 1, Hi: 10000}, PvtSubnet: netip.MustParsePrefix("172.19.0.0/16"),
	})
	p.c.SetHost(model.Host{Name: "h1", Control: vtep, VTEP: vtep})
	p.c.SetHost(model.Host{Name: "h2", Control: vtep.Next(), VTEP: vtep.Next()})
	p.c.SetNetwork(model.Network{
		Key: p.net, Type: model.NetworkData, Encap: model.EncapVXLAN, Tag: 7, ID: 1,
		Subnet: netip.MustParsePrefix("10.0.0.0/8"), Subnet6: netip.MustParsePrefix("fd00::/64"),
	})
	policy := model.PolicyKey{Tenant: "t", Name: "p"}
	p.c.SetPolicy(model.ContivPolicy{Key: policy}.General())
	for i, action := range []model.Action{model.Allow, model.Deny} {
		r := model.Rule{
			Key:       model.RuleKey{Tenant: "t", Policy: "p", Rule: model.RuleID(strconv.Itoa(i))},
			Direction: model.In, Priority: 10 - i, Action: action, Protocol: model.AnyProtocol,
		}
		if action == model.Allow {
			r.Group, r.Protocol, r.Port = "g", model.ProtoTCP, 80
		}
		p.c.SetRule(r.General())
	}
	p.c.SetGroup(model.Group{Key: model.GroupKey{Tenant: "t", Name: "g"}, Network: p.net.Name, Policies: []model.PolicyName{"p"}, ID: p.id})
	p.c.SetIdentity(model.IdentityRecord{ID: p.id, Network: p.net, Group: "g"})
	p.local = p.endpoint(1 << 20)
	p.local.Host = "h1"
	p.c.SetEndpoint(p.local)
	return p
}

// endpoint makes the endpoint of a number, on host h2.
func (p *testNetwork) endpoint(i int) model.Endpoint {
	k := i + 2
	v6 := netip.MustParseAddr("fd00::").As16()
	v6[13], v6[14], v6[15] = byte(k>>16), byte(k>>8), byte(k)
	e := model.Endpoint{
		Key: model.EndpointKey{Network: p.net, ID: model.EndpointID(fmt.Sprintf("e%d", i))}, Group: "g", Identity: p.id, Host: "h2",
		IPv4: netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)}), IPv6: netip.AddrFrom16(v6),
	}
	e.MAC = model.EndpointMAC(p.net, e.IPv4, e.IPv6)
	return e
}
