package controller

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// maxProblems is how many problems the store has.
const maxProblems = 100

// SentState is what a target that cannot be asked has to be told: what it may have.
type SentState struct {
	Sent []model.AppProfileKey
	Save func(context.Context, []model.AppProfileKey) error
}

// Config says what to keep, and by what.
type Config struct {
	Control *control.Controller
	Target  func(SentState) (aci.Target, error) // makes one for a term
	Via     string                              // where the target is, for people; no secret
	Syncer  aci.SyncerConfig
	Log     *slog.Logger
}

// Controller keeps a fabric while this netmaster leads.
type Controller struct {
	config Config
	mu     sync.Mutex
	syncer *aci.Syncer // nil = this netmaster does not lead, or keeps nothing
}

// New returns a Keeper that does nothing before Lead.
func New(c Config) *Controller { return &Controller{config: c} }

// State is how this netmaster's keeping fares; false where it keeps nothing.
func (k *Controller) State() (aci.State, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.syncer == nil {
		return aci.State{}, false
	}
	return k.syncer.State(), true
}

// fenced is a target that asks before each comparison whether the term lasts.
type fenced struct {
	aci.Target
	begin func(context.Context) error
}

// Apply is aci.Target's.
func (f fenced) Apply(ctx context.Context, want aci.Fabric) (aci.Report, error) {
	if err := f.begin(ctx); err != nil {
		return aci.Report{}, err
	}
	return f.Target.Apply(ctx, want)
}

// Lead keeps the fabric until ctx ends, or the leadership is lost, whose error is
// store.ErrFenced. It returns when its last request has.
func (k *Controller) Lead(ctx context.Context, fence store.Fence) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 100 * time.Millisecond, Max: 5 * time.Second})
	for ctx.Err() == nil {
		if err := k.await(ctx); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		err := k.lead(ctx, fence)
		switch {
		case err == nil:
			retry.Reset()
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() == nil:
			k.config.Log.Warn("the ACI fabric cannot be configured now; trying again", "error", err)
			_ = retry.Pause(ctx)
		}
	}
	return nil
}

// await waits until there is something to keep.
func (k *Controller) await(ctx context.Context) error {
	v := k.config.Control.Current()
	for {
		changed := v.Revisions.FabricChanged()
		if g, _ := v.Settings.Global(); g.Infra == model.InfraACI || v.Settings.AciFabric().Kept { // and no look at all objects
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lead keeps the fabric until ctx ends, or it is not wanted and nothing is in it.
func (k *Controller) lead(ctx context.Context, fence store.Fence) error {
	c := k.config.Control
	v, err := c.View(ctx) // with what the leader before has noted
	if err != nil {
		return err
	}
	note := func(ctx context.Context, change func(*tables.AciFabric)) error {
		return c.Settings.NoteAciFabric(ctx, control.Leader(fence), change)
	}
	memory := SentState{Save: func(ctx context.Context, told []model.AppProfileKey) error {
		return note(ctx, func(f *tables.AciFabric) {
			f.Told = nil
			for _, p := range told {
				f.Told = append(f.Told, p.String())
			}
		})
	}}
	for _, text := range v.Settings.AciFabric().Told {
		if p, err := model.ParseAppProfileKey(text); err == nil {
			memory.Sent = append(memory.Sent, p)
		}
	}
	target, err := k.config.Target(memory)
	if err != nil {
		return err
	}
	s := aci.NewSyncer(fenced{target, func(ctx context.Context) error {
		return note(ctx, func(f *tables.AciFabric) { f.Kept = true })
	}}, k.config.Syncer)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	k.publishState(s)
	defer func() {
		k.publishState(nil)
		cancel()
		<-done
	}()
	return k.follow(ctx, v, s, note)
}

func (k *Controller) publishState(s *aci.Syncer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.syncer = s
}

// follow tells the syncer what is wanted, and the store how that fares.
func (k *Controller) follow(ctx context.Context, v *control.View, s *aci.Syncer, note func(context.Context, func(*tables.AciFabric)) error) error {
	var said *control.FabricObjects
	var problems []aci.Problem
	for {
		objects, state := v.Revisions.FabricChanged(), s.Changed()
		o := v.FabricObjects()
		if !o.Wanted { // nothing of ours is to be there
			o = control.FabricObjects{Settings: o.Settings}
		}
		if said == nil || !reflect.DeepEqual(o, *said) {
			var f aci.Fabric
			f, problems = Compile(o)
			s.Set(f)
			said = &o
		}
		now := s.State()
		if err := k.reportState(ctx, v.Settings.AciFabric(), now, problems, o.Wanted, note); err != nil || !o.Wanted && now.InSync {
			return err
		}
		select {
		case <-objects:
		case <-state:
		case <-ctx.Done():
			return nil
		}
	}
}

// reportState notes a state that is another one than before. While a change is being made the
// state is the one before.
func (k *Controller) reportState(ctx context.Context, was tables.AciFabric, s aci.State, more []aci.Problem, wanted bool, note func(context.Context, func(*tables.AciFabric)) error) error {
	if !s.InSync && s.Error == "" {
		return nil
	}
	change := func(f *tables.AciFabric) {
		f.Via, f.InStep, f.Trouble, f.Problems, f.More = k.config.Via, s.InSync, s.Error, nil, 0
		for _, p := range slices.Concat(more, s.Problems) {
			if len(f.Problems) == maxProblems {
				f.More++
				continue
			}
			f.Problems = append(f.Problems, tables.AciProblem(p))
		}
		if !wanted && s.InSync {
			*f = tables.AciFabric{} // all is gone
		}
	}
	next := was
	if change(&next); reflect.DeepEqual(next, was) {
		return nil
	}
	switch {
	case next.Trouble != "" && was.Trouble == "":
		k.config.Log.Warn("the ACI fabric is not in sync; trying again", "via", next.Via, "error", next.Trouble)
	case next.Trouble == "" && (was.Trouble != "" || !was.InStep):
		k.config.Log.Info("the ACI fabric is in sync", "via", next.Via, "problems", len(next.Problems)+next.More)
	}
	return note(ctx, func(f *tables.AciFabric) {
		change(f)
		if f.Since = ""; f.Kept {
			f.Since = time.Now().UTC().Format(time.RFC3339)
		}
	})
}
