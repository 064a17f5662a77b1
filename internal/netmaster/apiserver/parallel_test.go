package apiserver

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestParallelRequestsGetDistinctAddresses: what killed 1.x, or made it hand things out twice, in parallel
// (known faults 1, 2 and 3): networks, rules, groups with pools and endpoints
// created while others list.
func TestParallelRequestsGetDistinctAddresses(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var accepted int
	ips := make(map[string]string)
	each := func(workers, n int, do func(worker, i int) error) {
		for w := range workers {
			wg.Go(func() {
				for i := range n {
					if err := do(w, i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	each(8, 12, func(w, i int) error { // networks of their own
		_, err := f.Networks().Create(ctx, api.Network{TenantName: "red", NetworkName: fmt.Sprintf("n%d-%d", w, i), Encap: "vxlan", Subnet: fmt.Sprintf("10.%d.%d.0/24", w, i)})
		return err
	})
	each(16, 1, func(w, _ int) error { // one subnet under 16 names
		_, err := f.Networks().Create(ctx, api.Network{TenantName: "blue", NetworkName: fmt.Sprintf("same%d", w), Encap: "vxlan", Subnet: "10.77.0.0/24"})
		if api.IsConflict(err) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		accepted++
		return err
	})
	each(8, 12, func(w, i int) error {
		_, err := f.Rules().Create(ctx, api.Rule{TenantName: "blue", PolicyName: "p", RuleID: fmt.Sprintf("r%d-%d", w, i), Direction: "in", Action: "allow", Protocol: "tcp", Port: 1 + i})
		return err
	})
	each(4, 8, func(w, i int) error { // pools of four addresses in 10.1.1.128/25
		first := 128 + (w*8+i)*3
		_, err := f.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: "blue", GroupName: fmt.Sprintf("g%d-%d", w, i), NetworkName: "n", IPPool: fmt.Sprintf("10.1.1.%d-10.1.1.%d", first, first+2)})
		return err
	})
	each(8, 10, func(w, i int) error {
		r, err := f.CreateEndpoint(ctx, api.CreateEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: fmt.Sprintf("p%d-%d", w, i), ConfigEP: api.ConfigEP{Host: "h"}})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if other := ips[r.EndpointConfig.IPAddress]; other != "" {
			return fmt.Errorf("%s and %s both have %s", other, r.EndpointConfig.EndpointID, r.EndpointConfig.IPAddress)
		}
		ips[r.EndpointConfig.IPAddress] = r.EndpointConfig.EndpointID
		return nil
	})
	each(4, 20, func(_, _ int) error {
		if _, err := f.Tenants().List(ctx); err != nil {
			return err
		}
		_, err := f.Networks().Inspect(ctx, "blue:n")
		return err
	})
	wg.Wait()
	if accepted != 1 {
		t.Errorf("one subnet was accepted %d times", accepted)
	}
	n, err := f.Networks().Inspect(ctx, "blue:n")
	if err != nil || n.Oper.NumEndpoints != 81 || n.Oper.AllocatedAddressesCount != 81 || len(n.Config.LinkSets.EndpointGroups) != 34 {
		t.Errorf("%d endpoints, %d addresses, %d groups, %v", n.Oper.NumEndpoints, n.Oper.AllocatedAddressesCount, len(n.Config.LinkSets.EndpointGroups), err)
	}
	networks, err := f.Networks().List(ctx)
	if err != nil || len(networks) != 99 {
		t.Errorf("%d networks, %v", len(networks), err)
	}
	if !slices.IsSortedFunc(networks, func(a, b api.Network) int { return map[bool]int{true: -1, false: 1}[a.Key < b.Key] }) {
		t.Error("the list is not in key order")
	}
	p, err := f.Policies().Get(ctx, "blue:p")
	if err != nil || len(p.LinkSets.Rules) != 97 {
		t.Errorf("%d rules, %v", len(p.LinkSets.Rules), err)
	}
}
