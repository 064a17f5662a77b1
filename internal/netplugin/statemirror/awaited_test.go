package statemirror

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestHostsThatWouldLoseAnAddressAreAwaited: another store is not followed while it would take
// an endpoint, or one of its addresses, from a host that has not said that the store has all of
// its endpoints.
func TestHostsThatWouldLoseAnAddressAreAwaited(t *testing.T) {
	had := model.Endpoint{
		Key: model.EndpointKey{ID: "e1"}, Host: "h2", MAC: model.MAC{2, 2, 2, 2, 2, 2},
		IPv4: netip.MustParseAddr("10.1.1.1"), IPv6: netip.MustParseAddr("2001:db8::1"),
	}
	for what, x := range map[string]struct {
		change func(*model.Endpoint)
		waits  bool
	}{
		"the same":                {func(*model.Endpoint) {}, false},
		"another IPv4 address":    {func(e *model.Endpoint) { e.IPv4 = netip.MustParseAddr("10.1.1.2") }, true},
		"another IPv6 address":    {func(e *model.Endpoint) { e.IPv6 = netip.MustParseAddr("2001:db8::2") }, true},
		"no IPv6 address":         {func(e *model.Endpoint) { e.IPv6 = netip.Addr{} }, true},
		"another MAC address":     {func(e *model.Endpoint) { e.MAC[5] = 3 }, true},
		"on another host":         {func(e *model.Endpoint) { e.Host = "h3" }, true},
		"no endpoint":             {nil, true},
		"on this host, and moved": {func(e *model.Endpoint) { e.Host = "h1" }, true},
	} {
		t.Run(what, func(t *testing.T) {
			m := &mirror{values: map[any]any{had.Key: had}, seen: map[any]any{}}
			if x.change != nil {
				now := had
				x.change(&now)
				m.seen[had.Key] = now
			}
			g := &StoreGuard{shared: &shared{Config: Config{Host: "h1"}}, state: following, source: fromStore}
			set := &mirrorSet{byScope: map[Scope]*mirror{{}: {}, {Tenant: "default"}: m}}
			var want []string
			if x.waits {
				want = []string{"h2"}
			}
			if got := g.hostsThatWouldLose(set, store.Incarnation{}, false, nil); !slices.Equal(got, want) {
				t.Errorf("it waits for %v, want %v", got, want)
			}
		})
	}
}
