package statemirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// followedEndpoint is a State that follows a store with one endpoint.
func followedEndpoint(t *testing.T) (*State, *memory.Store, *mirror) {
	t.Helper()
	st := memory.New()
	put(t, st, identified("a"))
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, testEndpoint) })
	c := newCluster(t, st.Client(), Attachment{Endpoint: testEndpoint.Key})
	c.Require(testEndpoint.Key.Network)
	follow(t, c)
	var m *mirror
	until(t, c, "the store is followed", func() error {
		m = c.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)]
		return errors.Join(c.Guard.stale(), m.err)
	})
	return c, st, m
}

func TestComparisonOfWhatIsFollowedFindsNothing(t *testing.T) {
	c, _, _ := followedEndpoint(t)
	got, err := c.Comparer.CompareWithStore(t.Context())
	if err != nil || len(got.Differences) != 0 || got.Rows < 3 {
		t.Errorf("CompareWithStore() = %+v, %v", got, err)
	}
}

func TestComparisonNamesRowsThatDiffer(t *testing.T) {
	for name, damage := range map[string]func(m *mirror){
		"lost": func(m *mirror) { delete(m.values, testEndpoint.Key) },
		"another": func(m *mirror) {
			ep := testEndpoint
			ep.Host = "h2"
			m.values[ep.Key] = ep
		},
		"too many": func(m *mirror) {
			ep := testEndpoint
			ep.Key.ID = "e2"
			m.values[ep.Key] = ep
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, m := followedEndpoint(t)
			c.mu.Lock()
			damage(m)
			c.mu.Unlock()
			got, err := c.Comparer.CompareWithStore(t.Context())
			if err != nil || len(got.Differences) != 1 || !strings.Contains(got.Differences[0], "e"+map[bool]string{true: "2", false: "1"}[name == "too many"]) {
				t.Errorf("CompareWithStore() = %+v, %v", got, err)
			}
		})
	}
}

// A row that is delivered only after the list is no difference.
func TestComparisonWaitsForWhatIsOnItsWay(t *testing.T) {
	c, st, _ := followedEndpoint(t)
	c.Pause()
	ep := testEndpoint
	ep.Key.ID = "e2"
	put(t, st, func(tx store.Tx) error { return tables.Endpoints.Put(tx, ep) })
	resumed := time.AfterFunc(2*comparisonPause, c.Resume)
	defer resumed.Stop()
	got, err := c.Comparer.CompareWithStore(t.Context())
	if err != nil || len(got.Differences) != 0 {
		t.Errorf("CompareWithStore() = %+v, %v", got, err)
	}
}

func TestComparisonFailsWhileTheStoreIsNotFollowed(t *testing.T) {
	c, st, _ := followedEndpoint(t)
	st.Replace(memory.New().Data(), 0)
	until(t, c, "the empty store is not followed", func() error {
		if c.stale() == nil {
			return errors.New("it is")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Comparer.CompareWithStore(ctx); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("CompareWithStore() = %v", err)
	}
}
