package netctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type ruleAddOptions struct {
	common
	rule   api.Rule
	within time.Duration
}

func newRuleAdd(base common) *command {
	o := &ruleAddOptions{
		common: base,
		rule:   api.Rule{Priority: 1, Direction: "in", Action: "allow"},
	}
	r := &o.rule
	c := &command{
		name:  "rule-add",
		fills: r,
		short: "Add a rule to a policy",
		examples: []string{
			"netctl policy rule-add --direction in --protocol tcp --port 80 --action allow --priority 10 web-in http",
			"netctl policy rule-add --direction in --from-group app --protocol tcp --port 5432 db-in app",
			"netctl policy rule-add --direction out --to-ip-address 192.0.2.0/24 --action deny web-in no-office",
		},
		args: []string{"POLICY", "RULE"},
	}
	o.tenantFlag(&c.flags)
	c.flags.Int(&r.Priority, "priority, p", "1-100", "")
	c.flags.String(&r.Direction, "direction, d", "in|out", "")
	c.flags.String(&r.FromEndpointGroup, "from-group, g", "GROUP", "")
	c.flags.String(&r.ToEndpointGroup, "to-group, e", "GROUP", "")
	c.flags.String(&r.FromNetwork, "from-network, n", "NETWORK", "")
	c.flags.String(&r.ToNetwork, "to-network, o", "NETWORK", "")
	c.flags.String(&r.FromIPAddress, "from-ip-address, i", "CIDR", "")
	c.flags.String(&r.ToIPAddress, "to-ip-address, s", "CIDR", "")
	c.flags.String(&r.Protocol, "protocol, l", "PROTOCOL", "")
	c.flags.Int(&r.Port, "port, P", "PORT", "")
	c.flags.String(&r.Action, "action, j", "allow|deny", "")
	confirmFlag(&c.flags, &o.within)
	// -j means --action here, as in 1.x.
	writeFlags(&c.flags, &o.common, "json", "print the rule as stored, as JSON")
	c.run = bindRun(o, runRuleAdd, []*string{&r.PolicyName, &r.RuleID})
	return c
}

func runRuleAdd(ctx context.Context, o *ruleAddOptions) error {
	r := &o.rule
	r.TenantName = o.tenant
	if r.Priority == 0 { // given so: netmaster takes 0 for none, as in 1.x
		return flags.Usagef("--priority \"0\": must be between 1 and 100")
	}
	if err := checkPeers(r); err != nil {
		return err
	}
	if err := putOrPend(ctx, &o.common, o.within, rules, r.RuleID, *r); err != nil {
		return err
	}
	peer := r.FromEndpointGroup + r.ToEndpointGroup + r.FromNetwork + r.ToNetwork + r.FromIPAddress + r.ToIPAddress
	if r.Action == "allow" && peer+r.Protocol == "" && r.Port == 0 { // 1.x's defaults: to refuse them would break its scripts
		_, err := fmt.Fprintf(o.stderr, "warning: rule %s allows everything in direction %s: it names no peer, protocol or port; 'netctl policy rule-rm -t %s %s %s' deletes it\n", r.RuleID, r.Direction, r.TenantName, r.PolicyName, r.RuleID)
		return err
	}
	return nil
}

// checkPeers refuses peers of the wrong direction before anything is sent, as
// 1.x did.
func checkPeers(r *api.Rule) error {
	from := []struct{ flag, value string }{
		{"from-group", r.FromEndpointGroup},
		{"from-network", r.FromNetwork},
		{"from-ip-address", r.FromIPAddress},
	}
	to := []struct{ flag, value string }{
		{"to-group", r.ToEndpointGroup},
		{"to-network", r.ToNetwork},
		{"to-ip-address", r.ToIPAddress},
	}
	wrong := to
	switch r.Direction {
	case "in":
	case "out":
		wrong = from
	default:
		return flags.Usagef("flag --direction %q: must be in or out", r.Direction)
	}
	for _, f := range wrong {
		if f.value != "" {
			return flags.Usagef("flag --%s cannot go with --direction %s", f.flag, r.Direction)
		}
	}
	return nil
}

type ruleOptions struct {
	common
	policy string
	rule   string
}

func newRuleRemove(base common) *command {
	o := &ruleOptions{common: base}
	c := &command{
		name:     "rule-rm",
		short:    "Delete a rule from a policy",
		examples: []string{"netctl policy rule-rm --tenant blue web-in http"},
		args:     []string{"POLICY", "RULE"},
	}
	o.tenantFlag(&c.flags)
	writeFlags(&c.flags, &o.common, "json, j", "print the deleted key as JSON")
	c.run = bindRun(o, runRuleRemove, []*string{&o.policy, &o.rule})
	return c
}

func runRuleRemove(ctx context.Context, o *ruleOptions) error {
	return remove(ctx, &o.common, rules, o.rule, o.tenant+":"+o.policy+":"+o.rule)
}

func newRuleList(base common) *command {
	o := &ruleOptions{common: base}
	c := &command{
		name:     "rule-ls",
		short:    "List a policy's rules, in the order in which they decide",
		examples: []string{"netctl policy rule-ls --tenant blue web-in"},
		args:     []string{"POLICY"},
	}
	o.tenantFlag(&c.flags)
	o.listFlags(c, "rule ids only")
	c.run = bindClient(o, runRuleList, []*string{&o.policy})
	return c
}

func runRuleList(ctx context.Context, client *api.Client, o *ruleOptions) error {
	// A policy that does not exist is an error, not an empty list.
	if _, err := client.Policies().Get(ctx, o.tenant+":"+o.policy); err != nil {
		return err
	}
	all, err := client.Rules().List(ctx)
	if err != nil {
		return err
	}
	var shown []api.Rule
	for _, r := range all {
		if r.TenantName == o.tenant && r.PolicyName == o.policy {
			shown = append(shown, r)
		}
	}
	slices.SortFunc(shown, compareRules)
	if !o.inTable() {
		l := rulesToward("").items(shown...)
		l.kind = rules.name
		return o.printItems(l)
	}
	for _, side := range []struct{ direction, title, peer string }{
		{"in", "Incoming Rules:", "From"},
		{"out", "Outgoing Rules:", "To"},
	} {
		if _, err := fmt.Fprintln(o.out, side.title); err != nil {
			return err
		}
		ofSide := slices.DeleteFunc(slices.Clone(shown), func(r api.Rule) bool { return r.Direction != side.direction })
		if err := o.printItems(rulesToward(side.peer).items(ofSide...)); err != nil {
			return err
		}
	}
	return nil
}

// compareRules orders rules as they decide: by priority, deny before allow.
func compareRules(a, b api.Rule) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(b.Action, a.Action), // "deny" sorts after "allow"
		cmp.Compare(a.RuleID, b.RuleID),
	)
}

var rules = register(kindOf((*api.Client).Rules, columns[api.Rule]{
	header: []string{"Tenant", "Policy", "Rule", "Direction", "Priority", "Peer", "Protocol", "Port", "Action"},
	row: func(r api.Rule) []string {
		peer := r.FromEndpointGroup + r.ToEndpointGroup + r.FromNetwork + r.ToNetwork + r.FromIPAddress + r.ToIPAddress
		return []string{r.TenantName, r.PolicyName, r.RuleID, r.Direction, number(r.Priority), peer, r.Protocol, number(r.Port), r.Action}
	},
}, objectKind{
	order: 65, name: "rule", aliases: []string{"rules"}, perTenant: true,
	keyFields: []string{"tenantName", "policyName", "ruleId"}, placeholders: []string{"RULE"},
	asDocument: withoutNetworkAddress, within: ruleOfPolicy,
}))

// rulesToward are the columns of a policy's rules in one direction.
func rulesToward(peer string) columns[api.Rule] {
	return columns[api.Rule]{
		header: []string{"Rule", "Priority", peer + " EndpointGroup", peer + " Network", peer + " IpAddress", "Protocol", "Port", "Action"},
		row: func(r api.Rule) []string { // only the side that fits the direction is set
			return []string{
				r.RuleID, strconv.Itoa(r.Priority), r.FromEndpointGroup + r.ToEndpointGroup,
				r.FromNetwork + r.ToNetwork, r.FromIPAddress + r.ToIPAddress, r.Protocol, strconv.Itoa(r.Port), r.Action,
			}
		},
		id: func(r api.Rule) string { return r.RuleID },
	}
}

// withoutNetworkAddress drops from a rule whose peer is a network the address
// beside it: 1.x writes the network's subnet there as soon as a group has the
// policy, and a rule has one kind of peer.
func withoutNetworkAddress(object any) any {
	r, ok := object.(api.Rule)
	if !ok {
		return object
	}
	if r.FromNetwork != "" {
		r.FromIPAddress = ""
	}
	if r.ToNetwork != "" {
		r.ToIPAddress = ""
	}
	return r
}

// ruleOfPolicy names a rule on a command line that has its policy already.
func ruleOfPolicy(object any, previous []string) (string, bool) {
	r := as[api.Rule](object)
	return r.RuleID, len(previous) > 0 && r.PolicyName == previous[0]
}
