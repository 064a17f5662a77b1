package netctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

type explainOptions struct {
	common
	key string
}

func newExplain(base common) *command {
	o := &explainOptions{common: base}
	c := &command{
		name:     "explain",
		short:    "Show what applies to an endpoint: its policies in deciding order, its services, and what is not in force",
		examples: []string{"netctl explain web1", "netctl explain 3f0c9a7d1b52 --json"},
		args:     []string{"ENDPOINT"},
	}
	c.flags.Bool(&o.json, "json, j", "print the answer as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	c.run = bindClient(o, runExplain, []*string{&o.key})
	return c
}

func runExplain(ctx context.Context, client *api.Client, o *explainOptions) error {
	x, err := client.Explain(ctx, o.key)
	switch {
	case err != nil:
		return err
	case o.json || o.quiet:
		return o.showJSON(x)
	}
	_, err = fmt.Fprint(o.out, explanation(x))
	return err
}

// explanation is an answer for people.
func explanation(x api.Explanation) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, text)
		}
	}
	line("Endpoint", x.Endpoint)
	line("Name", x.Name)
	line("Container", x.Container)
	line("Host", x.Host)
	line("Addresses", strings.Join(x.Addresses, " "))
	line("Group", x.Group)
	line("Namespace", x.Namespace)
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(x.Labels)) {
		labels = append(labels, k+"="+x.Labels[k])
	}
	line("Labels", strings.Join(labels, " "))
	for _, s := range x.Services {
		line("Service", s.Service+" ("+s.State+")")
	}
	for _, dir := range []struct {
		name  string
		tiers []api.ExplainedTier
	}{{"Connections to it", x.In}, {"Connections of it", x.Out}} {
		fmt.Fprintf(&b, "\n%s:\n", dir.name)
		for i, t := range dir.tiers {
			fmt.Fprintf(&b, "  %d. tier %s: %s\n", i+1, t.Tier, tierText(t))
		}
		switch {
		case x.Closed:
			b.WriteString("  none passes: its policies are not known\n")
		case len(dir.tiers) == 0:
			b.WriteString("  all pass: no policy applies\n")
		case dir.tiers[len(dir.tiers)-1].Default == "pass":
			fmt.Fprintf(&b, "  %d. everything else passes\n", len(dir.tiers)+1)
		case dir.tiers[len(dir.tiers)-1].Tier == tierTenants:
			fmt.Fprintf(&b, "  %d. everything that tier %s leaves to the next one passes\n", len(dir.tiers)+1, tierTenants)
		}
	}
	if len(x.Audited) > 0 {
		fmt.Fprintf(&b, "\nUnder audit, without effect: %s\n", strings.Join(x.Audited, ", "))
	}
	for i, p := range x.Problems {
		if i == 0 {
			b.WriteString("\nNot in force as written:\n")
		}
		fmt.Fprintf(&b, "  %s\n", p)
	}
	return b.String()
}

// tierTenants is the tier that keeps tenants apart.
const tierTenants = "tenants"

func tierText(t api.ExplainedTier) string {
	if t.Tier == tierTenants {
		return "the next tier decides about the tenant's own and shared networks, and addresses outside; other tenants are denied"
	}
	var parts []string
	if t.Rules > 0 {
		rules := condition.Count(t.Rules, "rule")
		if len(t.Policies) > 0 {
			rules += " of " + strings.Join(t.Policies, ", ")
		}
		parts = append(parts, rules)
	}
	switch rest := map[string]string{"allow": "the rest passes", "deny": "the rest is denied", "pass": "the next tier decides about the rest"}[t.Default]; {
	case len(t.DefaultOf) > 0:
		parts = append(parts, rest+" (default of "+strings.Join(t.DefaultOf, ", ")+")")
	default:
		parts = append(parts, rest)
	}
	return strings.Join(parts, "; ")
}
