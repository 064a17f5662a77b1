package control

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

func networkPolicy(key string, change ...func(*model.Policy)) model.Policy {
	k := policyKey(key)
	p := model.Policy{
		Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: 50,
		Applies: model.Selector{Tenant: k.Tenant, MatchLabels: map[string]string{"app": "web"}}, Default: model.Defaults{In: model.Deny},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func networkRule(pol, id string, peers ...model.Peer) model.PolicyRule {
	r := rule(pol, id).General()
	r.Peers = peers
	return r
}

func bySelector(change func(*model.Selector)) model.Peer {
	s := model.Selector{Tenant: "default"}
	change(&s)
	return model.Peer{Selector: &s}
}

func (c *harness) putNetworkPolicy(p model.Policy) error {
	valid, err := model.Check(p)
	if err == nil {
		_, err = c.Put(testContext(c.t), Admin(), c.Policies.ChangeNetworkPolicy(valid))
	}
	return err
}

func (c *harness) putNetworkRule(r model.PolicyRule, owner model.PolicyOwner) error {
	valid, err := model.Check(r)
	if err == nil {
		_, err = c.Put(testContext(c.t), Admin(), c.Policies.ChangeNetworkRule(valid, owner))
	}
	return err
}

// TestNetworkPoliciesAreCheckedAtEachWrite: what may be said of and done to policies by selector, who
// may, and what stands in the way of deleting what they name.
func TestNetworkPoliciesAreCheckedAtEachWrite(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	put, putRule := c.putNetworkPolicy, func(r model.PolicyRule) error { return c.putNetworkRule(r, model.OwnerUser) }
	kube := networkPolicy("ofkube", func(p *model.Policy) { p.Owner = model.OwnerKubernetes })
	byDB := networkPolicy("n1", func(p *model.Policy) { p.Applies.Group = "db" })
	c.ok(put(byDB))
	c.ok(put(byDB)) // again
	c.ok(put(kube))
	c.ok(putRule(networkRule("n1", "1", bySelector(func(s *model.Selector) { s.Group = "idle" }))))
	for _, name := range []string{"kubernetes.a.b.c", "kubernetes-cluster.x"} {
		c.ok(put(networkPolicy(name, func(p *model.Policy) { p.Owner = model.OwnerKubernetes })))
	}
	ofKube := model.RuleKey{Tenant: "default", Policy: "ofkube", Rule: "1"}
	c.ok(c.putNetworkRule(networkRule("ofkube", "1"), model.OwnerKubernetes))

	var many []model.Peer
	for i := range MaxRuleRefs + 1 {
		many = append(many, bySelector(func(s *model.Selector) { s.Group = model.GroupName(fmt.Sprint("g", i)) }))
	}
	for name, tc := range map[string]struct {
		err  error
		kind error
		part string
	}{
		"a name of a Contiv policy":          {put(networkPolicy("p1")), model.ErrConflict, "is a contiv policy"},
		"a Contiv policy of its name":        {c.try(policy("n1")), model.ErrConflict, "is a network policy"},
		"a rule of 1.x":                      {c.try(rule("n1", "2")), model.ErrConflict, "is a network policy"},
		"a rule in a Contiv policy":          {putRule(networkRule("p1", "9")), model.ErrConflict, "is a contiv policy"},
		"Kubernetes' by hand":                {put(networkPolicy("ofkube")), model.ErrConflict, "belongs to kubernetes"},
		"a rule of Kubernetes' by hand":      {putRule(networkRule("ofkube", "2")), model.ErrConflict, "belongs to kubernetes"},
		"a name kept for Kubernetes":         {put(networkPolicy("kubernetes.a.d")), model.ErrInvalid, "reserved for policies of Kubernetes"},
		"so of a Contiv policy":              {c.try(policy("kubernetes-long.d")), model.ErrInvalid, "reserved for policies of Kubernetes"},
		"a NetworkPolicy by hand":            {put(networkPolicy("kubernetes.a.b.c")), model.ErrConflict, "change NetworkPolicy a/b.c there"},
		"a ClusterNetworkPolicy by hand":     {err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(policyKey("kubernetes-cluster.x"), model.OwnerUser))), model.ErrConflict, "change ClusterNetworkPolicy x there"},
		"deleting Kubernetes' by hand":       {err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(kube.Key, model.OwnerUser))), model.ErrConflict, "belongs to kubernetes"},
		"deleting its rule by hand":          {err2(c.Delete(ctx, Admin(), c.Policies.DeleteNetworkRule(ofKube, model.OwnerUser))), model.ErrConflict, "belongs to kubernetes"},
		"deleting it in 1.x's words":         {c.remove(byDB.Key), model.ErrConflict, "is a network policy"},
		"a group that names it":              {c.try(group("web", "v1", "n1")), model.ErrInvalid, "selects its endpoints itself"},
		"an unknown tier":                    {put(networkPolicy("n2", func(p *model.Policy) { p.Tier = 77 })), model.ErrInvalid, "must be one of admin"},
		"a group that is not there":          {put(networkPolicy("n2", func(p *model.Policy) { p.Applies.Group = "none" })), model.ErrNotFound, `group "none"`},
		"a network that is not there":        {put(networkPolicy("n2", func(p *model.Policy) { p.Applies.Network = "none" })), model.ErrNotFound, `network "none"`},
		"a peer that is not there":           {putRule(networkRule("n1", "2", bySelector(func(s *model.Selector) { s.Network = "none" }))), model.ErrNotFound, `peers[0].selector.network "none"`},
		"too many groups":                    {putRule(networkRule("n1", "2", many...)), model.ErrInvalid, "at most 8"},
		"a rule of no policy":                {putRule(networkRule("none", "2")), model.ErrNotFound, "none"},
		"deleting the group that it selects": {c.remove(groupKey("db")), model.ErrInUse, "network policies select by it"},
		"deleting the group of a peer":       {c.remove(groupKey("idle")), model.ErrInUse, "default:n1:1"},
	} {
		if !errors.Is(tc.err, tc.kind) || tc.err == nil || !strings.Contains(tc.err.Error(), tc.part) {
			t.Errorf("%s: %v, want %v with %q", name, tc.err, tc.kind, tc.part)
		}
	}
	v := c.fresh()
	if n := len(v.Policies.ListContiv("default")) + len(v.Policies.RulesOfPolicy(byDB.Key)); n != 2 {
		t.Errorf("%d policies and rules are told in 1.x's words", n)
	}
	if n := len(v.Policies.List("default")) + len(v.Policies.AnyRulesOf(byDB.Key)); n != 7 {
		t.Errorf("%d policies and rules in all", n)
	}

	// What is named changes, and what was named is free.
	byPool := byDB
	byPool.Applies.Group = "pool"
	c.ok(put(byPool))
	c.ok(putRule(networkRule("n1", "1")))
	c.ok(c.remove(groupKey("idle")))
	c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: "6"}))
	c.ok(c.remove(groupKey("db")))
	if p, ok := c.fresh().Policies.Get(byDB.Key); !ok || p.Applies.Group != "pool" {
		t.Errorf("the policy is %+v", p)
	}
	if err := c.remove(model.EndpointKey{Network: netKey("v2"), ID: "c9"}); err != nil {
		t.Fatal(err)
	}
	if err := c.remove(groupKey("pool")); !errors.Is(err, model.ErrInUse) || !strings.Contains(err.Error(), "default:n1") {
		t.Errorf("deleting the group of a policy: %v", err)
	}
	c.ok(err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(byDB.Key, model.OwnerUser))))
	c.ok(c.remove(groupKey("pool")))
	c.ok(err2(c.Delete(ctx, Admin(), c.Policies.DeleteNetworkRule(ofKube, model.OwnerKubernetes))))
	for _, name := range []string{"ofkube", "kubernetes.a.b.c", "kubernetes-cluster.x"} {
		c.ok(err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(policyKey(name), model.OwnerKubernetes))))
	}
	v = c.fresh()
	if n := len(v.Policies.List("default")) + len(v.Policies.AnyRulesOf(byDB.Key)); n != 2 {
		t.Errorf("%d policies and rules are left", n)
	}
}

// TestTooLargeNetworkPoliciesAreRefused: what no host holds is refused with the count, by the
// identities that selectors select.
func TestTooLargeNetworkPoliciesAreRefused(t *testing.T) {
	c := onStore(t, memory.New())
	c.put(network("net", "10.0.0.0/16"))
	for i := range 2800 {
		c.put(endpoint("net", fmt.Sprint("c", i), func(e *model.Endpoint) {
			e.Labels = map[string]string{"app": strconv.Itoa(i % 2), "id": strconv.Itoa(i)}
		}))
	}
	c.ok(c.putNetworkPolicy(networkPolicy("n")))
	c.fresh() // the count goes by what has been mirrored
	wide := func(label, value string) model.PolicyRule {
		r := networkRule("n", "1")
		for i := range model.MaxRulePorts { // some 16 blocks each
			r.Ports = append(r.Ports, model.PortMatch{Protocol: model.ProtoTCP, Lo: uint16(1 + 1001*i), Hi: uint16(901 + 1001*i)})
		}
		r.Peers = []model.Peer{bySelector(func(s *model.Selector) { s.MatchLabels = map[string]string{label: value} })}
		return r
	}
	if err := c.putNetworkRule(wide("id", "1"), model.OwnerUser); err != nil {
		t.Errorf("of one identity: %v", err)
	}
	err := c.putNetworkRule(wide("app", "1"), model.OwnerUser)
	if !errors.Is(err, model.ErrExhausted) || !strings.Contains(err.Error(), "entries") {
		t.Errorf("of fourteen hundred: %v", err)
	}
}

// TestPolicyIsFenced: a leader that has been replaced changes and deletes no policy,
// be it too large for one transaction.
func TestPolicyIsFenced(t *testing.T) {
	c := newCluster(t)
	old := c.leader()
	put := func(l Leader, n int) error {
		p := manyRules(n, 1)
		p.Policy.Owner = model.OwnerKubernetes
		_, err := c.Put(testContext(t), l.Actor(), c.Policies.ReplaceNetworkPolicy(valid(p)))
		return err
	}
	key := manyRules(1, 1).Policy.Key
	c.ok(put(old, 1))
	now := c.leader()
	c.refused(store.ErrFenced, "leadership", func() error { return put(old, 2) })
	c.refused(store.ErrFenced, "leadership", func() error { return put(old, 3000) })
	drop := func(l Leader) error {
		return err2(c.Delete(testContext(t), l.Actor(), DeleteNetworkPolicy(key, model.OwnerKubernetes)))
	}
	c.refused(store.ErrFenced, "leadership", func() error { return drop(old) })
	c.ok(put(now, 3000))
	if n := len(c.fresh().Policies.AnyRulesOf(key)); n != 3000 {
		t.Errorf("%d rules", n)
	}
	c.ok(drop(now))
}

// TestTenantAdminWritesNoAdminTier: what is in tier admin is a cluster administrator's: others
// neither create nor change nor delete it or a rule of it, nor move a policy there.
func TestTenantAdminWritesNoAdminTier(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	toAdmin := func(p *model.Policy) { p.Tier = model.TierAdmin }
	whole := func(key string, change ...func(*model.Policy)) Change {
		p := networkPolicy(key, change...)
		valid, err := model.Check(model.NetworkPolicy{Policy: p, Rules: []model.PolicyRule{networkRule(key, "r")}})
		if err != nil {
			t.Fatal(err)
		}
		return c.Policies.ReplaceNetworkPolicy(valid)
	}
	for _, p := range []Change{whole("corp", toAdmin), whole("mine")} {
		if _, err := c.Put(ctx, Admin(), p); err != nil {
			t.Fatal(err)
		}
	}
	header, err := model.Check(networkPolicy("corp"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := model.Check(networkRule("corp", "another"))
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"creates a policy":  func() error { _, err := c.Put(ctx, TenantAdmin("blue"), whole("new", toAdmin)); return err },
		"moves its own":     func() error { _, err := c.Put(ctx, TenantAdmin("blue"), whole("mine", toAdmin)); return err },
		"replaces a policy": func() error { _, err := c.Put(ctx, TenantAdmin("blue"), whole("corp")); return err },
		"changes a policy": func() error {
			_, err := c.Put(ctx, TenantAdmin("blue"), c.Policies.ChangeNetworkPolicy(header))
			return err
		},
		"adds a rule": func() error {
			_, err := c.Put(ctx, TenantAdmin("blue"), c.Policies.ChangeNetworkRule(one, model.OwnerUser))
			return err
		},
		"deletes a rule": func() error {
			return err2(c.Delete(ctx, TenantAdmin("blue"), c.Policies.DeleteNetworkRule(networkRule("corp", "r").Key, model.OwnerUser)))
		},
		"deletes a policy": func() error {
			return err2(c.Delete(ctx, TenantAdmin("blue"), DeleteNetworkPolicy(policyKey("corp"), model.OwnerUser)))
		},
		"deletes it as Contiv's": func() error {
			if err := err2(c.Delete(ctx, TenantAdmin("blue"), DeletePolicy(policyKey("corp")))); err == nil {
				return errors.New("it is gone")
			}
			return model.ErrForbidden // by its kind
		},
	} {
		if err := do(); !errors.Is(err, model.ErrForbidden) {
			t.Errorf("a tenant admin %s: %v", what, err)
		}
	}
	p, ok := c.fresh().Policies.NetworkPolicy(policyKey("corp"))
	if !ok || p.Policy.Tier != model.TierAdmin || len(p.Rules) != 1 {
		t.Errorf("policy corp is %v %+v", ok, p)
	}
	if _, err := c.Put(ctx, TenantAdmin("blue"), whole("mine")); err != nil {
		t.Errorf("its own policy: %v", err)
	}
}
