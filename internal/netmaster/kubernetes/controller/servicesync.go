package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/store"
)

// serviceSync is one sync of changed services. Rows are written in batches, and objects
// are reported after their rows are written.
type serviceSync struct {
	s      *Services
	leader control.Leader
	view   *control.View

	rows      []serviceRow
	backends  int                            // of rows
	services  int                            // that there are, with those of rows
	frontends int                            // of services
	moved     bool                           // whose an address is may have changed
	outside   map[netip.Addr][]model.Service // that this round gives addresses outside the cluster, which view may not tell yet
}

// serviceRow is a row to be written, or none: what it is of is as it is to be.
type serviceRow struct {
	report Report
	add    func(*control.ClusterRows)
}

// A commit has few rows, since any store must take it: of 16 namespaces they take 50
// operations, and of as many backends some 200,000 bytes.
const (
	rowsAtOnce     = 16
	backendsAtOnce = model.MaxSliceBackends
)

func (s *Services) round(v *control.View, fence store.Fence) *serviceSync {
	p := &serviceSync{s: s, leader: control.Leader(fence), view: v}
	p.services, p.frontends = v.Services.CountServices()
	return p
}

// write has a row written with others.
func (p *serviceSync) write(ctx context.Context, r Report, backends int, add func(*control.ClusterRows)) error {
	if len(p.rows) == rowsAtOnce || p.backends+backends > backendsAtOnce {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	p.rows, p.backends = append(p.rows, serviceRow{r, add}), p.backends+backends
	return nil
}

// flush writes the rows, and tells what came of them. Where all together cannot be
// written each is tried, so that one does not keep out others. The error is that no
// more can be done in this term.
func (p *serviceSync) flush(ctx context.Context) error {
	rows := p.rows
	p.rows, p.backends = nil, 0
	err := p.put(ctx, rows...)
	for _, r := range rows {
		if err != nil && len(rows) > 1 {
			r.report.Err = p.put(ctx, r)
		} else {
			r.report.Err = err
		}
		if errors.Is(r.report.Err, store.ErrFenced) {
			return r.report.Err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.report(r.report)
	}
	return nil
}

func (p *serviceSync) put(ctx context.Context, rows ...serviceRow) error {
	var all control.ClusterRows
	for _, r := range rows {
		r.add(&all)
	}
	if len(rows) == 0 {
		return nil
	}
	return p.s.config.Control.Kubernetes.PutClusterRows(ctx, p.leader, all)
}

// syncObject makes the store's rows what an object means; of one that is gone there are
// none. The error is flush's.
func (p *serviceSync) syncObject(ctx context.Context, o Object, now metav1.Object) error {
	r := Report{Object: o, Live: now}
	switch o.Kind {
	case mirror.Nodes:
		in, _ := now.(*corev1.Node)
		return p.node(ctx, r, in)
	case mirror.Services:
		in, _ := now.(*corev1.Service)
		return p.service(ctx, r, in)
	case mirror.EndpointSlices:
		in, _ := now.(*discoveryv1.EndpointSlice)
		return p.slice(ctx, r, in)
	}
	return nil // ranges does
}

// checked validates a row and reports one that the store would refuse.
func checked[T model.Validator](p *serviceSync, r Report, want T) (model.Valid[T], bool) {
	valid, err := model.Check(want)
	if err != nil {
		r.Err = err
		p.report(r)
	}
	return valid, err == nil
}

func (p *serviceSync) node(ctx context.Context, r Report, in *corev1.Node) error {
	k := model.NodeName(r.Name.Name)
	have, there := p.view.Kubernetes.ClusterNode(k)
	if in == nil {
		if !there {
			return nil
		}
		p.moved = true
		return p.write(ctx, r, 0, func(rows *control.ClusterRows) { rows.NoNodes = append(rows.NoNodes, k) })
	}
	want := translate.Node(in)
	if there && have.Equal(want) {
		p.report(r)
		return nil
	}
	p.moved = p.moved || !slices.Equal(have.Addrs, want.Addrs)
	valid, ok := checked(p, r, want)
	if !ok {
		return nil
	}
	return p.write(ctx, r, 0, func(rows *control.ClusterRows) { rows.Nodes = append(rows.Nodes, valid) })
}

func (p *serviceSync) slice(ctx context.Context, r Report, in *discoveryv1.EndpointSlice) error {
	k := translate.SliceKey(r.Namespace, r.Name.Name)
	have, there := p.view.Kubernetes.ServiceSlice(k)
	var want *model.ServiceSlice
	if in != nil {
		want, r.Problems = translate.Slice(in)
	}
	switch {
	case want == nil && there:
		return p.write(ctx, r, 0, func(rows *control.ClusterRows) { rows.NoSlices = append(rows.NoSlices, k) })
	case want == nil || there && have.Equal(*want):
		p.report(r)
		return nil
	}
	valid, ok := checked(p, r, *want)
	if !ok {
		return nil
	}
	if of, _ := want.ServiceKey().Cluster(); p.movesService(of, *want) {
		p.s.work.add(Object{mirror.Services, mirror.Name{Namespace: string(of.Namespace), Name: of.Name}}) // for when the row is there
	}
	return p.write(ctx, r, len(want.Backends), func(rows *control.ClusterRows) { rows.Slices = append(rows.Slices, valid) })
}

func (p *serviceSync) service(ctx context.Context, r Report, in *corev1.Service) error {
	c := &p.s.config
	k := translate.ServiceKey(r.Namespace, r.Name.Name)
	have, there := p.view.Kubernetes.ClusterService(k)
	a := p.addressing(k, have, func() { p.s.work.retryLater(r.Object) }) // for when the other one gives it up
	var want *model.Service
	if in != nil && a.Balanced(in) {
		var err error
		if a.Given, r.Problems, err = p.balance(ctx, r.Object, k, in); err != nil {
			return err
		}
		r.Balanced = &a.Given
	}
	if in != nil {
		var found []translate.Problem
		want, found = a.Service(in)
		r.Problems = append(r.Problems, found...)
	}
	held := len(p.view.AddressOwners.BalancedAddrs(k)) > 0
	switch {
	case want == nil && there:
		p.services, p.frontends = p.services-1, p.frontends-have.FrontendCount()
		if err := p.write(ctx, r, 0, func(rows *control.ClusterRows) { rows.NoServices = append(rows.NoServices, k) }); err != nil {
			return err
		}
	case want == nil || there && have.Equal(*want):
		p.report(r)
	default:
		valid, ok := checked(p, r, *want)
		if !ok || !p.hasCapacity(r, have, there, *want) {
			return nil
		}
		if err := p.write(ctx, r, 0, func(rows *control.ClusterRows) { rows.Services = append(rows.Services, valid) }); err != nil {
			return err
		}
		for _, at := range want.External {
			if p.outside == nil {
				p.outside = map[netip.Addr][]model.Service{}
			}
			p.outside[at] = append(p.outside[at], *want)
		}
	}
	if r.Balanced != nil || !held {
		return nil
	}
	// Its row has no address of the pool any more before another service gets it.
	if err := p.flush(ctx); err != nil {
		return err
	}
	if _, err := c.Control.Kubernetes.Balance(ctx, p.leader, control.PoolRequest{Service: k}); err != nil {
		return p.failed(ctx, r.Object, err)
	}
	return nil
}

// addressing returns what a service's addresses depend on. taken is called when another service
// has an address.
func (p *serviceSync) addressing(k model.ClusterServiceKey, have model.Service, taken func()) translate.Addressing {
	c := &p.s.config
	a := translate.Addressing{Network: p.networkOf(k, have.Network), DescribeOwner: p.view.AddressOwners.DescribeOwner, External: c.External, Pool: len(c.Pool) > 0}
	a.DescribeServiceOwner = func(at netip.Addr, ports []model.ServicePort) string {
		if whose := p.view.AddressOwners.DescribeServiceOwner(at); whose != "" {
			return whose
		}
		whose := p.view.AddressOwners.DescribeFrontendOwner(k, at, ports)
		for _, other := range p.outside[at] {
			if whose == "" && other.Key != k.ServiceKey() {
				whose = other.DescribeFrontend(ports)
			}
		}
		if whose != "" {
			taken()
		}
		return whose
	}
	return a
}

// hasCapacity counts a service that hosts can hold beside the others, and reports one that they
// cannot hold. A service that does not grow is counted too.
func (p *serviceSync) hasCapacity(r Report, have model.Service, there bool, want model.Service) bool {
	if r.Err = want.CheckCapacity(have, there, p.services, p.frontends); r.Err != nil {
		p.report(r)
		return false
	}
	if !there {
		p.services++
	}
	p.frontends += want.FrontendCount() - have.FrontendCount()
	return true
}

// failed is for what is tried again later; the error is that it is of no use.
func (p *serviceSync) failed(ctx context.Context, o Object, err error) error {
	if errors.Is(err, store.ErrFenced) || ctx.Err() != nil {
		return err
	}
	p.s.work.retryLater(o)
	return nil
}

// balance returns the addresses of the pool that a service has, and why it lacks wanted
// ones.
func (p *serviceSync) balance(ctx context.Context, o Object, k model.ClusterServiceKey, in *corev1.Service) ([]netip.Addr, []translate.Problem, error) {
	wish := control.PoolRequest{Service: k, Pool: p.s.config.Pool}
	wish.V4, wish.V6 = translate.Families(in)
	have := p.view.AddressOwners.BalancedAddrs(k)
	if text := in.Spec.LoadBalancerIP; text != "" {
		if wish.Addr, _ = netip.ParseAddr(text); !wish.Addr.IsValid() {
			return have, []translate.Problem{{Field: "spec.loadBalancerIP", Text: fmt.Sprintf("%q is not an address: the service keeps its address", text)}}, nil
		}
	}
	if p.settled(wish, have) {
		return have, nil, nil
	}
	got, err := p.s.config.Control.Kubernetes.Balance(ctx, p.leader, wish)
	switch {
	case errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrExhausted):
		p.s.work.retryLater(o) // somebody may give one back
		field := "spec.type"
		if wish.Addr.IsValid() {
			field = "spec.loadBalancerIP"
		}
		return got, []translate.Problem{{Field: field, Text: err.Error()}}, nil
	case err != nil:
		return have, nil, p.failed(ctx, o, err)
	case len(got) == 0:
		return nil, []translate.Problem{{Field: "spec.ipFamilies", Text: "the load balancers' pool has no addresses of the service's families"}}, nil
	}
	return got, nil, nil
}

// settled reports whether a service has all that it wishes for.
func (p *serviceSync) settled(w control.PoolRequest, have []netip.Addr) bool {
	want := 0
	for v6, wished := range map[bool]bool{false: w.V4, true: w.V6} {
		if wished && w.Pool.Has(v6) {
			want++
		}
	}
	if len(have) != want || want == 0 || w.Addr.IsValid() && !slices.Contains(have, w.Addr) {
		return false
	}
	for i, a := range have {
		if !w.Pool.Contains(a) || a.Is4() && !w.V4 || a.Is6() && !w.V6 || i > 0 && have[i-1].Is4() == a.Is4() ||
			p.view.AddressOwners.DescribeOwner(a) != "" || p.view.AddressOwners.DescribeServiceOwner(a) != "" {
			return false
		}
	}
	return true
}

// ranges keeps the ranges of services' addresses, and tells whom a network is in the
// way of.
func (p *serviceSync) ranges(ctx context.Context) error {
	var all []*networkingv1.ServiceCIDR
	for _, o := range p.s.mirror.All(mirror.ServiceCIDRs) {
		if c, ok := o.(*networkingv1.ServiceCIDR); ok {
			all = append(all, c)
		}
	}
	have := p.view.AddressOwners.ServiceRanges().Ranges
	want := translate.Ranges(all, p.s.ranges(have))
	if !slices.Equal(want.Ranges, have) {
		p.moved = true
		valid, err := model.Check(want)
		if err == nil {
			err = p.s.config.Control.Kubernetes.PutServiceRanges(ctx, p.leader, valid)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range all {
		r := Report{Object: Object{mirror.ServiceCIDRs, mirror.Name{Name: c.Name}}, Live: c}
		own := translate.Ranges([]*networkingv1.ServiceCIDR{c}, nil)
		for _, n := range p.view.Networks.List("") {
			for _, subnet := range []netip.Prefix{n.Subnet, n.Subnet6} {
				if by, overlaps := own.Overlapping(subnet); subnet.IsValid() && overlaps {
					r.Problems = append(r.Problems, translate.Problem{Field: "spec.cidrs", Text: fmt.Sprintf("%s overlaps %s of network %s: services with addresses there are not served", by, subnet, n.Key)})
				}
			}
		}
		p.report(r)
	}
	return nil
}
