package aci_test

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

// let is what profiles allow: consumer, contract, its part, and provider. A contract
// belongs to its tenant, and is defined alike in each profile that names it.
func let(profiles map[string]acitest.Profile) map[string]bool {
	type contract struct{ tenant, name string }
	ends := map[string]map[contract][]string{"PROVIDE": {}, "CONSUME": {}}
	entries := map[contract]map[acitest.Filter]int{} // and how many profiles have it
	defined := map[contract]int{}
	for key, p := range profiles {
		for _, e := range p.EPGs {
			for _, l := range e.Links {
				c := contract{p.Tenant, l.Contract + l.DN}
				ends[l.Kind][c] = append(ends[l.Kind][c], key+"/"+e.Name)
			}
		}
		for _, d := range p.Contracts {
			c := contract{p.Tenant, d.Name}
			defined[c]++
			for _, f := range d.Filters {
				if entries[c] == nil {
					entries[c] = map[acitest.Filter]int{}
				}
				entries[c][f]++
			}
		}
	}
	out := map[string]bool{}
	for c, filters := range entries {
		for f, n := range filters {
			if n < defined[c] { // whichever definition counts: the other one would not let it through
				continue
			}
			for _, from := range ends["CONSUME"][c] {
				for _, to := range ends["PROVIDE"][c] {
					out[strings.Join([]string{from, c.name, f.Protocol, f.Port, to}, " ")] = true
				}
			}
		}
	}
	return out
}

// TestGatewayIsAsTheStateSaysAfterAnyHistory: after any history and any failures, a gateway of 1.x ends with the
// state made from nothing. Sent again, the state causes no message. A gateway that replaces
// profiles allows at every moment what is allowed before and after. Processes restart on
// the way, with only what was kept.
func TestGatewayIsAsTheStateSaysAfterAnyHistory(t *testing.T) {
	var moments atomic.Int64
	t.Cleanup(func() {
		if moments.Load() < histories {
			t.Errorf("only at %d moments there was something that stays", moments.Load())
		}
	})
	for seed := range uint64(histories) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w, sim := newWorld(seed), &acitest.Gateway{Merges: seed%3 == 2}
			var kept []model.AppProfileKey
			var stays map[string]bool
			watched := 0 // moments at which something stayed
			start := func() *aci.Gateway {
				return newGateway(t, sim, func(c *aci.GatewayConfig) {
					c.Sent = slices.Clone(kept)
					c.Keep = func(_ context.Context, told []model.AppProfileKey) error { kept = slices.Clone(told); return nil }
					inner := c.Transport
					c.Transport = transport(func(r *http.Request) (*http.Response, error) {
						resp, err := inner.RoundTrip(r)
						if len(stays) > 0 {
							watched++
						}
						now := let(sim.Profiles())
						for p := range stays {
							if !now[p] && !sim.Merges {
								t.Errorf("after %s: not let through: %s", r.URL.Path, p)
							}
						}
						return resp, err
					})
				})
			}
			target := start()
			for n := range steps {
				if n > 0 {
					for range 1 + w.IntN(4) {
						w.step()
					}
				}
				if n == steps/2 { // another one leads
					target = start()
				}
				f := w.fabric()
				fresh := &acitest.Gateway{}
				if _, err := newGateway(t, fresh).Apply(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				stays = let(fresh.Profiles())
				before := let(sim.Profiles())
				maps.DeleteFunc(stays, func(p string, _ bool) bool { return !before[p] })
				if seed%2 == 1 {
					for range 3 {
						at, what := 1+w.IntN(6), []acitest.Fault{acitest.Unavailable, acitest.Cut, acitest.CutAfter, acitest.Nonsense}[w.IntN(4)]
						sim.Fault = func(*http.Request) acitest.Fault {
							if at--; at == 0 {
								return what
							}
							return acitest.None
						}
						if _, err := target.Apply(t.Context(), f); err == nil && at <= 0 {
							t.Fatalf("fault %v was not noticed", what)
						}
					}
				}
				sim.Fault = nil
				if _, err := target.Apply(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if got, want := sorted(sim.Profiles()), sorted(fresh.Profiles()); !reflect.DeepEqual(got, want) {
					t.Fatalf("step %d:\nhas     %+v\nof none %+v", n, got, want)
				}
				sim.Calls()
				if _, err := target.Apply(t.Context(), f); err != nil || len(sim.Calls()) > 0 {
					t.Fatalf("step %d: it is told again: %v", n, err)
				}
			}
			moments.Add(int64(watched))
		})
	}
}

// sorted are profiles without the order of their lists, which a gateway that merges has
// its own way of.
func sorted(profiles map[string]acitest.Profile) map[string]acitest.Profile {
	out := map[string]acitest.Profile{}
	for k, p := range profiles {
		p.EPGs, p.Contracts = slices.Clone(p.EPGs), slices.Clone(p.Contracts)
		slices.SortFunc(p.EPGs, func(a, b acitest.EPG) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(p.Contracts, func(a, b acitest.Contract) int { return strings.Compare(a.Name, b.Name) })
		for i, e := range p.EPGs {
			p.EPGs[i].Links = slices.Clone(e.Links)
			slices.SortFunc(p.EPGs[i].Links, func(a, b acitest.Link) int {
				return strings.Compare(a.Kind+a.Contract+a.DN, b.Kind+b.Contract+b.DN)
			})
		}
		for i, c := range p.Contracts {
			p.Contracts[i].Filters = slices.Clone(c.Filters)
			slices.SortFunc(p.Contracts[i].Filters, func(a, b acitest.Filter) int {
				return strings.Compare(a.Protocol+" "+a.Port, b.Protocol+" "+b.Port)
			})
		}
		out[k] = p
	}
	return out
}
