package netctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// globalKey is the key of the one global object.
const globalKey = "global"

var globalSettings = register(kindOf((*api.Client).Globals, columns[api.Global]{
	header: []string{"Fabric mode", "Forward mode", "ARP mode", "Vlan Range", "Vxlan range", "Private subnet"},
	row: func(g api.Global) []string {
		return []string{g.NetworkInfraType, g.FwdMode, g.ArpMode, g.Vlans, g.Vxlans, g.PvtSubnet}
	},
	wideHeader: []string{"Generated labels", "Tenant prefixes"},
	wideRow: func(g api.Global) []string {
		return []string{cmp.Or(strings.Join(g.GeneratedLabels, ","), "default"), cmp.Or(strings.Join(g.TenantPrefixes, ","), "none")}
	},
}, objectKind{
	order: 10, name: "global", aliases: []string{"globals"},
	keyFields: []string{"name"},
	single:    globalKey,
}))

// The sentence is model.NoEffect's, copied since netctl does not link
// internal/model; TestHelpSaysWhatHasNoEffect compares them.
const noteOpflex = "infrastructure type aci-opflex has no effect: this version knows no OpFlex, and hosts forward as with type default"

type globalOptions struct {
	common
	all bool
}

func newGlobal(base common) *command {
	return &command{
		name:  "global",
		short: "Settings of the whole cluster.",
		examples: []string{
			"netctl global info",
			"netctl global set --fwd-mode routing",
			"netctl global inspect",
		},
		subs: []*command{
			newGlobalInfo(base),
			newInspect(base, globalSettings, "Show the settings and what is in use of the ranges"),
			newGlobalSet(base),
		},
	}
}

func newGlobalInfo(base common) *command {
	o := &globalOptions{common: base}
	c := &command{
		name:     "info",
		short:    "Show the settings",
		examples: []string{"netctl global info", "netctl global info --json"},
	}
	c.flags.String(&o.tenant, "tenant, t", "TENANT", "accepted, as in 1.x; the settings are those of all tenants")
	c.flags.Bool(&o.all, "all, a", "accepted, as in 1.x; there is one set of settings")
	c.flags.Bool(&o.json, "json, j", "print the settings as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	c.run = bindClient(o, runGlobalInfo, nil)
	return c
}

func runGlobalInfo(ctx context.Context, client *api.Client, o *globalOptions) error {
	got, err := client.Globals().Inspect(ctx, globalKey)
	if err != nil {
		return err
	}
	g := got.Config
	if o.json || o.quiet {
		return o.showJSON(g)
	}
	_, err = fmt.Fprintf(o.out, "Fabric mode: %s\nForward mode: %s\nARP mode: %s\nVlan Range: %s\nVxlan range: %s\nPrivate subnet: %s\nGenerated labels: %s\nTenant prefixes: %s\n%s",
		g.NetworkInfraType, g.FwdMode, g.ArpMode, g.Vlans, g.Vxlans, g.PvtSubnet, cmp.Or(strings.Join(g.GeneratedLabels, ", "), "default"), cmp.Or(strings.Join(g.TenantPrefixes, ", "), "none"), labelsFollow(got.Oper))
	return err
}

// labelsFollow says how far endpoints have followed a change of the generated
// labels; nothing when all have.
func labelsFollow(o api.GlobalOper) string {
	if len(o.FormerLabels) == 0 {
		return ""
	}
	return fmt.Sprintf("Generated labels have changed, and %d endpoints are not updated yet; until then policies cannot select by these labels either: %s\n", o.EndpointsToFollow, strings.Join(o.FormerLabels, ", "))
}

type globalSetOptions struct {
	common
	global api.Global
	within time.Duration
}

func newGlobalSet(base common) *command {
	o := &globalSetOptions{common: base}
	g := &o.global
	c := &command{
		name:  "set",
		fills: g,
		short: "Change settings; what is not given stays as it is",
		note:  noteOpflex,
		examples: []string{
			"netctl global set --fwd-mode routing",
			"netctl global set --vlan-range 100-199 --vxlan-range 1000-9999",
			"netctl global set --arp-mode flood",
			"netctl global set --generated-labels default,com.acme.build.",
		},
	}
	c.flags.String(&g.NetworkInfraType, "fabric-mode, f", "MODE", "aci-opflex has no effect")
	c.flags.String(&g.Vlans, "vlan-range, v", "LO-HI", "")
	c.flags.String(&g.Vxlans, "vxlan-range, x", "LO-HI", "")
	c.flags.String(&g.FwdMode, "fwd-mode, b", "MODE", "")
	c.flags.String(&g.ArpMode, "arp-mode, a", "MODE", "")
	c.flags.String(&g.PvtSubnet, "private-subnet, s", "CIDR", "")
	c.flags.List(&g.GeneratedLabels, "generated-labels", "LABEL,...", "")
	c.flags.List(&g.TenantPrefixes, "tenant-prefixes", "CIDR,...", "none empties the list")
	confirmFlag(&c.flags, &o.within)
	planFlag(&c.flags, &o.plan)
	o.overrideFlag(&c.flags)
	c.flags.Bool(&o.json, "json, j", "print the settings as stored, as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing")
	c.run = bindRun(o, runGlobalSet, nil)
	return c
}

// runGlobalSet sends only what was given: 1.x always sent its default private
// subnet along and so undid an earlier choice (known fault 15).
func runGlobalSet(ctx context.Context, o *globalSetOptions) error {
	var given []string
	for _, f := range []struct{ name, value string }{
		{"fabric-mode", o.global.NetworkInfraType},
		{"fwd-mode", o.global.FwdMode},
		{"arp-mode", o.global.ArpMode},
		{"vlan-range", o.global.Vlans},
		{"vxlan-range", o.global.Vxlans},
		{"private-subnet", o.global.PvtSubnet},
		{"generated-labels", strings.Join(o.global.GeneratedLabels, ",")},
		{"tenant-prefixes", strings.Join(o.global.TenantPrefixes, ",")},
	} {
		if f.value != "" {
			given = append(given, f.name+" "+f.value)
		}
	}
	if given == nil {
		return flags.Usagef("nothing to set: give at least one of the flags")
	}
	o.global.Name = globalKey
	if o.within > 0 {
		object, err := ofKind("global", o.global)
		if err != nil {
			return err
		}
		return o.applyPending(ctx, o.within, []json.RawMessage{object})
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	after, err := client.Globals().Create(ctx, o.global)
	if err != nil {
		return err
	}
	return o.result(after, "", "Set %s", strings.Join(given, ", "))
}
