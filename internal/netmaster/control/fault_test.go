package control

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// requests are one of each kind of write, all of which base allows.
func requests() map[string]func(context.Context, *harness) error {
	try := func(o any) func(context.Context, *harness) error {
		return func(_ context.Context, c *harness) error { return c.try(o) }
	}
	remove := func(k any) func(context.Context, *harness) error {
		return func(_ context.Context, c *harness) error { return c.remove(k) }
	}
	return map[string]func(context.Context, *harness) error{
		"global":          try(model.Global{VLANs: model.TagRange{Lo: 50, Hi: 500}}),
		"tenant":          try(model.Tenant{Name: "green"}),
		"network":         try(network("new", "10.50.0.0/24", "2001:db8:50::/64")),
		"group":           try(pooled("newgroup", "v3", "10.1.3.20-10.1.3.30")),
		"group policies":  try(group("web", "v1", "p2")),
		"policy":          try(policy("p3")),
		"rule":            try(rule("p2", "20", func(r *model.Rule) { r.Group = "web" })),
		"endpoint":        try(endpoint("v6", "e1")),
		"group endpoint":  try(endpoint("v1", "e2", inGroup("web"))),
		"address":         try(AddressRequest{Network: netKey("v1")}),
		"net profile":     try(model.NetProfile{Key: npKey("np")}),
		"app profile":     try(app("app", "web", "db")),
		"service":         try(service("s", "v1", "", "a=b")),
		"contracts":       try(contracts("ec")),
		"aciGw":           try(model.AciGw{}),
		"delete group":    remove(groupKey("idle")),
		"delete network":  remove(netKey("blue:v1")),
		"delete policy":   remove(policyKey("blue:p1")),
		"delete rule":     remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: "6"}),
		"delete endpoint": remove(model.EndpointKey{Network: netKey("v1"), ID: "c1"}),
		"update endpoint": func(ctx context.Context, c *harness) error {
			return err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), EndpointUpdate{Key: model.EndpointKey{Network: netKey("v1"), ID: "c1"}, Container: "k"}))
		},
		"clean up": func(ctx context.Context, c *harness) error {
			_, _, err := c.Endpoints.DeleteEndpointsOfNetwork(ctx, Admin(), netKey("v2"))
			return err
		},
	}
}

// With the store away every request is ErrUnavailable and changes nothing;
// when it is back, the same request succeeds.
func TestRequestsAreUnavailableWithoutTheStore(t *testing.T) {
	for name, request := range requests() {
		t.Run(name, func(t *testing.T) {
			c := base(t)
			ctx := testContext(t)
			c.st.Unavailable(true)
			c.refused(model.ErrUnavailable, "", func() error { return request(ctx, c) })
			c.st.Unavailable(false)
			c.ok(request(ctx, c))
			checkInvariants(t, c)
		})
	}
	c := newCluster(t)
	c.st.Unavailable(true)
	if _, err := c.View(testContext(t)); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("View: %v, want unavailable", err)
	}
}

// Conflicts are tried again without a trace: the result equals a single run's.
func TestConflictsAreRetriedWithoutTrace(t *testing.T) {
	for name, request := range requests() {
		t.Run(name, func(t *testing.T) {
			want, got := base(t), base(t)
			ctx := testContext(t)
			want.ok(request(ctx, want))
			got.st.Conflict(2)
			got.ok(request(ctx, got))
			if diff := cmp.Diff(leftovers(want), leftovers(got)); diff != "" {
				t.Error(diff)
			}
			checkInvariants(t, got)
		})
	}
}

// A view that lost its watch, or whose history was compacted, is right again,
// and until then requests that do not need it work.
func TestViewRecoversFromAMirrorGap(t *testing.T) {
	c := base(t)
	other := onStore(t, c.st.Client())
	c.st.Pause(true)
	for i := range 20 {
		other.create(endpoint("v1", fmt.Sprintf("o%d", i), inGroup("web")))
	}
	other.ok(other.remove(model.EndpointKey{Network: netKey("v1"), ID: "c2"}))
	other.put(network("later", "10.60.0.0/24"))
	// This view lags behind by 20 addresses, and none is given twice.
	done := make(chan error, 1)
	go func() { done <- c.try(endpoint("v1", "mine")) }()
	c.st.Compact()
	c.st.DropWatches()
	c.st.Pause(false)
	c.ok(<-done)
	checkInvariants(t, c)
	checkInvariants(t, other)
}

// A replica that has not seen another's writes yet skips what they took.
func TestLaggingReplicaSkipsTakenAddresses(t *testing.T) {
	c := base(t)
	other := onStore(t, c.st.Client())
	c.st.Pause(true)
	for i := range freshAfter - 2 {
		other.create(endpoint("v1", fmt.Sprintf("o%d", i)))
	}
	other.put(network("later", "10.60.0.0/24"))
	mine := c.create(endpoint("v1", "mine"))
	theirs, _ := other.fresh().Endpoints.Get(endpoint("v1", fmt.Sprintf("o%d", freshAfter-3)).Key)
	if mine.IPv4 != theirs.IPv4.Next() {
		t.Errorf("got %s after %s", mine.IPv4, theirs.IPv4)
	}
	c.put(network("mine", "10.61.0.0/24"))
	c.create(endpoint("later", "c1")) // on a network that the view does not know
	c.st.Pause(false)
	checkInvariants(t, c)
}

// Far behind, it waits for its view and goes on where the others are.
func TestLaggingReplicaWaitsForItsView(t *testing.T) {
	c := base(t)
	other := onStore(t, c.st.Client())
	c.st.Pause(true)
	for i := range 5 * freshAfter {
		other.create(endpoint("v1", fmt.Sprintf("o%d", i)))
		other.put(network(fmt.Sprintf("o%d", i), fmt.Sprintf("10.70.%d.0/24", i)))
	}
	done := make(chan error, 2)
	go func() { done <- c.try(endpoint("v1", "mine")) }()
	go func() { done <- c.try(network("mine", "10.61.0.0/24")) }()
	c.st.Pause(false)
	c.ok(<-done)
	c.ok(<-done)
	checkInvariants(t, c)
}

// A controller started while the store is away begins when it is back; before,
// requests wait and say why they cannot go on.
func TestControllerBeginsWhenTheStoreIsBack(t *testing.T) {
	st := memory.New()
	st.Unavailable(true)
	c := New(st, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	short, stop := context.WithCancel(context.Background())
	stop()
	blue := ChangeTenant(valid(model.Tenant{Name: "blue"}), false)
	if _, err := c.Put(short, Admin(), blue); !errors.Is(err, model.ErrUnavailable) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	st.Unavailable(false)
	if _, err := c.Put(testContext(t), Admin(), blue); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
