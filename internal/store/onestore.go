package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// When the endpoints are asked which store they are of: before the first request, and
// again later.
const (
	checkInterval   = 10 * time.Minute // to twice that, after they were of one
	firstCheckAfter = 5 * time.Second  // while none has an identity: the first netmaster gives it to one
	retryCheckAfter = time.Second      // after they were of several
)

// EndpointReport is what an endpoint says of itself.
type EndpointReport struct {
	Endpoint string
	Cluster  string // whose server it is; "" = it does not say
	Read     bool   // Identity is what it has
	Identity KV     // at StoreIdentityKey
}

// OneStore sees to it that what answers is one store: with endpoints of two, each would
// get some of the requests, and each write that is answered would be in one of them only.
type OneStore struct {
	Name string // "etcd"
	Flag string // that names the endpoints, without dashes
	// Count is how many endpoints there are. With fewer than two nothing is compared.
	Count func() int
	// Ask asks all endpoints, in a second or so, and leaves out the ones that do not
	// answer. Answers are linearizable if sure is set, and may be some moments old
	// otherwise.
	Ask func(ctx context.Context, sure bool) []EndpointReport

	mu       sync.Mutex
	cluster  string    // of the endpoints that answered; "" = none has yet
	split    error     // that they are of different ones; nothing is asked meanwhile
	next     time.Time // when they are asked again; zero = before the next request
	checking bool      // somebody asks them, aside
	running  sync.WaitGroup
}

// SplitError names endpoints of different stores.
type SplitError string

func (e SplitError) Error() string { return string(e) }

// Check refuses requests, by a SplitError, while the endpoints are of different stores. life
// is the client's: when it ends, Close may be called.
func (o *OneStore) Check(ctx, life context.Context) error {
	if o.Count() < 2 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch due := !time.Now().Before(o.next); {
	case !due:
	case o.next.IsZero() || o.split != nil:
		o.found(o.compare(ctx))
	case !o.checking && life.Err() == nil:
		o.checking = true
		o.running.Go(func() {
			all, why := o.compare(life)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.checking = false
			o.found(all, why)
		})
	}
	return o.split
}

// Belongs refuses an answer of another cluster than the one that has answered before,
// unless all endpoints belong to that one now: it was recreated, or restored. "" is any.
func (o *OneStore) Belongs(ctx context.Context, cluster string) error {
	if cluster == "" || o.Count() < 2 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cluster == "" {
		o.cluster = cluster
	}
	if o.cluster != cluster {
		o.found(o.compare(ctx))
	}
	if o.split == nil && o.cluster != cluster {
		return SplitError("an " + o.Name + " of another cluster answered, and is gone")
	}
	return o.split
}

// Wrote is to be called with what was committed: the identity shows who has it.
func (o *OneStore) Wrote(commit Commit) {
	if slices.ContainsFunc(commit.Puts, func(p Put) bool { return p.Key == StoreIdentityKey }) {
		o.Invalidate()
	}
}

// Invalidate has the endpoints asked before the next request.
func (o *OneStore) Invalidate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = time.Time{}
}

// Close waits for questions under way.
func (o *OneStore) Close() { o.running.Wait() }

// compare asks all endpoints, and again where they differ: one may be behind, and the
// identity may have been written between two answers.
func (o *OneStore) compare(ctx context.Context) (all []EndpointReport, why string) {
	for _, sure := range []bool{false, true, true} {
		all = o.Ask(ctx, sure)
		if why = o.differ(all); why == "" {
			break
		}
	}
	return all, why
}

// found takes what compare returned.
func (o *OneStore) found(all []EndpointReport, why string) {
	pause := checkInterval + rand.N(checkInterval)
	switch {
	case why != "":
		o.split, pause = SplitError(why), retryCheckAfter
	case len(all) == 0: // as before
		pause = firstCheckAfter
	default:
		o.split = nil
		if !slices.ContainsFunc(all, func(t EndpointReport) bool { return IncarnationOf(t.Identity).ID != "" }) {
			pause = firstCheckAfter
		}
		for _, t := range all {
			if t.Cluster != "" {
				o.cluster = t.Cluster
			}
		}
	}
	o.next = time.Now().Add(pause)
}

// differ says how endpoints are of different stores; "" = they are of one.
func (o *OneStore) differ(all []EndpointReport) string {
	clusters, ids := map[string]bool{}, map[string]bool{}
	var byCluster, byID []string
	for _, t := range all {
		if t.Cluster != "" {
			clusters[t.Cluster] = true
			byCluster = append(byCluster, t.Endpoint+" of cluster "+t.Cluster)
		}
		if t.Read {
			id := IncarnationOf(t.Identity).ID
			ids[id] = true
			if id == "" {
				byID = append(byID, t.Endpoint+" of one without identity")
			} else {
				byID = append(byID, t.Endpoint+" of store "+id)
			}
		}
	}
	what, said := "clusters", byCluster
	switch {
	case len(clusters) > 1:
	case len(ids) > 1:
		what, said = "stores", byID
	default:
		return ""
	}
	return fmt.Sprintf("the endpoints of %s are servers of different %s (%s), so nothing is read or written: name those of one only, by --%s, or stop the wrong ones",
		o.Name, what, strings.Join(said, ", "), o.Flag)
}
