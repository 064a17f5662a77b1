package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/effecttest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// idle is the effect of a flag that sets what has none, by model's table.
func idle(kind, field, value string) effecttest.Effect {
	for _, n := range model.NoEffects(kind) {
		if n.Field == field && n.Value == value {
			return effecttest.None(n.Text)
		}
	}
	return effecttest.None("internal/model has no NoEffect for " + kind + "." + field + ": what it sets has an effect now, so name a test here")
}

// anywhere are flags that mean the same wherever they stand.
var anywhere = map[string]effecttest.Effect{
	"--json":      effecttest.By("TestShow"),
	"--quiet":     effecttest.By("TestEveryCommand"),
	"--tenant":    effecttest.By("TestShow"),
	"--all":       effecttest.By("TestShow"),
	"--netmaster": effecttest.By("TestNetmaster"),
	"--insecure":  effecttest.By("TestInsecure"),
	"--timeout":   effecttest.By("TestUnreachable"),
	"--help":      effecttest.By("TestHelp"),
}

const accepted1x = "accepted, as in 1.x"

// flagEffects are the flags of single commands.
var flagEffects = map[string]effecttest.Effect{
	"global info --tenant":        effecttest.None(accepted1x),
	"global info --all":           effecttest.None(accepted1x),
	"aci-gw info --tenant":        effecttest.None(accepted1x),
	"aci-gw info --all":           effecttest.None(accepted1x),
	"app-profile group-ls --all":  effecttest.None(accepted1x),
	"global set --fabric-mode":    idle("globals", "networkInfraType", "aci"),
	"global set --fwd-mode":       idle("globals", "fwdMode", "routing"),
	"global set --vlan-range":     effecttest.By("TestChange"),
	"global set --vxlan-range":    effecttest.By("TestChange"),
	"global set --arp-mode":       effecttest.By("TestChange"),
	"global set --private-subnet": effecttest.By("TestChange"),

	"network create --nw-type":   idle("networks", "nwType", "infra"),
	"network create --nw-tag":    idle("networks", "cfgdTag", ""),
	"network create --encap":     effecttest.By("TestChange"),
	"network create --pkt-tag":   effecttest.By("TestChange"),
	"network create --subnet":    effecttest.By("TestChange"),
	"network create --gateway":   effecttest.By("TestChange"),
	"network create --subnetv6":  effecttest.By("TestChange"),
	"network create --gatewayv6": effecttest.By("TestChange"),

	"group create --policy":            effecttest.By("TestChange"),
	"group create --networkprofile":    idle("endpointGroups", "netProfile", ""),
	"group create --external-contract": idle("endpointGroups", "extContractsGrps", ""),
	"group create --ip-pool":           effecttest.By("TestChange"),
	"group create --epg-tag":           idle("endpointGroups", "cfgdTag", ""),

	"policy rule-add --priority":        effecttest.By("TestOptions"),
	"policy rule-add --direction":       effecttest.By("TestChange"),
	"policy rule-add --from-group":      effecttest.By("TestChange"),
	"policy rule-add --to-group":        effecttest.By("TestChange"),
	"policy rule-add --from-network":    effecttest.By("TestOptions"),
	"policy rule-add --to-network":      effecttest.By("TestChange"),
	"policy rule-add --from-ip-address": effecttest.By("TestChange"),
	"policy rule-add --to-ip-address":   effecttest.By("TestChange"),
	"policy rule-add --protocol":        effecttest.By("TestOptions"),
	"policy rule-add --port":            effecttest.By("TestOptions"),
	"policy rule-add --action":          effecttest.By("TestChange"),

	"netprofile create --bandwidth": idle("netprofiles", "", ""),
	"netprofile create --dscp":      idle("netprofiles", "", ""),
	"netprofile create --burst":     idle("netprofiles", "", ""),

	"service create --network":      effecttest.By("TestChange"),
	"service create --selector":     effecttest.By("TestChange"),
	"service create --port":         idle("serviceLBs", "ports", ""),
	"service create --preferred-ip": effecttest.By("TestChange"),

	"bgp create --router-ip":   idle("Bgps", "", ""),
	"bgp create --as":          idle("Bgps", "", ""),
	"bgp create --neighbor-as": idle("Bgps", "", ""),
	"bgp create --neighbor":    idle("Bgps", "", ""),

	"aci-gw set --path-bindings":         idle("aciGws", "", ""),
	"aci-gw set --node-bindings":         idle("aciGws", "", ""),
	"aci-gw set --phys-dom":              idle("aciGws", "", ""),
	"aci-gw set --enforce-policies":      idle("aciGws", "", ""),
	"aci-gw set --include-common-tenant": idle("aciGws", "", ""),

	"app-profile create --group":           idle("appProfiles", "", ""),
	"app-profile update --group":           idle("appProfiles", "", ""),
	"external-contracts create --consumed": idle("extContractsGroups", "", ""),
	"external-contracts create --provided": idle("extContractsGroups", "", ""),
	"external-contracts create --contract": idle("extContractsGroups", "", ""),

	"endpoint ls --group":   effecttest.By("TestEndpoints"),
	"endpoint ls --host":    effecttest.By("TestEndpoints"),
	"endpoint ls --network": effecttest.By("TestEndpoints"),
	"host rm --force":       effecttest.By("TestUninstall"),
	"apply --file":          effecttest.By("TestApplyFiles"),
	"apply --dry-run":       effecttest.By("TestApplyDiffExport"),
	"diff --file":           effecttest.By("TestApplyDiffExport"),
	"export --from":         effecttest.By("TestExportFromLegacy"),
	"export --in-use":       effecttest.By("TestApplyDiffExport"),
	"export --skip-broken":  effecttest.By("TestExportBrokenLegacy"),
	"get --output":          effecttest.By("TestGet"),
	"get --watch":           effecttest.By("TestGetWatch"),
	"get --interval":        effecttest.By("TestGetWatch"),
	"monitor --drops":       effecttest.By("TestMonitorTable"),
	"monitor --from":        effecttest.By("TestMonitorTable"),
	"monitor --to":          effecttest.By("TestMonitorTable"),
	"monitor --host":        effecttest.By("TestMonitorTable"),
	"monitor --count":       effecttest.By("TestMonitorTable"),
}

// TestEveryFlagHasEffect: each flag of each command does something, by a test,
// or the command's help says that it does not.
func TestEveryFlagHasEffect(t *testing.T) {
	effects := maps.Clone(flagEffects)
	notes := map[string]string{}
	var accepted []string
	var walk func(c *command, path string)
	walk = func(c *command, path string) {
		for _, d := range c.flags.defs {
			name := strings.TrimPrefix(path+" --"+d.names[0], " ")
			accepted = append(accepted, name)
			notes[name] = c.note + "\n" + d.help()
			if e, ok := anywhere["--"+d.names[0]]; ok && effects[name] == (effecttest.Effect{}) {
				if !strings.Contains(d.usage, "accepted") || d.names[0] == "json" { // JSON is what they print anyway
					effects[name] = e
				}
			}
		}
		for _, s := range c.subs {
			walk(s, strings.TrimPrefix(path+" "+s.name, " "))
		}
	}
	walk(newRoot(&factory{globals: &globals{}}), "")
	effecttest.Check(t, "flagEffects in internal/cli/effects_test.go", accepted, effects,
		func(flag, sentence string) bool { return strings.Contains(notes[flag], sentence) })
}

// TestNotes: whatever has no effect, and can be set by a command, is said in the
// help of the command that sets it, and by the command that does it on standard
// error.
func TestNotes(t *testing.T) {
	var all []string
	var walk func(c *command)
	walk = func(c *command) {
		all = append(all, strings.Split(c.note, "\n")...)
		for _, s := range c.subs {
			walk(s)
		}
	}
	walk(newRoot(&factory{globals: &globals{}}))
	var table []string
	for _, n := range model.NoEffects("") {
		table = append(table, n.Text)
		if n.Kind != "volumes" && n.Kind != "volumeProfiles" && !slices.Contains(all, n.Text) { // no command makes these
			t.Errorf("no command's help says %q", n.Text)
		}
	}
	for _, note := range all {
		if note != "" && !slices.Contains(table, note) {
			t.Errorf("a command's help says %q, which internal/model does not", note)
		}
	}
}
