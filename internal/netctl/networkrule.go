package netctl

import (
	"context"
	"reflect"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type networkRuleOptions struct {
	common
	policy, rule, text string
}

func (o *networkRuleOptions) key() string { return o.tenant + ":" + o.policy + ":" + o.rule }

func newNetworkRuleSet(base common) *command {
	o := &networkRuleOptions{common: base}
	c := &command{
		name:    "rule-set",
		aliases: []string{"rule-add"},
		short:   "Add a rule to a network policy, or replace it; TEXT is written as for --rule of create",
		examples: []string{
			`netctl network-policy rule-set --tenant blue db web "in allow app=web tcp/5432"`,
			`netctl network-policy rule-set db rest "in deny 10.0.0.0/8 priority=1 log"`,
		},
		args: []string{"NETWORK-POLICY", "RULE", "TEXT"},
	}
	o.tenantFlag(&c.flags)
	writeFlags(&c.flags, &o.common, "json, j", "print the rule as stored, as JSON")
	c.run = bindRun(o, runNetworkRuleSet, []*string{&o.policy, &o.rule, &o.text})
	return c
}

func runNetworkRuleSet(ctx context.Context, o *networkRuleOptions) error {
	r, err := parseRule(o.text)
	if err != nil {
		return flags.Usagef("TEXT %q: %v", o.text, err)
	}
	r.RuleID = o.rule
	client, err := o.client()
	if err != nil {
		return err
	}
	policy := o.tenant + ":" + o.policy
	before, err := client.NetworkPolicyRule(ctx, policy, o.rule)
	existed := err == nil
	if err != nil && !api.IsNotFound(err) {
		return err
	}
	after, err := client.PutNetworkPolicyRule(ctx, policy, r)
	if err != nil {
		return err
	}
	return o.printResult(writeVerb(existed, reflect.DeepEqual(before, after))+" rule", o.rule, o.key(), after)
}

func newNetworkRuleRemove(base common) *command {
	o := &networkRuleOptions{common: base}
	c := &command{
		name:     "rule-rm",
		short:    "Delete a rule from a network policy",
		examples: []string{"netctl network-policy rule-rm --tenant blue db web"},
		args:     []string{"NETWORK-POLICY", "RULE"},
	}
	o.tenantFlag(&c.flags)
	writeFlags(&c.flags, &o.common, "json, j", "print the deleted key as JSON")
	c.run = bindClient(o, runNetworkRuleRemove, []*string{&o.policy, &o.rule})
	return c
}

func runNetworkRuleRemove(ctx context.Context, client *api.Client, o *networkRuleOptions) error {
	if err := client.DeleteNetworkPolicyRule(ctx, o.tenant+":"+o.policy, o.rule); err != nil {
		return err
	}
	return o.printResult("Deleted rule", o.rule, o.key(), map[string]string{"key": o.key()})
}
