package controller

import (
	"context"
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestChangeWithoutFabricCostsWhatItChanges: while no fabric is wanted the keeper, which
// every change of a rule wakes, looks at no rule.
func TestChangeWithoutFabricCostsWhatItChanges(t *testing.T) {
	c := control.New(memory.New(), control.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	p := model.NetworkPolicy{Policy: model.Policy{
		Key: model.PolicyKey{Tenant: "default", Name: "p"}, Kind: model.KindNetwork, Owner: model.OwnerUser,
		Tier: model.TierContiv, Order: model.OrderContiv, Applies: model.Selector{Tenant: "default"},
	}}
	for i := range 1000 {
		key := model.RuleKey{Tenant: "default", Policy: "p", Rule: model.RuleID(fmt.Sprint("r", i))}
		p.Rules = append(p.Rules, model.PolicyRule{Key: key, Direction: model.In, Priority: 1, Action: model.Allow})
	}
	valid, err := model.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, control.Admin(), c.Policies.ReplaceNetworkPolicy(valid)); err != nil {
		t.Fatal(err)
	}
	k := New(Config{Control: c})
	woken, end := context.WithCancel(ctx)
	end()
	each := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			_ = k.await(woken) // the context's end
		}
	}).AllocedBytesPerOp()
	if each > 10_000 { // a thousand rules are ten times that
		t.Errorf("it takes %d bytes", each)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
