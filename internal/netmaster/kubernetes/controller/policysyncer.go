package controller

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Object names an object of Kubernetes.
type Object struct {
	Kind string // of mirror
	mirror.Name
}

// Report is the result of an object: which parts of it cannot be realised, and why it is
// not in force as written, if so; it is tried again then.
type Report struct {
	Object
	Live     metav1.Object // nil = it is gone
	Problems []translate.Problem
	Err      error
	// Balanced are the addresses of the load balancers' pool that a service has, for its
	// status; nil = that is somebody else's.
	Balanced *[]netip.Addr
	// WriteBack is, of an object in which intent is written, its status, and whether it has to
	// wait with its end; nil = of another kind.
	WriteBack *WriteBack
}

// Config is what a Keeper is made of; all fields must be set but Choices, Ours and Intent.
type Config struct {
	Control *control.Controller
	Intent  *Objects                 // for which pods wait too; nil = there are none
	Sources map[string]mirror.Source // of the four kinds of mirror
	Ours    *ClusterCheck            // while it has an error nothing is kept; nil = never
	Choices translate.Choices
	// Tell is called for an object at each sync of it, also when all is well, but not for
	// an object that was deleted while there was no leader. It must not wait.
	Tell func(Report)
}

// PolicySyncer keeps the store in step. It is safe for use by several goroutines.
type PolicySyncer struct {
	config Config
	mirror *mirror.Mirror
	work   *workQueue
	step   barrier // for who waits until the store is in step

	lingering time.Duration                 // how long a policy stays in a tenant that no namespace names and that has no pods
	idle      map[model.PolicyKey]time.Time // since when such ones are known; for passes alone
}

// New returns a Keeper that does nothing until Run and Lead.
func New(c Config) *PolicySyncer {
	k := &PolicySyncer{config: c, work: newWork(c.Ours), lingering: time.Minute, idle: map[model.PolicyKey]time.Time{}}
	k.mirror = mirror.New(c.Sources, k.note)
	return k
}

// Run follows the API server until ctx ends, whose error it returns. Each replica
// does.
func (k *PolicySyncer) Run(ctx context.Context) error { return k.mirror.Run(ctx) }

// note remembers what is to be looked at, for the leader.
func (k *PolicySyncer) note(kind string, name mirror.Name, old, now metav1.Object) {
	if kind == mirror.Pods && now == nil {
		k.config.Tell(Report{Object: Object{kind, name}})
	}
	switch {
	case kind == mirror.Pods && k.config.Choices.Tenant && tenantLabel(old) != tenantLabel(now):
		k.work.addAll()
	case kind == mirror.Pods && (old == nil || now == nil || maps.Equal(old.GetLabels(), now.GetLabels()) && podRequests(old) == podRequests(now)):
		// an endpoint that comes is looked at when it comes
	case kind == mirror.Namespaces && (old == nil || now == nil || placementLabels(old) != placementLabels(now)):
		k.work.addAll() // also what policies there are, and in which tenants
	default:
		k.work.add(Object{kind, name})
	}
}

// placementLabels are the labels of a namespace that say where its pods belong.
func placementLabels(o metav1.Object) [3]string {
	l := o.GetLabels()
	return [3]string{l[translate.LabelTenant], l[translate.LabelNetwork], l[translate.LabelGroup]}
}

// podRequests are the addresses and rates for which a pod asks.
func podRequests(o metav1.Object) [4]string {
	a := o.GetAnnotations()
	return [4]string{a[translate.AnnotationIPv4], a[translate.AnnotationIPv6], a[translate.AnnotationReceive], a[translate.AnnotationSend]}
}

func tenantLabel(o metav1.Object) string {
	if o == nil {
		return ""
	}
	return o.GetLabels()[translate.LabelTenant]
}

// Lead keeps the store in step until ctx ends, or the leadership is lost, whose error
// is store.ErrFenced. It begins when the API server has told all that it has: before
// that nothing is taken for deleted.
func (k *PolicySyncer) Lead(ctx context.Context, fence store.Fence) error {
	k.work.begin()
	defer k.work.end()
	if err := k.mirror.AwaitLists(ctx); err != nil {
		return err
	}
	c := k.config.Control
	return k.work.loop(ctx, c.Settings.IntentChanged, c.Endpoints.PodsChanged, func(ctx context.Context) error { return k.sync(ctx, fence) })
}

// sync looks at all that has changed.
func (k *PolicySyncer) sync(ctx context.Context, fence store.Fence) error {
	todo, all, waits := k.work.take()
	v, err := k.config.Control.View(ctx)
	if err != nil {
		return err
	}
	p := k.round(v)
	p.leader = control.Leader(fence)
	if all {
		todo = without(p.everything(), waits)
	}
	p.addClusterPolicies(todo)
	for _, e := range v.Pods.TakeWritten() {
		todo[podOf(e)] = struct{}{}
		p.addTenantPolicies(e, todo)
	}
	// Namespaces first: a policy selects by their labels.
	order := make([]Object, 0, len(todo))
	for o := range todo {
		order = append(order, o)
	}
	slices.SortFunc(order, func(a, b Object) int { return p.rank(a) - p.rank(b) })
	for _, o := range order {
		now := k.mirror.Get(o.Kind, o.Name)
		problems, err := p.syncObject(ctx, o, now)
		switch {
		case errors.Is(err, store.ErrFenced) || ctx.Err() != nil:
			return err
		case err != nil:
			k.work.retryLater(o)
		}
		k.report(Report{Object: o, Live: now, Problems: problems, Err: err})
	}
	if all {
		if err := p.sweep(ctx); err != nil {
			return err
		}
	}
	return nil
}

func without(all, some map[Object]struct{}) map[Object]struct{} {
	for o := range some {
		delete(all, o)
	}
	return all
}

func (k *PolicySyncer) report(r Report) {
	k.work.note(r)
	k.config.Tell(r)
}

// State is how a Keeper fares.
type State struct {
	Kinds []mirror.State
	// Failed is how many objects are not in the store as they are written, by kind; nil =
	// another netmaster leads, and knows.
	Failed map[string]int
	// Orphans is how many endpoints of pods the store has whose pods the API server has not:
	// their hosts have yet to release them.
	Orphans int
}

// State returns how k fares now.
func (k *PolicySyncer) State() State {
	s := State{Kinds: k.mirror.States(), Orphans: k.countOrphans()}
	s.Failed = k.work.countFailed()
	return s
}
