package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/store"
)

// WriteBack is what is to be written on an object in which intent is written.
type WriteBack struct {
	Status objects.Status
	// Waits: its end has to wait until what it stands for is gone.
	Waits bool
}

// ObjectsConfig is what Objects are made of; Control, Sources and Tell must be set.
type ObjectsConfig struct {
	Control *control.Controller
	Sources map[string]mirror.Source // mirror.ObjectSources
	Ours    *ClusterCheck            // as Config's
	Tell    func(Report)             // as Config's
	// Every is how often statuses follow what has changed in the store; 0 = each 5 s.
	Every time.Duration
}

// Objects keeps intent that is written in objects of Kubernetes (package objects) in the
// store. It is safe for use by several goroutines.
type Objects struct {
	config ObjectsConfig
	mirror *mirror.Mirror
	work   *workQueue
	step   objectBarrier // for pods that wait until the store is in step
}

// NewObjects returns Objects that do nothing until Run and Lead.
func NewObjects(c ObjectsConfig) *Objects {
	c.Every = cmp.Or(c.Every, 5*time.Second)
	s := &Objects{config: c, work: newWork(c.Ours)}
	s.mirror = mirror.New(c.Sources, s.work.follow(c.Tell))
	return s
}

// Run follows the API server until ctx ends, whose error it returns. Each replica
// does.
func (s *Objects) Run(ctx context.Context) error { return s.mirror.Run(ctx) }

// State returns how s fares now.
func (s *Objects) State() State {
	return State{Kinds: s.mirror.States(), Failed: s.work.countFailed()}
}

// Lead is Keeper.Lead.
func (s *Objects) Lead(ctx context.Context, fence store.Fence) error {
	s.work.begin()
	defer s.work.end()
	if err := s.mirror.AwaitLists(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.followStore(ctx)
	}()
	defer func() { cancel(); <-followed }()
	never := func() <-chan struct{} { return nil }
	return s.work.loop(ctx, s.config.Control.Settings.IntentChanged, never, func(ctx context.Context) error { return s.sync(ctx, fence) })
}

// followStore has all looked at when something has changed in the store, and no more
// often than every so many seconds: statuses count endpoints, which come in thousands.
func (s *Objects) followStore(ctx context.Context) {
	tick := time.NewTicker(s.config.Every)
	defer tick.Stop()
	for seen := store.Revision(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := s.config.Control.Current().Revision(); now != seen {
			seen = now
			s.work.addAll()
		}
	}
}

// object returns an object of the mirror; nil = it is not there.
func (s *Objects) object(o Object) objects.Object {
	x, _ := s.mirror.Get(o.Kind, o.Name).(objects.Object)
	return x
}

// sync is Keeper.pass for objects. What is to be comes before what is to go, in the order
// in which one needs another; what goes, goes in the other one.
func (s *Objects) sync(ctx context.Context, fence store.Fence) error {
	todo, all, waits := s.work.take()
	v, err := s.config.Control.View(ctx)
	if err != nil {
		return err
	}
	p := &objectSync{s: s, leader: control.Leader(fence), view: v, outcome: map[Object]objectOutcome{}}
	if all {
		for _, k := range objects.Kinds() {
			for name := range s.mirror.All(k.Plural) {
				todo[Object{k.Plural, name}] = struct{}{}
			}
		}
		todo = without(todo, waits)
	}
	p.addReferrers(todo)
	order := make([]Object, 0, len(todo))
	for o := range todo {
		order = append(order, o)
	}
	slices.SortFunc(order, func(a, b Object) int {
		return cmp.Or(rankOf(a.Kind)-rankOf(b.Kind), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	if err = p.applyAll(ctx, order); err == nil {
		slices.Reverse(order)
		err = p.removeAll(ctx, order, all)
	}
	if err == nil {
		err = s.config.Control.WaitFor(ctx, p.last)
	}
	if err != nil {
		return err
	}
	for _, o := range order {
		now := s.object(o)
		if now == nil {
			continue // the mirror reports the deletion
		}
		r := p.reportOf(o, now)
		s.work.note(r)
		s.config.Tell(r)
		if r.Err != nil || len(r.Problems) > 0 {
			s.work.retryLater(o)
		}
	}
	return nil
}

// rankOf is the place of a kind in the order in which one needs another.
func rankOf(kind string) int {
	return slices.IndexFunc(objects.Kinds(), func(k objects.Kind) bool { return k.Plural == kind })
}

// stopsRound reports whether an error ends a round.
func stopsRound(ctx context.Context, err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, model.ErrUnavailable) || ctx.Err() != nil
}
