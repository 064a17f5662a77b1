package cli

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/effecttest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// anywhere are flags that mean the same wherever they stand.
var anywhere = map[string]effecttest.Effect{
	"--json":      effecttest.By("TestShow"),
	"--output":    effecttest.By("TestEveryListTakesEveryForm"),
	"--quiet":     effecttest.By("TestEveryCommand"),
	"--tenant":    effecttest.By("TestShow"),
	"--all":       effecttest.By("TestShow"),
	"--netmaster": effecttest.By("TestNetmaster"),
	"--tls-dir":   effecttest.By("TestTLSDir"),
	"--insecure":  effecttest.By("TestInsecure"),
	"--timeout":   effecttest.By("TestUnreachable"),
	"--help":      effecttest.By("TestHelp"),
}

const accepted1x = "accepted, as in 1.x"

// flagEffects are the flags of single commands, but for the ones that fill in a
// field of an object: the field has its effect, or none.
var flagEffects = map[string]effecttest.Effect{
	"login --token": effecttest.By("TestLoginToken"), "login --ca-file": effecttest.By("TestLoginAuthority"),
	"token create --days": effecttest.By("TestTokenCreate"), "token create --role": effecttest.By("TestTokenCreate"), "token create --tenants": effecttest.By("TestTokenCreate"),
	"global info --tenant":       effecttest.None(accepted1x),
	"global info --all":          effecttest.None(accepted1x),
	"aci-gw info --tenant":       effecttest.None(accepted1x),
	"aci-gw info --all":          effecttest.None(accepted1x),
	"app-profile group-ls --all": effecttest.None(accepted1x),

	"external-contracts create --consumed": effecttest.By("TestHistories").GivenBy("TestEveryCommand"),
	"external-contracts create --provided": effecttest.By("TestHistories").GivenBy("TestEveryCommand"),

	"attach --netns":     effecttest.By("TestAttachCommand"),
	"attach --pid":       effecttest.By("TestAttachCommand"),
	"attach --ifname":    effecttest.By("TestAttachCommand"),
	"attach --socket":    effecttest.By("TestAttachCommand"),
	"attach --network":   effecttest.By("TestAttachCommand"),
	"attach --group":     effecttest.By("TestAttachCommand"),
	"attach --name":      effecttest.By("TestAttachCommand"),
	"attach --label":     effecttest.By("TestAttachCommand"),
	"attach --ip":        effecttest.By("TestAttachCommand"),
	"detach --netns":     effecttest.By("TestAttachCommand"),
	"detach --pid":       effecttest.By("TestAttachCommand"),
	"detach --ifname":    effecttest.By("TestAttachCommand"),
	"detach --socket":    effecttest.By("TestAttachCommand"),
	"detach --state-dir": effecttest.By("TestAttachWithoutAgent"),

	"network-policy create --group":   effecttest.By("TestNetworkPolicyCommand"),
	"network-policy create --label":   effecttest.By("TestNetworkPolicyCommand"),
	"network-policy create --network": effecttest.By("TestNetworkPolicyCommand"),
	"network-policy create --rule":    effecttest.By("TestNetworkPolicyCommand"),

	"endpoint ls --group":              effecttest.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --host":               effecttest.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --network":            effecttest.By("TestEndpoints").GivenBy("TestFlagsAreInTheRequest"),
	"host rm --force":                  effecttest.By("TestUninstall"),
	"store adopt --keep-tokens":        effecttest.By("TestAdoptStore").GivenBy("TestFlagsAreInTheRequest"),
	"host evict --force":               effecttest.By("TestEvictHost"),
	"doctor --repair":                  effecttest.By("TestDoctor"),
	"bugtool --host":                   effecttest.By("TestBugtool"),
	"apply --file":                     effecttest.By("TestApplyFiles"),
	"apply --prune":                    effecttest.By("TestPruneDeletesWhatTheSetCreated"),
	"apply --set":                      effecttest.By("TestPruneDeletesWhatTheSetCreated"),
	"delete --file":                    effecttest.By("TestDeleteFileDeletesWhatItNames"),
	"delete --dry-run":                 effecttest.By("TestDeleteFileDeletesWhatItNames"),
	"apply --dry-run":                  effecttest.By("TestApplyDiffExport"),
	"diff --file":                      effecttest.By("TestApplyDiffExport"),
	"export --from":                    effecttest.By("TestExportFromLegacy"),
	"export --in-use":                  effecttest.By("TestApplyDiffExport"),
	"export --skip-broken":             effecttest.By("TestExportBrokenLegacy"),
	"get --watch":                      effecttest.By("TestGetWatch"),
	"get --interval":                   effecttest.By("TestGetWatch"),
	"monitor --drops":                  effecttest.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --from":                   effecttest.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --to":                     effecttest.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"pki authority --retire":           effecttest.By("TestPKI"),
	"pki issue --addresses":            effecttest.By("TestPKI"),
	"pki issue --days":                 effecttest.By("TestPKI"),
	"pki issue --role":                 effecttest.By("TestPKI"),
	"pki renew --days":                 effecttest.By("TestPKI"),
	"monitor --host":                   effecttest.By("TestMonitorTable").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --count":                  effecttest.By("TestMonitorTable"),
	"cluster remove --force":           effecttest.By("TestCluster"),
	"cluster token --host":             effecttest.By("TestCluster"),
	"cluster token --expires":          effecttest.By("TestCluster"),
	"apply --confirm-within":           effecttest.By("TestConfirmWithin"),
	"global set --confirm-within":      effecttest.By("TestConfirmWithin"),
	"policy rule-add --confirm-within": effecttest.By("TestConfirmWithin"),
	"group create --confirm-within":    effecttest.By("TestConfirmWithin"),
}

// fieldOf sets the flag and returns the JSON name of the field that it has filled in
// object, a pointer to an object on the wire; "" = it has filled in none.
func (d *flagDef) fieldOf(object any) string {
	if object == nil {
		return ""
	}
	wire := reflect.ValueOf(object).Elem()
	before := reflect.New(wire.Type()).Elem()
	before.Set(wire)
	if d.set("x") != nil && d.set("7") != nil && d.set("true") != nil {
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
		for _, d := range c.flags.defs {
			name := strings.TrimPrefix(path+" --"+d.names[0], " ")
			accepted = append(accepted, name)
			for _, n := range d.names {
				spellings[name] = append(spellings[name], "-"+n, "--"+n)
			}
			if field := d.fieldOf(c.fills); field != "" {
				effects[name] = effecttest.By("TestEveryFieldHasEffect") // of the field, which fieldOf has set by the flag
				delete(spellings, name)
				for _, n := range noEffectsOf(t, c.fills) {
					if said := c.note + "\n" + d.help(); (n.Field == "" || n.Field == field) && !strings.Contains(said, n.Text) {
						t.Errorf("%s sets %s, and its help does not say %q", name, field, n.Text)
					}
				}
			}
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
	walk(newRoot(&factory{globals: &globals{}}))
	hasCommand := map[string]bool{} // by collection
	for _, m := range model.Kinds() {
		if k, err := findKind(m.Name); err == nil {
			hasCommand[m.Collection] = k.command != nil
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
