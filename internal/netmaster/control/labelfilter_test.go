package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	embedded "github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// generated changes the cluster's generated labels.
func generated(t *testing.T, c *Controller, entries ...string) error {
	t.Helper()
	f, err := model.ParseLabelFilter("generatedLabels", entries)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Put(testContext(t), Admin(), c.Settings.ChangeGlobal(valid(model.Global{GeneratedLabels: f})))
	return err
}

func byLabel(key, label string) model.NetworkPolicy {
	return model.NetworkPolicy{Policy: networkPolicy(key, func(p *model.Policy) { p.Applies.MatchLabels = map[string]string{label: "1"} })}
}

func built(net, id, build string) model.Endpoint {
	return endpoint(net, id, func(e *model.Endpoint) { e.Labels = map[string]string{"app": "web", "build": build} })
}

// wrongly returns what is wrong in a state of the store: an endpoint whose identity
// lacks, or has, a label that a policy selects by, other than the endpoint.
func wrongly(t *testing.T, st store.Store) (wrong string, policies int) {
	t.Helper()
	kvs, _, err := st.Range(testContext(t), tables.StatePrefix)
	if err != nil {
		t.Fatal(err)
	}
	named, records := map[string]bool{}, map[model.Identity]model.IdentityRecord{}
	var eps []model.Endpoint
	for _, kv := range kvs {
		ch, err := tables.Decode(store.Event{KV: kv})
		if err != nil {
			t.Fatal(err)
		}
		switch x := ch.Value.(type) {
		case model.Policy:
			policies++
			for _, k := range x.Applies.LabelKeys() {
				named[k] = true
			}
		case model.PolicyRule:
			for _, p := range x.Peers {
				if p.Selector != nil {
					for _, k := range p.Selector.LabelKeys() {
						named[k] = true
					}
				}
			}
		case model.IdentityRecord:
			records[x.ID] = x
		case model.Endpoint:
			eps = append(eps, x)
		}
	}
	for _, e := range eps {
		for k := range named {
			if r, ok := records[e.Identity]; !ok || r.Labels[k] != e.Labels[k] {
				return fmt.Sprintf("endpoint %s has %s=%q, its identity %q", e.Key, k, e.Labels[k], r.Labels[k]), policies
			}
		}
	}
	return "", policies
}

// TestFilteredLabelsChangeEndpointsInOrder: what a change of the labels that count does to endpoints, in
// which order, and when it and policies are refused.
func TestFilteredLabelsChangeEndpointsInOrder(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"), group("web", "n"))
	var eps []model.Endpoint
	for i := range 5 {
		eps = append(eps, c.create(built("n", fmt.Sprint("c", i), strconv.Itoa(i%2))))
	}
	plain := c.create(endpoint("n", "plain"))
	identities := func() map[model.Identity]int {
		out := map[model.Identity]int{}
		for _, e := range eps {
			e, _ = c.fresh().Endpoints.Get(e.Key)
			out[e.Identity]++
		}
		return out
	}
	if n := len(identities()); n != 2 {
		t.Fatalf("%d identities of two builds", n)
	}

	// A label that policies select by stays, wherever they name it.
	c.put(byLabel("app", "app"))
	c.put(model.NetworkPolicy{Policy: networkPolicy("peer", func(p *model.Policy) { p.Applies = model.Selector{Tenant: "default"} }), Rules: []model.PolicyRule{
		networkRule("peer", "1", bySelector(func(s *model.Selector) {
			s.MatchExpressions = []model.Requirement{{Key: "app", Operator: model.OpDoesNotExist}}
		})),
	}})
	for _, f := range []string{"app", "default,app"} {
		c.refused(model.ErrInUse, `label "app" must stay`, func() error { return generated(t, c.Controller, strings.Split(f, ",")...) })
	}
	c.refused(model.ErrInUse, "default:app, default:peer", func() error { return generated(t, c.Controller, "app", "build") })

	// Out: nothing can select by it from now on, and endpoints follow.
	c.ok(generated(t, c.Controller, "build", "com.acme."))
	c.refused(model.ErrInvalid, "generatedLabels", func() error { return c.try(byLabel("build", "build")) })
	if n := c.fresh().Endpoints.CountOldIdentities(); n != 5 {
		t.Errorf("%d endpoints are left to follow, want 5", n)
	}
	late := c.create(built("n", "late", "9"))
	// Labels that the former list left out are no part of identities yet.
	c.refused(model.ErrConflict, "5 endpoints", func() error { return c.try(byLabel("ref", "vcs-ref")) })

	// The first leader is replaced after one endpoint: the next goes on.
	first := c.leader()
	c.ok(c.LabelFilter.reidentify(ctx, first, eps[0].Key))
	second := c.leader()
	if err := c.LabelFilter.followOnce(ctx, first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("without the leadership: %v", err)
	}
	if n := c.fresh().Endpoints.CountOldIdentities(); n != 4 {
		t.Errorf("%d endpoints are left to follow, want 4", n)
	}
	c.ok(c.LabelFilter.followOnce(ctx, second))
	if got := identities(); len(got) != 1 || got[late.Identity] != 5 {
		t.Errorf("identities %v, want that of one that came later, %d", got, late.Identity)
	}
	if e, _ := c.fresh().Endpoints.Get(plain.Key); e.Identity != plain.Identity {
		t.Error("an endpoint without labels has another identity")
	}
	c.put(byLabel("ref", "vcs-ref"))
	c.refused(model.ErrInUse, `label "vcs-ref"`, func() error { return generated(t, c.Controller, "default") })
	c.ok(err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(policyKey("ref"), model.OwnerUser))))

	// In, and again out and in before anybody followed.
	for _, f := range []string{"default", "build", "default"} {
		c.ok(generated(t, c.Controller, f))
		kind := model.ErrConflict
		if f == "build" {
			kind = model.ErrInvalid
		}
		if err := c.try(byLabel("build", "build")); !errors.Is(err, kind) {
			t.Errorf("by a label that comes or goes, %s: %v", f, err)
		}
	}
	c.ok(c.LabelFilter.followOnce(ctx, second))
	c.put(byLabel("build", "build"))
	if wrong, n := wrongly(t, c.st.Client()); wrong != "" || n != 3 {
		t.Errorf("with %d policies: %s", n, wrong)
	}
	if g, _ := c.fresh().Settings.Global(); g.FormerLabels != nil || !g.Equal(model.DefaultGlobal()) {
		t.Errorf("at last: %+v", g)
	}
}

// TestLabelFilterTooOften: a filter that changes faster than endpoints follow is
// refused before the store's record grows for ever.
func TestLabelFilterTooOften(t *testing.T) {
	c := newCluster(t)
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		var f []string
		for j := range model.MaxLabelFilter {
			f = append(f, fmt.Sprintf("l%d-%d", i, j))
		}
		err = generated(t, c.Controller, f...)
	}
	if !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "too often") {
		t.Errorf("got %v", err)
	}
}

// TestLabelFilterAndPolicyExcludeEachOther lets replicas change the filter, a policy and endpoints at
// once, while one of them leads: either the policy or the filter is refused, and
// once a policy has been taken, no endpoint's identity lacks the label.
func TestLabelFilterAndPolicyExcludeEachOther(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		st := memory.New()
		races(t, st.Client(), st.Client())
	})
	t.Run("etcd", func(t *testing.T) {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Client: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		a, b := s.Client(), s.Client()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		races(t, a, b)
	})
}

func races(t *testing.T, stores ...store.Store) {
	t.Helper()
	var cs []*Controller
	running, end := context.WithCancel(testContext(t))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	for _, st := range stores {
		c := New(st, Options{})
		cs = append(cs, c)
		wg.Go(func() { _ = c.Run(running) })
		if err := c.await(running); err != nil {
			t.Fatal(err)
		}
	}
	put := func(c *Controller, ch Change) error {
		_, err := c.Put(running, Admin(), ch)
		return err
	}
	if err := put(cs[0], cs[0].Networks.ChangeNetwork(valid(network("n", "10.1.0.0/16")))); err != nil {
		t.Fatal(err)
	}
	rev, err := stores[0].Update(running, func(tx store.Tx) error { return tx.Create(store.Root+"lock/test", []byte("x"), nil) })
	if err != nil {
		t.Fatal(err)
	}
	fence := Leader{Key: store.Root + "lock/test", Create: rev}
	wg.Go(func() { _ = cs[1].LabelFilter.FollowLabelFilter(running, fence) })

	rest := func() {
		t.Helper()
		for _, c := range cs {
			if err := c.view.Settings.settings.Until(running, func() (bool, error) {
				g, ok := c.view.Settings.Global()
				return ok && len(g.FormerLabels) == 0, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	policyWon, filterWon := 0, 0
	for round := range 32 {
		rest()
		var policyErr, filterErr error
		var work sync.WaitGroup
		first := make(chan struct{}) // in some rounds the policy is there before
		work.Go(func() {
			if round%4 == 0 {
				<-first
			}
			filterErr = generated(t, cs[round%2], "default", "build")
		})
		work.Go(func() {
			defer close(first)
			policyErr = put(cs[1-round%2], cs[1-round%2].Policies.ReplaceNetworkPolicy(valid(byLabel("p", "build"))))
		})
		work.Go(func() {
			e := built("n", fmt.Sprint("c", round), "1")
			if _, _, err := cs[0].Endpoints.CreateEndpoint(running, Admin(), valid(e)); err != nil {
				t.Error(err)
			}
			if err := err2(cs[1].Endpoints.UpdateEndpoint(running, Admin(), EndpointUpdate{Key: e.Key, Labels: map[string]string{"build": "2"}})); err != nil {
				t.Error(err)
			}
		})
		work.Wait()
		switch {
		case policyErr == nil && errors.Is(filterErr, model.ErrInUse):
			policyWon++
		case filterErr == nil && (errors.Is(policyErr, model.ErrInvalid) || errors.Is(policyErr, model.ErrConflict)):
			filterWon++
			// And back: a policy is refused until all endpoints have the label again.
			if err := generated(t, cs[0], "default"); err != nil {
				t.Fatal(err)
			}
			for refused := true; refused; {
				err := put(cs[1], cs[1].Policies.ReplaceNetworkPolicy(valid(byLabel("p", "build"))))
				if refused = errors.Is(err, model.ErrConflict); err != nil && !refused {
					t.Fatal(err)
				}
			}
		default:
			t.Fatalf("policy: %v; filter: %v", policyErr, filterErr)
		}
		if wrong, n := wrongly(t, stores[0]); wrong != "" || n != 1 {
			t.Fatalf("with %d policies: %s", n, wrong)
		}
		if err := err2(cs[0].Delete(running, Admin(), DeleteNetworkPolicy(policyKey("p"), model.OwnerUser))); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the policy came first %d times, the filter %d times", policyWon, filterWon)
	if filterWon == 0 || policyWon == 0 {
		t.Error("the race has not been run")
	}
}

// TestStagedRulesKeepTheirLabels: rules that are more than one transaction takes are in no
// view before they hold. A filter that takes out their label meanwhile makes them
// be refused, whenever it comes before they hold, and is refused afterwards.
func TestStagedRulesKeepTheirLabels(t *testing.T) {
	var hook func()
	st := memory.New()
	c, other := watched(t, st, &hook), onStore(t, st)
	large := manyRules(200, 1)
	for i := range large.Rules {
		large.Rules[i].Peers = []model.Peer{bySelector(func(s *model.Selector) { s.MatchLabels = map[string]string{"build": "1"} })}
	}
	refused := 0
	for at := 0; ; at++ { // after which commit the filter changes
		commits := 0
		var filter error
		hook = func() {
			if commits++; commits == at+1 {
				filter = generated(t, other.Controller, "default", "build")
			}
		}
		policy := c.try(large)
		hook = nil
		if commits <= at {
			break
		}
		switch {
		case errors.Is(policy, model.ErrInvalid) && filter == nil:
			refused++
			other.ok(generated(t, other.Controller, "default"))
			other.ok(other.LabelFilter.followOnce(testContext(t), other.leader()))
		case policy == nil && errors.Is(filter, model.ErrInUse):
			c.ok(err2(c.Delete(testContext(t), Admin(), DeleteNetworkPolicy(large.Policy.Key, model.OwnerUser))))
		default:
			t.Fatalf("after commit %d: policy: %v; filter: %v", at+1, policy, filter)
		}
		c.fresh()
	}
	if refused < 2 {
		t.Errorf("the filter came first %d times", refused)
	}
}
