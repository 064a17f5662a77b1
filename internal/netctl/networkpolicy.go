package netctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var networkPolicies = register(kindOf((*api.Client).NetworkPolicies, columns[api.NetworkPolicy]{
	header: []string{"Tenant", "Network policy", "Owner", "Tier", "Order", "Mode", "Applies to", "Default in", "Default out", "Rules"},
	row: func(p api.NetworkPolicy) []string {
		applies := api.Selector{}
		if p.Applies != nil {
			applies = *p.Applies
		}
		return []string{p.TenantName, p.NetworkPolicyName, p.Owner, p.Tier, number(p.Order), p.Mode, selectorText(applies), p.DefaultIn, p.DefaultOut, number(len(p.Rules))}
	},
}, objectKind{
	order: 85, name: "networkPolicy", aliases: []string{"network-policy", "network-policies", "networkPolicies", "networkPolicys", "netpol"},
	keyFields: []string{"tenantName", "networkPolicyName"}, placeholders: []string{"NETWORK-POLICY"},
	noun: "network-policy", example: "--tenant blue closed", perTenant: true,
}))

// selectorText writes a selector as people read it.
func selectorText(s api.Selector) string {
	var parts []string
	if s.Network != "" {
		parts = append(parts, "network:"+s.Network)
	}
	if s.Group != "" {
		parts = append(parts, "group:"+s.Group)
	}
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		parts = append(parts, k+"="+s.MatchLabels[k])
	}
	for _, e := range s.MatchExpressions {
		parts = append(parts, strings.TrimSpace(e.Key+" "+e.Operator+" "+strings.Join(e.Values, "|")))
	}
	return cmp.Or(strings.Join(parts, ","), "all")
}

type networkPolicyOptions struct {
	common
	policy  api.NetworkPolicy
	applies api.Selector
	labels  []string
	rules   []string
}

func newNetworkPolicy(base common) *command {
	return &command{
		name:  "network-policy",
		short: "Network policies: rules for the endpoints that have certain labels, of a group, a network or a tenant.",
		examples: []string{
			"netctl network-policy create --tenant blue --default-in deny --group web closed",
			`netctl network-policy create --tenant blue --label app=db --default-in deny --rule "in allow app=web tcp/5432 log" db`,
			`netctl network-policy rule-set --tenant blue db web "in allow app=web tcp/5432"`,
			"netctl network-policy ls --tenant blue",
			"netctl network-policy rm --tenant blue db",
		},
		subs: []*command{
			newNetworkPolicyCreate(base),
			newInspect(base, networkPolicies, "Show a network policy and the endpoints that it applies to"),
			newList(base, networkPolicies, "List network policies"),
			newRemove(base, networkPolicies, "Delete a network policy with its rules"),
			newNetworkRuleSet(base),
			newNetworkRuleRemove(base),
		},
	}
}

func newNetworkPolicyCreate(base common) *command {
	o := &networkPolicyOptions{common: base, policy: api.NetworkPolicy{Order: 100, Tier: "contiv", Mode: "enforce"}}
	p := &o.policy
	c := &command{
		name:  "create",
		fills: p,
		short: "Create a network policy, or replace one with all of its rules",
		examples: []string{
			"netctl network-policy create --tenant blue --default-in deny --group web closed   # nothing gets in unless a rule allows it",
			`netctl network-policy create --tenant blue --label app=db --default-in deny --rule "in allow app=web tcp/5432" --rule "in allow 10.9.0.0/16 icmp" db`,
			`netctl network-policy create --tenant blue --mode audit --default-out deny --rule "out allow app=db tcp/5432" trial`,
		},
		args: []string{"NETWORK-POLICY"},
	}
	o.tenantFlag(&c.flags)
	c.flags.String(&p.Tier, "tier", "admin|contiv|baseline", "")
	c.flags.Int(&p.Order, "order", "1-200", "")
	c.flags.String(&p.Mode, "mode", "enforce|audit", "")
	c.flags.String(&o.applies.Network, "network, n", "NETWORK", "apply to endpoints on this network only")
	c.flags.String(&o.applies.Group, "group, g", "GROUP", "apply to endpoints of this group only")
	c.flags.List(&o.labels, "label, l", "KEY=VALUE", "apply to endpoints with this label only")
	c.flags.String(&p.DefaultIn, "default-in", "allow|deny|pass", "")
	c.flags.String(&p.DefaultOut, "default-out", "allow|deny|pass", "")
	c.flags.Texts(&o.rules, "rule, r", "RULE", "DIRECTION ACTION [PEER...] [PROTOCOL[/PORTS]...] [priority=N] [log] in quotes; a peer is labels (a=b,c=d), group:NAME, network:NAME, address or CIDR (!CIDR excludes it); none: any")
	for name, field := range map[string]string{"network": "applies.network", "group": "applies.group", "label": "applies.matchLabels", "rule": "rules"} {
		c.flags.Lookup(name).Field = field
	}
	writeFlags(&c.flags, &o.common, "json, j", "print the policy as stored, as JSON")
	c.run = bindRun(o, runNetworkPolicyCreate, []*string{&p.NetworkPolicyName})
	return c
}

func runNetworkPolicyCreate(ctx context.Context, o *networkPolicyOptions) error {
	p := &o.policy
	p.TenantName = o.tenant
	for _, l := range o.labels {
		if err := addLabel(&o.applies, l); err != nil {
			return flags.Usagef("flag --label %q: %v", l, err)
		}
	}
	if o.policy.Order < 1 {
		return flags.Usagef("flag --order %d: must be between 1 and 200", o.policy.Order)
	}
	if selectorText(o.applies) != "all" {
		p.Applies = &o.applies
	}
	for i, text := range o.rules {
		r, err := parseRule(text)
		if err != nil {
			return flags.Usagef("flag --rule %q: %v", text, err)
		}
		r.RuleID = strconv.Itoa(i + 1)
		p.Rules = append(p.Rules, r)
	}
	return inRules(o.rules, put(ctx, &o.common, networkPolicies, p.NetworkPolicyName, *p))
}

var ruleField = regexp.MustCompile(`(^|[:;] )rules\[(\d+)\]\.(?:(?:ports|peers)\[\d+\]\.)?`)

// inRules names the text of --rule in netmaster's sentence about a rule's field.
func inRules(texts []string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Status == http.StatusForbidden {
		return err
	}
	said := ruleField.ReplaceAllStringFunc(err.Error(), func(s string) string {
		part := ruleField.FindStringSubmatch(s)
		n, _ := strconv.Atoi(part[2])
		if n >= len(texts) {
			return s
		}
		return fmt.Sprintf("%s--rule %q: ", part[1], texts[n])
	})
	return &flagsError{err, said}
}

func addLabel(s *api.Selector, text string) error {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q must be KEY=VALUE", text)
	}
	if old, twice := s.MatchLabels[k]; twice && old != v {
		return fmt.Errorf("label %q cannot have two values at once; write two rules or two policies", k)
	}
	if s.MatchLabels == nil {
		s.MatchLabels = map[string]string{}
	}
	s.MatchLabels[k] = v
	return nil
}

// parseRule parses a rule of the command line. What the words mean is
// netmaster's to check.
func parseRule(text string) (r api.NetworkPolicyRule, err error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return r, errors.New("must begin with a direction and an action: in allow")
	}
	r.Direction, r.Action = words[0], words[1]
	for i, w := range words[2:] {
		n, isPriority := strings.CutPrefix(w, "priority=")
		switch before := words[i+1]; {
		case isNumber(w) && (before == "tcp" || before == "udp"):
			return r, fmt.Errorf("%q after %q would be a protocol's number: write the port as %s/%s", w, before, before, w)
		case w == "log":
			r.Log = true
		case isPriority && r.Priority != 0:
			return r, fmt.Errorf("%q is a second priority", w)
		case isPriority:
			if r.Priority, err = strconv.Atoi(n); err != nil || r.Priority < 1 {
				return r, fmt.Errorf("%q must have a number from 1 to 100", w)
			}
		case isPort(w):
			proto, ports, some := strings.Cut(w, "/")
			if some && ports == "" {
				return r, fmt.Errorf("%q names no port", w)
			}
			r.Ports = append(r.Ports, api.NetworkPolicyPort{Protocol: proto, Ports: ports})
		default:
			p, err := parsePeer(w)
			if err != nil {
				return r, err
			}
			r.Peers = append(r.Peers, p)
		}
	}
	return r, nil
}

func isNumber(w string) bool { return strings.Trim(w, "0123456789") == "" }

// isPort tells a protocol, which may have ports, from a peer.
func isPort(w string) bool {
	proto, _, _ := strings.Cut(w, "/")
	_, err := strconv.ParseUint(proto, 10, 8)
	return err == nil || proto == "tcp" || proto == "udp" || proto == "icmp"
}

func parsePeer(w string) (p api.NetworkPolicyPeer, err error) {
	if w == "network:" || w == "group:" || strings.HasSuffix(w, "!") || strings.Contains(w, "!!") {
		return p, fmt.Errorf("a name or an address is missing in %q", w)
	}
	if network, ok := strings.CutPrefix(w, "network:"); ok {
		return api.NetworkPolicyPeer{Network: network}, nil
	}
	if group, ok := strings.CutPrefix(w, "group:"); ok {
		return api.NetworkPolicyPeer{Selector: &api.Selector{Group: group}}, nil
	}
	cidr, except, _ := strings.Cut(w, "!")
	address, _, _ := strings.Cut(cidr, "/")
	if _, err := netip.ParseAddr(address); err == nil {
		p.CIDR = cidr
		if except != "" {
			p.Except = strings.Split(except, "!")
		}
		return p, nil
	}
	p.Selector = &api.Selector{}
	for l := range strings.SplitSeq(w, ",") {
		if err := addLabel(p.Selector, l); err != nil {
			return p, fmt.Errorf("%q is not a peer (app=web, group:NAME, network:NAME, 10.0.0.0/8), protocol (tcp/80), priority=N or log", w)
		}
	}
	return p, nil
}
