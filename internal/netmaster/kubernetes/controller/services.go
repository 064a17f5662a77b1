package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ServicesConfig is what Services are made of; Control, Sources and Tell must be set.
type ServicesConfig struct {
	Control *control.Controller
	Sources map[string]mirror.Source // mirror.ServiceSources
	Ours    *ClusterCheck            // as Config's
	// Ranges are those of services' addresses, beside what the API server says.
	Ranges []netip.Prefix
	// MoreRanges: AddRanges will tell of more. Until it does, ranges that are in the store
	// stay.
	MoreRanges bool
	// External is where services' external addresses may be.
	External []netip.Prefix
	// Pool has the addresses of load balancers; empty = none are given.
	Pool model.AddressPool
	Tell func(Report) // as Config's
}

// Services keeps the services of Kubernetes in the store, as Keeper does policies. It
// is safe for use by several goroutines.
type Services struct {
	config ServicesConfig
	mirror *mirror.Mirror
	work   *workQueue
	more   atomic.Pointer[[]netip.Prefix] // of AddRanges
}

// NewServices returns Services that do nothing until Run and Lead.
func NewServices(c ServicesConfig) *Services {
	s := &Services{config: c, work: newWork(c.Ours)}
	s.mirror = mirror.New(c.Sources, s.work.follow(c.Tell))
	return s
}

// Run follows the API server until ctx ends, whose error it returns. Each replica
// does.
func (s *Services) Run(ctx context.Context) error { return s.mirror.Run(ctx) }

// AddRanges says of all ranges of services' addresses that were found out after
// NewServices.
func (s *Services) AddRanges(more []netip.Prefix) {
	if old := s.more.Swap(&more); old == nil || !slices.Equal(*old, more) {
		s.work.addAll()
	}
}

// ranges are the configured ranges that the API server's ServiceCIDRs lack. kept are ranges
// for which this is not known yet.
func (s *Services) ranges(kept []netip.Prefix) []netip.Prefix {
	more := s.more.Load()
	switch {
	case more != nil:
		return slices.Concat(s.config.Ranges, *more)
	case s.config.MoreRanges:
		return slices.Concat(s.config.Ranges, kept)
	}
	return s.config.Ranges
}

// Lead is Keeper.Lead.
func (s *Services) Lead(ctx context.Context, fence store.Fence) error {
	s.work.begin()
	defer s.work.end()
	if err := s.mirror.AwaitLists(ctx); err != nil {
		return err
	}
	never := func() <-chan struct{} { return nil }
	return s.work.loop(ctx, s.config.Control.Networks.NetworksChanged, never, func(ctx context.Context) error { return s.sync(ctx, fence) })
}

// State returns how s fares now.
func (s *Services) State() State {
	return State{Kinds: s.mirror.States(), Failed: s.work.countFailed()}
}

// Await waits until the API server's objects are known up to a moment; see
// mirror.Mirror.
func (s *Services) Await(ctx context.Context, moment string) error {
	return s.mirror.Await(ctx, moment)
}

// serviceOrder is the sequence in which objects are looked at: whose an address is
// comes first.
var serviceOrder = []string{mirror.ServiceCIDRs, mirror.Nodes, mirror.Services, mirror.EndpointSlices}

// sync is Keeper.pass for services.
func (s *Services) sync(ctx context.Context, fence store.Fence) error {
	todo, all, waits := s.work.take()
	v, err := s.config.Control.View(ctx)
	if err != nil {
		return err
	}
	p := s.round(v, fence)
	if all {
		todo = without(p.everything(), waits)
	}
	order := make([]Object, 0, len(todo))
	ranges := all
	for o := range todo {
		order = append(order, o)
		ranges = ranges || o.Kind == mirror.ServiceCIDRs
	}
	slices.SortFunc(order, func(a, b Object) int {
		return slices.Index(serviceOrder, a.Kind) - slices.Index(serviceOrder, b.Kind)
	})
	if ranges {
		err = p.ranges(ctx)
	}
	for i := 0; i < len(order) && err == nil; i++ {
		err = p.syncObject(ctx, order[i], s.mirror.Get(order[i].Kind, order[i].Name))
	}
	if err == nil {
		err = p.flush(ctx)
	}
	switch {
	case err != nil:
		return err
	case p.moved && !all: // whose an address is has changed, maybe a service's
		s.work.addAll()
	}
	return nil
}

// everything is all that the API server has and the store has.
func (p *serviceSync) everything() map[Object]struct{} {
	out := map[Object]struct{}{}
	add := func(kind, namespace, name string) {
		out[Object{kind, mirror.Name{Namespace: namespace, Name: name}}] = struct{}{}
	}
	for _, kind := range serviceOrder {
		for name := range p.s.mirror.All(kind) {
			out[Object{kind, name}] = struct{}{}
		}
	}
	for _, x := range p.view.Kubernetes.ClusterNodes() {
		add(mirror.Nodes, "", string(x.Name))
	}
	for _, x := range p.view.Kubernetes.ClusterServices() {
		k, _ := x.Key.Cluster()
		add(mirror.Services, string(k.Namespace), k.Name)
	}
	for _, k := range p.view.AddressOwners.BalancedServices() {
		add(mirror.Services, string(k.Namespace), k.Name)
	}
	for _, x := range p.view.Kubernetes.ServiceSlices() {
		add(mirror.EndpointSlices, string(x.Key.Namespace), x.Key.Name)
	}
	return out
}

// report tells what came of an object. What only the object's user can mend is tried
// again when something changes.
func (p *serviceSync) report(r Report) {
	p.s.work.note(r)
	p.s.config.Tell(r)
	if r.Err != nil && !errors.Is(r.Err, model.ErrInvalid) {
		p.s.work.retryLater(r.Object)
	}
}
