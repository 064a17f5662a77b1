package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

// flagEffects are netmaster's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]archtest.Effect{
	"etcd-endpoints":     archtest.By("TestReplicaTakesOverFromAKilledLeader"),
	"consul-endpoints":   archtest.By("TestBadFlagValuesAreRefused"),
	"consul-token-file":  archtest.By("TestUsageErrorsExitWith2AndFailuresWith1"),
	"cluster-store":      archtest.By("TestReplicaTakesOverFromAKilledLeader"),
	"restore":            archtest.By("TestRestoredBackupCostsNoPacket"),
	"keep-tokens":        archtest.By("TestRestoredBackupCostsNoPacket").GivenBy("TestFlagSetsItsOption"),
	"new-authorities":    archtest.By("TestRestoreKeepsAuthorities").GivenBy("TestFlagSetsItsOption"),
	"data-dir":           archtest.By("TestNetmasterStartsWithEveryFlag"),
	"etcd-listen":        archtest.By("TestNetmasterStartsWithEveryFlag"),
	"join":               archtest.By("TestClusterGrows"),
	"token":              archtest.By("TestClusterGrows"),
	"member-name":        archtest.By("TestClusterGrows"),
	"peer-listen":        archtest.By("TestClusterGrows"),
	"join-listen":        archtest.By("TestClusterGrows"),
	"peer-address":       archtest.By("TestFlagsOfTheEmbeddedClusterReachTheMember"),
	"join-address":       archtest.By("TestFlagsOfTheEmbeddedClusterReachTheMember"),
	"snapshot-dir":       archtest.By("TestClusterGrows"),
	"snapshot-every":     archtest.By("TestFlagsOfTheEmbeddedClusterReachTheMember"),
	"snapshot-keep":      archtest.By("TestFlagsOfTheEmbeddedClusterReachTheMember"),
	"recover":            archtest.By("TestClusterGrows"),
	"external-address":   archtest.By("TestUnauthenticatedAPIIsWarnedOf"),
	"internal-address":   archtest.By("TestNetmasterStartsWithEveryFlag"),
	"agent-address":      archtest.By("TestNetmasterStartsWithEveryFlag"),
	"debug-address":      archtest.By("TestNetmasterStartsWithEveryFlag"),
	"mode":               archtest.By("TestNetmasterStartsWithEveryFlag"),
	"name":               archtest.By("TestSwarmGetsNetworksOfTheLeader"),
	"docker-endpoint":    archtest.By("TestSwarmGetsNetworksOfTheLeader"),
	"kubeconfig":         archtest.By("TestMissingKubeconfigStopsNetmaster"),
	"kubernetes-cluster": archtest.By("TestStoreFollowsOneKubernetes"),
	"pods-choose-tenant": archtest.By("TestNamespacePoliciesApplyInItsPodsTenants").GivenBy("TestFlagSetsItsOption"),
	"pod-groups":         archtest.By("TestGroupsOfPodsAreLimitedByFlag"),
	"service-cidr":       archtest.By("TestServicesAreWrittenToTheStore").GivenBy("TestFlagSetsItsOption"),
	"load-balancer-pool": archtest.By("TestPoolAddressesFollowTheirServices").GivenBy("TestFlagSetsItsOption"),
	"external-ip-ranges": archtest.By("TestServicesAreWrittenToTheStore").GivenBy("TestFlagSetsItsOption"),
	"pod-cidr":           archtest.By("TestPodNetworkIsMadeOnce").GivenBy("TestFlagSetsItsOption"),
	"fwdmode":            archtest.By("TestNetmasterStartsWithEveryFlag"),
	"aci-gw":             archtest.By("TestFabricFlagsTakeEffect"),
	"aci-gw-merges":      archtest.By("TestFabricFlagsTakeEffect"),
	"apic":               archtest.By("TestFabricFlagsTakeEffect"),
	"apic-user":          archtest.By("TestFabricFlagsTakeEffect"),
	"apic-password-file": archtest.By("TestFabricFlagsTakeEffect"),
	"apic-ca":            archtest.By("TestFabricFlagsTakeEffect"),
	"apic-cluster":       archtest.By("TestFabricFlagsTakeEffect"),
	"infra":              archtest.By("TestNetmasterStartsWithEveryFlag"),
	"tls-dir":            archtest.By("TestAllConnectionsUseTLS"),
	"store-tls-dir":      archtest.By("TestAllConnectionsUseTLS"),
	"token-file":         archtest.By("TestNetpluginShowsItsToken"),
	"secure":             archtest.By("TestHostJoinsASecureClusterOnceByItsToken"),
	"accept-plain":       archtest.By("TestTurningSecureLosesNothing"),
	"tokens":             archtest.By("TestWhoIsLetIn"),
	"oidc-file":          archtest.By("TestIssuerIsAsked"),
	"audit-dir":          archtest.By("TestWhoIsLetIn"),
	"client-rate":        archtest.By("TestClientsBeyondTheirRateGetAKnownError"),
	"allowed-hosts":      archtest.By("TestUnknownHostHeadersAreRefused"),
	"evict-after":        archtest.By("TestEndpointsAreReleasedAfterTheGraceTime").GivenBy("TestFlagSetsItsOption"),
	"legacy-errors":      archtest.By("TestLegacyErrorsAreForClientsOf1x"),
	"netmode":            archtest.None(idleNetMode),
	"config":             archtest.By("TestCommandLineAndEnvironmentWinOverTheFile"),
	"log-level":          archtest.By("TestCommandLineWinsOverEnvironment").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":       archtest.By("TestLogJSON"),
	"use-syslog":         archtest.By("TestSyslogMessagesFollowTheRFCs").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":         archtest.By("TestBadSyslogURLsAreRefused").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":      archtest.By("TestSyslogMessagesFollowTheRFCs").GivenBy("TestFlagSetsItsOption"),

	"enroll-service-account": archtest.By("TestServiceAccountTokensAreReviewed"),
	"member-service-account": archtest.By("TestMembersJoinByTheirPodsToken"),
	"join-token-file":        archtest.By("TestMembersJoinByTheirPodsToken"),
}

// TestEveryFlagHasEffect: each flag does something, by a test, or its help text
// says that it does not.
func TestEveryFlagHasEffect(t *testing.T) {
	var o options
	usage, spellings := map[string]string{}, map[string][]string{}
	var accepted []string
	for _, f := range newFlags(&o).Flags {
		accepted = append(accepted, f.Names[0])
		flag := f.Names[0]
		usage[flag] = f.Usage
		for _, name := range f.Names {
			spellings[flag] = append(spellings[flag], "-"+name, "--"+name)
		}
		spellings[flag] = append(spellings[flag], f.Env)
	}
	archtest.CheckEffects(t, "flagEffects in cmd/netmaster/noeffect_test.go", accepted, flagEffects,
		func(flag, sentence string) bool { return strings.Contains(usage[flag], sentence) },
		func(flag string) []string { return spellings[flag] })
}

// TestFlagsWithoutEffectAreWarnedOf: flags that do nothing, or not in the mode or with the driver
// that was chosen, are warned of at start; others are not.
func TestFlagsWithoutEffectAreWarnedOf(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--internal-address 127.0.0.1:1", ""},
		{"--internal-address 127.0.0.1:1 --fwdmode bridge --infra default --mode docker", ""},
		{"--internal-address 127.0.0.1:1 --fwdmode routing --infra aci", ""},
		{"--internal-address 127.0.0.1:1 --infra aci-opflex --netmode vlan", "infra,netmode"},
		{"--internal-address 127.0.0.1:1 --mode kubernetes --name x", "mode,name"},
		{"--internal-address 127.0.0.1:1 --mode swarm-mode --name x", ""},
		{"--internal-address 127.0.0.1:1 --kubeconfig x --service-cidr 10.96.0.0/12", ""},
	} {
		var o options
		fs := newFlags(&o)
		if err := fs.ParseAll(strings.Fields(tc.args), func(string) string { return "" }); err != nil {
			t.Fatalf("%s: %v", tc.args, err)
		}
		if err := o.finish(t.Context(), fs); err != nil {
			t.Fatalf("%s: %v", tc.args, err)
		}
		var out bytes.Buffer
		o.warnIdle(slog.New(slog.NewTextHandler(&out, nil)))
		lines := strings.Count(out.String(), "\n")
		if want := strings.Split(tc.want, ","); tc.want == "" && lines > 0 || tc.want != "" && lines != len(want) {
			t.Errorf("%s: %s", tc.args, out.String())
		}
		for flag := range strings.SplitSeq(tc.want, ",") {
			if flag != "" && !strings.Contains(out.String(), "flag=--"+flag+" ") {
				t.Errorf("%s: no warning of --%s: %s", tc.args, flag, out.String())
			}
		}
	}
}
