package netctl

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/model"
)

// anywhere are flags that mean the same wherever they stand.
var anywhere = map[string]archtest.Effect{
	"--json":      archtest.By("TestShowCommandsPrintTheirGolden"),
	"--output":    archtest.By("TestEveryListTakesEveryForm"),
	"--quiet":     archtest.By("TestEveryCommandPrintsItsGolden"),
	"--tenant":    archtest.By("TestShowCommandsPrintTheirGolden"),
	"--all":       archtest.By("TestShowCommandsPrintTheirGolden"),
	"--netmaster": archtest.By("TestNetmasterFlagWinsOverEnvironment"),
	"--tls-dir":   archtest.By("TestTLSDirGivesTheCertificate"),
	"--insecure":  archtest.By("TestInsecureAcceptsUnknownAuthorities"),
	"--timeout":   archtest.By("TestUnreachableNetmasterNamesTheFlags"),
	"--help":      archtest.By("TestHelpIsTheGoldenInEveryForm"),
	"--override":  archtest.By("TestOverrideIsForClusterAdministrators").GivenBy("TestOverrideIsInTheRequest"),
	"--plan":      archtest.By("TestPlanFlagSendsNoChange"),
}

const accepted1x = "accepted, as in 1.x"

// flagEffects are the flags of single commands, but for the ones that fill in a
// field of an object: the field has its effect, or none.
var flagEffects = map[string]archtest.Effect{
	"plan --namespace": archtest.By("TestPlanSendsManifests"),

	"exposure --port": archtest.By("TestExposureShowsTheWaysIn"),
	"can --from":      archtest.By("TestCanAnswersWithTheRulesThatDecide"), "can --port": archtest.By("TestCanAnswersWithTheRulesThatDecide"), "can --to": archtest.By("TestCanAnswersWithTheRulesThatDecide"),
	"login --token": archtest.By("TestLoginSavesAcceptedTokensOnly"), "login --ca-file": archtest.By("TestLoginTrustsTheGivenAuthority"),
	"token create --days": archtest.By("TestTokenCreatePrintsTheSecret"), "token create --role": archtest.By("TestTokenCreatePrintsTheSecret"), "token create --tenants": archtest.By("TestTokenCreatePrintsTheSecret"),
	"global info --tenant":       archtest.None(accepted1x),
	"global info --all":          archtest.None(accepted1x),
	"aci-gw info --tenant":       archtest.None(accepted1x),
	"aci-gw info --all":          archtest.None(accepted1x),
	"app-profile group-ls --all": archtest.None(accepted1x),

	"assertion test --file":     archtest.By("TestFilesAreTestedWithoutACluster"),
	"assertion create --never":  archtest.By("TestAssertionsAreServed").GivenBy("TestEveryCommandPrintsItsGolden"),
	"assertion create --always": archtest.By("TestAssertionThatTheClusterBreaksIsRefused").GivenBy("TestEveryCommandPrintsItsGolden"),

	"external-contracts create --consumed": archtest.By("TestTreeEqualsOneMadeFromNothing").GivenBy("TestEveryCommandPrintsItsGolden"),
	"external-contracts create --provided": archtest.By("TestTreeEqualsOneMadeFromNothing").GivenBy("TestEveryCommandPrintsItsGolden"),

	"install --check":    archtest.By("TestInstallJoinsAMachineOrSaysWhyNot"),
	"install --host":     archtest.By("TestInstallJoinsAMachineOrSaysWhyNot"),
	"install --address":  archtest.By("TestInstallJoinsAMachineOrSaysWhyNot"),
	"install --token":    archtest.By("TestInstallJoinsAMachineOrSaysWhyNot"),
	"attach --netns":     archtest.By("TestAttachSendsEveryFlag"),
	"attach --pid":       archtest.By("TestAttachSendsEveryFlag"),
	"attach --ifname":    archtest.By("TestAttachSendsEveryFlag"),
	"attach --socket":    archtest.By("TestAttachSendsEveryFlag"),
	"attach --network":   archtest.By("TestAttachSendsEveryFlag"),
	"attach --group":     archtest.By("TestAttachSendsEveryFlag"),
	"attach --name":      archtest.By("TestAttachSendsEveryFlag"),
	"attach --label":     archtest.By("TestAttachSendsEveryFlag"),
	"attach --ip":        archtest.By("TestAttachSendsEveryFlag"),
	"detach --netns":     archtest.By("TestAttachSendsEveryFlag"),
	"detach --pid":       archtest.By("TestAttachSendsEveryFlag"),
	"detach --ifname":    archtest.By("TestAttachSendsEveryFlag"),
	"detach --socket":    archtest.By("TestAttachSendsEveryFlag"),
	"detach --state-dir": archtest.By("TestDetachWithoutAgentIsSpooled"),

	"network-policy create --group":   archtest.By("TestNetworkPolicyFlagsReachThePolicy"),
	"network-policy create --label":   archtest.By("TestNetworkPolicyFlagsReachThePolicy"),
	"network-policy create --network": archtest.By("TestNetworkPolicyFlagsReachThePolicy"),
	"network-policy create --rule":    archtest.By("TestNetworkPolicyFlagsReachThePolicy"),

	"endpoint ls --group":              archtest.By("TestEndpointFiltersCombine").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --host":               archtest.By("TestEndpointFiltersCombine").GivenBy("TestFlagsAreInTheRequest"),
	"endpoint ls --network":            archtest.By("TestEndpointFiltersCombine").GivenBy("TestFlagsAreInTheRequest"),
	"host rm --force":                  archtest.By("TestUninstallLeavesTheHostAsBefore"),
	"store adopt --keep-tokens":        archtest.By("TestAdoptedStoreSucceedsItsPredecessors").GivenBy("TestFlagsAreInTheRequest"),
	"host evict --force":               archtest.By("TestConfirmedEvictionReleasesEndpoints"),
	"doctor --repair":                  archtest.By("TestDoctorNamesAndRepairsDamage"),
	"bugtool --host":                   archtest.By("TestBugtoolPacksAllHosts"),
	"apply --file":                     archtest.By("TestApplyReportsUnreadableFiles"),
	"apply --plan":                     archtest.By("TestSavedPlanIsAppliedUnlessItIsOutOfDate"),
	"delete --plan":                    archtest.By("TestPlanCoversPruningAndDeletion"),
	"plan --file":                      archtest.By("TestPlanShowsFlows"),
	"plan --output":                    archtest.By("TestPlanShowsFlows"),
	"plan --prune":                     archtest.By("TestPlanCoversPruningAndDeletion"),
	"plan --set":                       archtest.By("TestPlanCoversPruningAndDeletion"),
	"apply --prune":                    archtest.By("TestPruneDeletesWhatTheSetCreated"),
	"apply --set":                      archtest.By("TestPruneDeletesWhatTheSetCreated"),
	"delete --file":                    archtest.By("TestDeleteFileDeletesWhatItNames"),
	"delete --dry-run":                 archtest.By("TestDeleteFileDeletesWhatItNames"),
	"apply --dry-run":                  archtest.By("TestApplyDiffAndExportAgree"),
	"diff --file":                      archtest.By("TestApplyDiffAndExportAgree"),
	"export --from":                    archtest.By("TestLegacyStateSurvivesExportAndApply"),
	"export --in-use":                  archtest.By("TestApplyDiffAndExportAgree"),
	"export --skip-broken":             archtest.By("TestDamagedLegacyStateStopsTheExport"),
	"get --watch":                      archtest.By("TestWatchShowsChangesUntilInterrupted"),
	"get --interval":                   archtest.By("TestWatchShowsChangesUntilInterrupted"),
	"monitor --drops":                  archtest.By("TestMonitorNamesTheDecidingRule").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --from":                   archtest.By("TestMonitorNamesTheDecidingRule").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --to":                     archtest.By("TestMonitorNamesTheDecidingRule").GivenBy("TestFlagsAreInTheRequest"),
	"pki authority --retire":           archtest.By("TestPKICommandsRenewCertificates"),
	"pki issue --addresses":            archtest.By("TestPKICommandsRenewCertificates"),
	"pki issue --days":                 archtest.By("TestPKICommandsRenewCertificates"),
	"pki issue --role":                 archtest.By("TestPKICommandsRenewCertificates"),
	"pki renew --days":                 archtest.By("TestPKICommandsRenewCertificates"),
	"monitor --host":                   archtest.By("TestMonitorNamesTheDecidingRule").GivenBy("TestFlagsAreInTheRequest"),
	"monitor --count":                  archtest.By("TestMonitorNamesTheDecidingRule"),
	"cluster remove --force":           archtest.By("TestClusterCommandsShowMembersAndTokens"),
	"cluster token --host":             archtest.By("TestClusterCommandsShowMembersAndTokens"),
	"cluster token --expires":          archtest.By("TestClusterCommandsShowMembersAndTokens"),
	"apply --confirm-within":           archtest.By("TestChangesWaitUntilTheyAreConfirmed"),
	"global set --confirm-within":      archtest.By("TestChangesWaitUntilTheyAreConfirmed"),
	"policy rule-add --confirm-within": archtest.By("TestChangesWaitUntilTheyAreConfirmed"),
	"group create --confirm-within":    archtest.By("TestChangesWaitUntilTheyAreConfirmed"),
	"group create --replace":           archtest.By("TestCreateKeepsWhatNoFlagGives"),
	"netprofile create --replace":      archtest.By("TestCreateKeepsWhatNoFlagGives"),
	"service create --replace":         archtest.By("TestCreateKeepsWhatNoFlagGives"),
	"bgp create --replace":             archtest.By("TestCreateKeepsWhatNoFlagGives"),
	"app-profile create --replace":     archtest.By("TestCreateKeepsWhatNoFlagGives"),
	"app-profile update --replace":     archtest.By("TestCreateKeepsWhatNoFlagGives"),
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
				effects[name] = archtest.By("TestEveryFieldHasEffect") // of the field, which fieldOf has set by the flag
				if means := fields.Of(c.fills)[field].Description; d.To != nil && (means == "" || !strings.HasPrefix(d.Usage, means)) {
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
			if e, ok := anywhere["--"+d.Names[0]]; ok && effects[name] == (archtest.Effect{}) {
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
	archtest.CheckEffects(t, "flagEffects in internal/netctl/effects_test.go", accepted, effects,
		func(flag, sentence string) bool { return strings.Contains(notes[flag], sentence) },
		func(flag string) []string { return spellings[flag] })
}

// TestHelpSaysWhatHasNoEffect: what has no effect is said in a command's help, in model's words, where
// the kind has a command; and no help says more than model.
func TestHelpSaysWhatHasNoEffect(t *testing.T) {
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
