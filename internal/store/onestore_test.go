package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpoints are two, which answer as scripted, in turn; the last answer repeats.
type endpoints struct {
	mu    sync.Mutex
	says  [][]EndpointReport
	asked []bool // sure
}

func (e *endpoints) ask(_ context.Context, sure bool) []EndpointReport {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, sure)
	now := e.says[0]
	if len(e.says) > 1 {
		e.says = e.says[1:]
	}
	return now
}

func report(t *testing.T, endpoint, cluster, id string) EndpointReport {
	t.Helper()
	out := EndpointReport{Endpoint: endpoint, Cluster: cluster, Read: true, Identity: KV{Key: StoreIdentityKey}}
	if id != "" {
		v, err := EncodeRecord(1, Incarnation{ID: id, Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		out.Identity.Create, out.Identity.Mod, out.Identity.Value = 1, 1, v
	}
	return out
}

// Which answers are of one store, what is said of others, and what is asked twice.
func TestStoreOfTheAnswersIsDetermined(t *testing.T) {
	ab := func(clusterA, idA, clusterB, idB string) []EndpointReport {
		return []EndpointReport{report(t, "http://a", clusterA, idA), report(t, "http://b", clusterB, idB)}
	}
	for what, c := range map[string]struct {
		says  [][]EndpointReport
		want  string // in the refusal; "" = none
		asked int
	}{
		"one":                  {[][]EndpointReport{ab("1", "x", "1", "x")}, "", 1},
		"empty":                {[][]EndpointReport{ab("1", "", "1", "")}, "", 1},
		"clusters":             {[][]EndpointReport{ab("1", "x", "2", "x")}, "clusters (http://a of cluster 1, http://b of cluster 2)", 3},
		"stores of one id":     {[][]EndpointReport{ab("1", "x", "1", "y")}, "stores (http://a of store x, http://b of store y)", 3},
		"without ids":          {[][]EndpointReport{ab("", "x", "", "y")}, "stores (http://a of store x, http://b of store y)", 3},
		"one began":            {[][]EndpointReport{ab("1", "x", "1", "")}, "http://b of one without identity", 3},
		"one is behind":        {[][]EndpointReport{ab("1", "x", "1", ""), ab("1", "x", "1", "x")}, "", 2},
		"written meanwhile":    {[][]EndpointReport{ab("1", "", "1", "x"), ab("1", "", "1", "x"), ab("1", "x", "1", "x")}, "", 3},
		"one does not answer":  {[][]EndpointReport{{report(t, "http://b", "1", "y")}}, "", 1},
		"none answers":         {[][]EndpointReport{nil}, "", 1},
		"one may not be asked": {[][]EndpointReport{{report(t, "http://a", "1", "x"), {Endpoint: "http://b", Cluster: "1"}}}, "", 1},
	} {
		e := &endpoints{says: c.says}
		o := OneStore{Name: "etcd", Flag: "etcd-endpoints", Count: func() int { return 2 }, Ask: e.ask}
		err := o.Check(t.Context(), t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !errors.As(err, new(SplitError)) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--etcd-endpoints")) {
			t.Errorf("%s: %v", what, err)
		}
		if len(e.asked) != c.asked || e.asked[0] || c.asked > 1 && !e.asked[1] {
			t.Errorf("%s: asked %v", what, e.asked)
		}
	}
}

// When the endpoints are asked: before the first request, when the identity was written,
// when another cluster answers, in time again, and not for each request.
func TestEndpointsAreAskedAgainWhenNeeded(t *testing.T) {
	one := func(cluster, id string) []EndpointReport {
		return []EndpointReport{report(t, "http://a", cluster, id), report(t, "http://b", cluster, id)}
	}
	two := []EndpointReport{report(t, "http://a", "1", "x"), report(t, "http://b", "1", "")}
	e := &endpoints{says: [][]EndpointReport{one("1", "")}}
	count := 2
	o := OneStore{Name: "etcd", Flag: "f", Count: func() int { return count }, Ask: e.ask}
	asks := func(what string, want int, refused bool, do func() error) {
		t.Helper()
		e.asked = nil
		if err := do(); (err != nil) != refused || len(e.asked) != want {
			t.Errorf("%s: asked %d times, %v", what, len(e.asked), err)
		}
	}
	may := func() error { return o.Check(t.Context(), t.Context()) }
	belongs := func(c string) func() error { return func() error { return o.Belongs(t.Context(), c) } }
	asks("first", 1, false, may)
	asks("second", 0, false, may)
	asks("the same cluster", 0, false, belongs("1"))
	o.Wrote(Commit{Puts: []Put{{Key: Root + "x"}}})
	asks("another key was written", 0, false, may)
	e.says = [][]EndpointReport{two}
	o.Wrote(Commit{Puts: []Put{{Key: StoreIdentityKey}}})
	asks("the identity was written", 3, true, may)
	asks("at once again", 0, true, may)
	e.says = [][]EndpointReport{one("1", "x")}
	o.next = o.next.Add(-retryCheckAfter)
	asks("later", 1, false, may)
	e.says = [][]EndpointReport{one("2", "y")}
	asks("another cluster, which all are of", 1, false, belongs("2"))
	asks("it answers again", 0, false, belongs("2"))
	asks("one of before answers", 1, true, belongs("1"))
	count = 1
	asks("one endpoint", 0, false, belongs("1"))
	count = 2

	// In time they are asked aside, which no request waits for.
	e.says = [][]EndpointReport{two}
	if left := time.Until(o.next); left < checkInterval/2 || left > 2*checkInterval {
		t.Errorf("asked again in %s", left)
	}
	o.next = time.Now().Add(-time.Second)
	for deadline := time.Now().Add(time.Minute); may() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("they are not asked aside")
		}
	}
	o.Close()
	// Who answers none of it leaves things as they were.
	e.says = [][]EndpointReport{nil}
	o.next = time.Now().Add(-time.Second)
	asks("nobody answers", 1, true, may)
	life, end := context.WithCancel(t.Context())
	end()
	o.split, o.next = nil, time.Now().Add(-time.Second)
	asks("the client is closed", 0, false, func() error { return o.Check(t.Context(), life) })
}
