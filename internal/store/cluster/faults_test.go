package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A registration whose session was lost is made again, with the role it had.
func TestRegistrationSurvivesSessionLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		var troubles []error
		r, err := cluster.Register(t.Context(), st, cluster.Service{ServiceName: "netmaster", HostAddr: "10.0.0.1", Port: 9999}, func(err error) { troubles = append(troubles, err) })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SetRole(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}
		st.Unavailable(true)
		st.ExpireSessions()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if len(troubles) == 0 || !errors.Is(troubles[0], model.ErrUnavailable) {
			t.Errorf("troubles: %v", troubles)
		}
		st.Unavailable(false)
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		got, err := cluster.Services(t.Context(), st, "netmaster")
		if err != nil || len(got) != 1 || got[0].Role != "leader" {
			t.Errorf("after the store came back: %v, %v", got, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A leader whose session is lost ends its term at once and stands again.
func TestLeaderLosesSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		var terms []store.Fence
		ended := make(chan error, 1)
		go func() {
			ended <- cluster.Candidate{
				Store: st, Key: cluster.LeaderKey, Value: "me:1",
				Lead: func(ctx context.Context, term store.Fence) error {
					terms = append(terms, term)
					<-ctx.Done()
					return ctx.Err() // the term is lost: no reason to end the candidacy
				},
			}.Run(ctx)
		}()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		st.ExpireSessions()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		if len(terms) != 2 || terms[1].Create <= terms[0].Create {
			t.Errorf("terms: %v, want two", terms)
		}
	})
}

// A leader whose session is lost ends its term also while it cannot see that its lock has
// gone.
func TestBlindLeaderGivesUpItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		over, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- cluster.Candidate{
				Store: st, Key: cluster.LeaderKey, Value: "me:1",
				Lead: func(term context.Context, _ store.Fence) error {
					<-term.Done()
					if ctx.Err() == nil {
						close(over)
					}
					return nil
				},
			}.Run(ctx)
		}()
		synctest.Wait()
		st.Pause(true)
		st.ExpireSessions()
		synctest.Wait()
		select {
		case <-over:
		default:
			t.Error("it leads on")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
}

// granting notes the time-outs of the sessions that are asked of a store.
type granting struct {
	store.Store
	ttls []time.Duration
}

func (g *granting) NewSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	g.ttls = append(g.ttls, ttl)
	return g.Store.NewSession(ctx, ttl)
}

// A leader that dies leaves its lock behind for four seconds, not for as long as a
// service that died stays in the registry.
func TestLeaderIsReplacedSoon(t *testing.T) {
	st := &granting{Store: memory.New()}
	err := cluster.Candidate{
		Store: st, Key: cluster.LeaderKey, Value: "me:1",
		Lead: func(context.Context, store.Fence) error { return context.Canceled },
	}.Run(t.Context())
	if !errors.Is(err, context.Canceled) || len(st.ttls) != 1 || st.ttls[0] != 4*time.Second {
		t.Errorf("%v, sessions of %v; want one of 4 s", err, st.ttls)
	}
}
