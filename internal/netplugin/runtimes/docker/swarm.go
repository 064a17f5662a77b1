package docker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Swarm keeps a swarm's networks equal to the cluster's: every network and group is a
// network of the swarm, made once, on a manager.
type Swarm struct {
	name   string
	engine *engine
	source Source
	log    *slog.Logger

	wrongScope time.Time // when a network was last seen to be the engine's own
}

// scopeRetry is how long no network is made after wrongScope.
const scopeRetry = 10 * time.Second

// NewSwarm returns the keeper of a swarm's networks. The endpoint is the engine of one of
// its managers, unix:///path; the name is what Docker calls the plugin on all nodes. The
// engine need not be there.
func NewSwarm(name, endpoint string, source Source, log *slog.Logger) (*Swarm, error) {
	e, err := newEngine(endpoint)
	if err != nil {
		return nil, err
	}
	return &Swarm{name: name, engine: e, source: source, log: log}, nil
}

// Run compares until ctx ends. What is wrong is logged once, and waited for.
func (s *Swarm) Run(ctx context.Context) {
	defer s.engine.close()
	tick := time.NewTimer(0)
	defer tick.Stop()
	said := map[string]string{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := map[string]string{}
		if err := s.compare(ctx, now); err != nil {
			now["all"] = err.Error()
		}
		if ctx.Err() != nil {
			return
		}
		logChange(s.log, said, now)
		said = now
		tick.Reset(reconcileEvery)
	}
}

// compare makes one comparison; a fault of one network is noted in problems.
func (s *Swarm) compare(ctx context.Context, problems map[string]string) error {
	state, manager, err := s.engine.swarm(ctx)
	switch {
	case err != nil:
		return err
	case !manager:
		return model.Errorf(model.ErrUnavailable, "the engine manages no swarm (it is %q): docker swarm init, or --docker-endpoint of a manager", state)
	}
	have, err := s.engine.networks(ctx, s.name)
	if err != nil {
		return err
	}
	want, err := wantedNetworks(ctx, s.source)
	if err != nil {
		return err
	}
	for key, w := range want { // a manager asks for one address of a task, and for no IPv6 pool
		w.net.Subnet6, w.net.Gateway6 = netip.Prefix{}, netip.Addr{}
		want[key] = w
	}
	there := map[string]bool{}
	for _, n := range have {
		ref, ok := labelled(n)
		if !ok || n.Labels[labelPlugin] != s.name {
			continue
		}
		w, ok := want[ref.String()]
		why := ""
		switch {
		case n.Scope == scopeLocal: // the engine was told so when it first used the plugin
			s.wrongScope = time.Now()
			why = "the engine takes the plugin's networks for its own"
		case !ok || !sameSubnet(n, w.net):
			why = ref.String() + " is gone"
		default:
			there[ref.String()] = true
			continue
		}
		if err := s.engine.remove(ctx, n.ID); err != nil && !isStatus(err, http.StatusNotFound) {
			problems[n.Name] = why + ": " + err.Error()
			there[ref.String()] = true
			continue
		}
		s.log.Info("removed a network from the swarm", "name", n.Name, "why", why)
	}
	if time.Since(s.wrongScope) < scopeRetry {
		return model.Errorf(model.ErrConflict,
			"the engine takes the plugin's networks for its own: start netplugin with --mode swarm-mode on all nodes, then restart the engine, which asks once")
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		if there[key] {
			continue
		}
		r := newCreateRequest(s.name, w)
		r.Name, r.Attachable = swarmName(w.ref), true
		id, err := s.engine.create(ctx, r)
		if err != nil {
			problems[r.Name] = fmt.Sprintf("it cannot be created: %v", err)
			continue
		}
		s.log.Info("created a network in the swarm", "name", r.Name, "of", w.ref.String(), "id", short(id))
	}
	return nil
}

// swarmName is Ref.Name as a swarm takes it, without slashes and dots. Contiv's names have no
// underscore.
func swarmName(r Ref) string { return strings.NewReplacer("/", "_", ".", "__").Replace(r.Name()) }
