package netctl

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster/optioncoverage"
)

// anywhere are flags that mean the same wherever they stand.
var anywhere = map[string]optioncoverage.Effect{
	"--json":      optioncoverage.By("TestShow"),
	"--output":    optioncoverage.By("TestEveryListTakesEveryForm"),
	"--quiet":     optioncoverage.By("TestEveryCommand"),
	"--tenant":    optioncoverage.By("TestShow"),
	"--all":       optioncoverage.By("TestShow"),
	"--netmaster": optioncoverage.By("TestNetmaster"),
	"--tls-dir":   optioncoverage.By("TestTLSDir"),
	"--insecure":  optioncoverage.By("TestInsecure"),
	"--timeout":   optioncoverage.By("TestUnreachable"),
	"--help":      optioncoverage.By("TestHelp"),
}

const accepted1x = "accepted, as in 1.x"

// flagEffects are the flags of single commands, but for the ones that fill in a
// field of an object: the field has its effect, or none.
var flagEffects = map[string]optioncoverage.Effect{
	"login --token": optioncoverage.By("TestLoginToken"), "login --ca-file": optioncoverage.By("TestLoginAuthority"),
	"token create --days": optioncoverage.By("TestTokenCreate"), "token create --role": optioncoverage.By("TestTokenCreate"), "token create --tenants": optioncoverage.By("TestTokenCreate"),
	"global info --tenant":       optioncoverage.None(accepted1x),
	"global info --all":          optioncoverage.None(accepted1x),
	"aci-gw info --tenant":       optioncoverage.None(accepted1x),
	"aci-gw info --all":          optioncoverage.None(accepted1x),
	"app-profile group-ls --all": optioncoverage.None(accepted1x),

	"external-contracts create --consumed": optioncoverage.By("TestHistories").GivenBy("TestEveryCommand"),
	"external-contracts create --provided": optioncoverage.By("TestHistories").GivenBy("TestEveryCommand"),

	"attach --netns":     optioncoverage.By("TestAttachCommand"),
	"attach --pid":       optioncoverage.By("TestAttachCommand"),
	"attach --ifname":    optioncoverage.By("TestAttachCommand"),
	"attach --socket":    optioncoverage.By("TestAttachCommand"),
	"attach --network":   optioncoverage.By("TestAttachCommand"),
	"attach --group":     optioncoverage.By("TestAttachCommand"),
	"attach --name":      optioncoverage.By("TestAttachCommand"),
	"attach --label":     optioncoverage.By("TestAttachCommand"),
	"attach --ip":        optioncoverage.By("TestAttachCommand"),
	"detach --netns":     optioncoverage.By("TestAttachCommand"),
	"detach --pid":       optioncoverage.By("TestAttachCommand"),
	"detach --ifname":    optioncoverage.By("TestAttachCommand"),
	"detach --socket":    optioncoverage.By("TestAttachCommand"),
	"detach --state-dir": optioncoverage.By("TestAttachWithoutAgent"),

	"network-policy create --group":   optioncoverage.By("TestNetworkPolicyCommand"),
	"network-policy create --label":   optioncoverage.By("TestNetworkPolicyCommand"),
	"network-policy create --network": optioncoverage.By("TestNetworkPolicyCommand"),
	"network-policy create --rule":    optioncoverage.By("TestNetworkPolicyCommand"),

	"endpoint ls --group":              optioncoverage.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --host":               optioncoverage.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --network":            optioncoverage.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"host rm --force":                  optioncoverage.By("TestUninstall"),
	"store adopt --keep-tokens":        optioncoverage.By("TestAdoptStore").GivenBy("TestFlagsAreInTheRequest"),
	"host evict --force":               optioncoverage.By("TestEvictHost"),
	"doctor --repair":                  optioncoverage.By("TestDoctor"),
	"bugtool --host":                   optioncoverage.By("TestBugtool"),
	"apply --file":                     optioncoverage.By("TestApplyFiles"),
	"apply --prune":                    optioncoverage.By("TestPruneDeletesWhatTheSetCreated"),
	"apply --set":                      optioncoverage.By("TestPruneDeletesWhatTheSetCreated"),
	"delete --file":                    optioncoverage.By("TestDeleteFileDeletesWhatItNames"),
	"delete --dry-run":                 optioncoverage.By("TestDeleteFileDeletesWhatItNames"),
	"apply --dry-run":                  optioncoverage.By("TestApplyDiffExport"),
	"diff --file":                      optioncoverage.By("TestApplyDiffExport"),
	"export --from":                    optioncoverage.By("TestExportFromLegacy"),
	"export --in-use":                  optioncoverage.By("TestApplyDiffExport"),
	"export --skip-broken":             optioncoverage.By("TestExportBrokenLegacy"),
	"get --watch":                      optioncoverage.By("TestGetWatch"),
	"get --interval":                   optioncoverage.By("TestGetWatch"),
	"monitor --drops":                  optioncoverage.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --from":                   optioncoverage.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --to":                     optioncoverage.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"pki authority --retire":           optioncoverage.By("TestPKI"),
	"pki issue --addresses":            optioncoverage.By("TestPKI"),
	"pki issue --days":                 optioncoverage.By("TestPKI"),
	"pki issue --role":                 optioncoverage.By("TestPKI"),
	"pki renew --days":                 optioncoverage.By("TestPKI"),
	"monitor --host":                   optioncoverage.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --count":                  optioncoverage.By("TestMonitorTable"),
	"cluster remove --force":           optioncoverage.By("TestCluster"),
	"cluster token --host":             optioncoverage.By("TestCluster"),
	"cluster token --expires":          optioncoverage.By("TestCluster"),
	"apply --confirm-within":           optioncoverage.By("TestConfirmWithin"),
	"global set --confirm-within":      optioncoverage.By("TestConfirmWithin"),
	"policy rule-add --confirm-within": optioncoverage.By("TestConfirmWithin"),
	"group create --confirm-within":    optioncoverage.By("TestConfirmWithin"),
}

// fieldOf sets the flag and returns the JSON name of the field that it has filled in
// object, a pointer to an object on the wire; "" = it has filled in none.
func fieldOf(d *flags.Flag, object any) string {
	if object == nil {
		return ""
	}
	wire := reflect.ValueOf(object).Elem()
	before := reflect.New(wire.Type()).Elem()
	before.Set(wire)
	alone := flags.Set{Flags: []*flags.Flag{d}, Settings: true}
	if !slices.ContainsFunc([]string{"x", "7", "true"}, func(v string) bool {
		_, err := alone.Parse([]string{"--" + d.Names[0] + "=" + v})
		return err == nil
	}) {
		return ""
	}
	for i := range wire.NumField() {
		if !reflect.DeepEqual(before.Field(i).Interface(), wire.Field(i).Interface()) {
			return jsonName(wire.Type().Field(i))
		}
	}
	return ""
}

// noEffectsOf returns what has no effect in objects of the kind that object points to.
func noEffectsOf(t *testing.T, object any) []model.NoEffect {
	t.Helper()
	for _, k := range objectKinds() {
		if k.typ != reflect.TypeOf(object).Elem() {
			continue
		}
		for _, m := range model.Kinds() {
			if m.Name == k.name {
				return m.NoEffects
			}
		}
	}
	t.Fatalf("%T is of no kind", object)
	return nil
}

// TestEveryFlagHasEffect: each flag of each command does something, by a test,
// or the command's help says that it does not.
func TestEveryFlagHasEffect(t *testing.T) {
	effects := maps.Clone(flagEffects)
	notes, spellings := map[string]string{}, map[string][]string{}
	var accepted []string
	var walk func(c *command, path string)
	walk = func(c *command, path string) {
		for _, d := range c.flags.Flags {
			name := strings.TrimPrefix(path+" --"+d.Names[0], " ")
			accepted = append(accepted, name)
			for _, n := range d.Names {
				spellings[name] = append(spellings[name], "-"+n, "--"+n)
			}
			if field := fieldOf(d, c.fills); field != "" {
				effects[name] = optioncoverage.By("TestEveryFieldHasEffect") // of the field, which fieldOf has set by the flag
				if means := fields.Of(c.fills)[field].Means; d.To != nil && (means == "" || !strings.HasPrefix(d.Usage, means)) {
					t.Errorf("%s: its help is %q, want what package fields says: %q", name, d.Usage, means)
				}
				delete(spellings, name)
				for _, n := range noEffectsOf(t, c.fills) {
					if said := c.note + "\n" + d.Help(); (n.Field == "" || n.Field == field) && !strings.Contains(said, n.Text) {
						t.Errorf("%s sets %s, and its help does not say %q", name, field, n.Text)
					}
				}
			}
			notes[name] = c.note + "\n" + d.Help()
			if e, ok := anywhere["--"+d.Names[0]]; ok && effects[name] == (optioncoverage.Effect{}) {
				if !strings.Contains(d.Usage, "accepted") || d.Names[0] == "json" { // JSON is what they print anyway
					effects[name] = e
				}
			}
		}
		for _, s := range c.subs {
			walk(s, strings.TrimPrefix(path+" "+s.name, " "))
		}
	}
	walk(testTree(), "")
	optioncoverage.Check(t, "flagEffects in internal/netctl/effects_test.go", accepted, effects,
		func(flag, sentence string) bool { return strings.Contains(notes[flag], sentence) },
		func(flag string) []string { return spellings[flag] })
}

// TestNotes: what has no effect is said in a command's help, in model's words, where
// the kind has a command; and no help says more than model.
func TestNotes(t *testing.T) {
	var all []string
	var walk func(c *command)
	walk = func(c *command) {
		all = append(all, strings.Split(c.note, "\n")...)
		for _, s := range c.subs {
			walk(s)
		}
	}
	walk(testTree())
	hasCommand := map[string]bool{} // by collection
	for _, m := range model.Kinds() {
		if k, err := findKind(m.Name); err == nil {
			hasCommand[m.Collection] = testTree().find(k.noun) != nil
		}
	}
	var table []string
	for _, n := range model.NoEffects("") {
		table = append(table, n.Text)
		if hasCommand[n.Kind] && !slices.Contains(all, n.Text) {
			t.Errorf("no command's help says %q", n.Text)
		}
	}
	for _, note := range all {
		if note != "" && !slices.Contains(table, note) {
			t.Errorf("a command's help says %q, which internal/model does not", note)
		}
	}
}
