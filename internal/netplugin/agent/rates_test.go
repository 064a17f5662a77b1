package agent

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestRequestedRatesReachNetmaster: netplugin asks netmaster for an endpoint with the limits of the runtime's
// request. A repeated request with others attaches the container again, since the former
// attachment does not have them; with the same it stays.
func TestRequestedRatesReachNetmaster(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	s := newSandbox(t)
	conf := r.list(t, "1.0.0", `,"capabilities":{"bandwidth":true}`)
	add := func(rate uint64) (n int, asked api.Rates) {
		t.Helper()
		c := rt("c1", s)
		c.CapabilityArgs = map[string]any{"bandwidth": map[string]uint64{"egressRate": rate, "egressBurst": 4294967295}}
		if _, err := r.AddNetworkList(t.Context(), conf, c); err != nil {
			t.Fatal(err)
		}
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		for id, req := range b.master.created {
			if strings.Contains(id, "c1") && req.ConfigEP.Rates != nil {
				asked = *req.ConfigEP.Rates
			}
		}
		return b.master.calls["/plugin/createEndpoint"], asked
	}
	for _, tt := range []struct {
		rate uint64
		n    int
	}{{1_000_000, 1}, {1_000_000, 1}, {2_000_000, 2}} {
		if n, asked := add(tt.rate); n != tt.n || asked != (api.Rates{Send: tt.rate}) {
			t.Errorf("%d: %+v, after %d requests, want %d", tt.rate, asked, n, tt.n)
		}
	}
	bad := request("c2", newSandbox(t))
	bad.Rates.Send.Bits = 1
	if _, err := b.client().Attach(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "Rates.Send") {
		t.Errorf("a rate of a bit: %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
}
