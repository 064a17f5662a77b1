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
	"etcd-endpoints":     archtest.By("TestReplicas"),
	"consul-endpoints":   archtest.By("TestFlagsRefused"),
	"consul-token-file":  archtest.By("TestExitCodes"),
	"cluster-store":      archtest.By("TestReplicas"),
	"restore":            archtest.By("TestRestoredBackupCostsNoPacket"),
	"keep-tokens":        archtest.By("TestRestoredBackupCostsNoPacket").GivenBy("TestFlagSetsItsOption"),
	"new-authorities":    archtest.By("TestRestoreKeepsAuthorities").GivenBy("TestFlagSetsItsOption"),
	"data-dir":           archtest.By("TestEveryFlag"),
	"etcd-listen":        archtest.By("TestEveryFlag"),
	"join":               archtest.By("TestClusterGrows"),
	"token":              archtest.By("TestClusterGrows"),
	"member-name":        archtest.By("TestClusterGrows"),
	"peer-listen":        archtest.By("TestClusterGrows"),
	"join-listen":        archtest.By("TestClusterGrows"),
	"peer-address":       archtest.By("TestJoinFlags"),
	"join-address":       archtest.By("TestJoinFlags"),
	"snapshot-dir":       archtest.By("TestClusterGrows"),
	"snapshot-every":     archtest.By("TestJoinFlags"),
	"snapshot-keep":      archtest.By("TestJoinFlags"),
	"recover":            archtest.By("TestClusterGrows"),
	"external-address":   archtest.By("TestUnauthenticatedAPIIsWarnedOf"),
	"internal-address":   archtest.By("TestEveryFlag"),
	"agent-address":      archtest.By("TestEveryFlag"),
	"debug-address":      archtest.By("TestEveryFlag"),
	"mode":               archtest.By("TestEveryFlag"),
	"name":               archtest.By("TestSwarm"),
	"docker-endpoint":    archtest.By("TestSwarm"),
	"kubeconfig":         archtest.By("TestKubeconfig"),
	"kubernetes-cluster": archtest.By("TestStoreFollowsOneKubernetes"),
	"pods-choose-tenant": archtest.By("TestNamespacePoliciesApplyInItsPodsTenants").GivenBy("TestFlagSetsItsOption"),
	"pod-groups":         archtest.By("TestPodGroups"),
	"service-cidr":       archtest.By("TestServicesAreWrittenToTheStore").GivenBy("TestFlagSetsItsOption"),
	"load-balancer-pool": archtest.By("TestPoolAddressesFollowTheirServices").GivenBy("TestFlagSetsItsOption"),
	"external-ip-ranges": archtest.By("TestServicesAreWrittenToTheStore").GivenBy("TestFlagSetsItsOption"),
	"pod-cidr":           archtest.By("TestPodNetworkIsMadeOnce").GivenBy("TestFlagSetsItsOption"),
	"fwdmode":            archtest.By("TestEveryFlag"),
	"aci-gw":             archtest.By("TestFabricFlags"),
	"aci-gw-merges":      archtest.By("TestFabricFlags"),
	"apic":               archtest.By("TestFabricFlags"),
	"apic-user":          archtest.By("TestFabricFlags"),
	"apic-password-file": archtest.By("TestFabricFlags"),
	"apic-ca":            archtest.By("TestFabricFlags"),
	"apic-cluster":       archtest.By("TestFabricFlags"),
	"infra":              archtest.By("TestEveryFlag"),
	"tls-dir":            archtest.By("TestAllConnectionsUseTLS"),
	"store-tls-dir":      archtest.By("TestAllConnectionsUseTLS"),
	"token-file":         archtest.By("TestNetpluginShowsItsToken"),
	"secure":             archtest.By("TestSecureCluster"),
	"accept-plain":       archtest.By("TestTurningSecureLosesNothing"),
	"tokens":             archtest.By("TestWhoIsLetIn"),
	"oidc-file":          archtest.By("TestIssuerIsAsked"),
	"audit-dir":          archtest.By("TestWhoIsLetIn"),
	"client-rate":        archtest.By("TestClientsBeyondTheirRateGetAKnownError"),
	"allowed-hosts":      archtest.By("TestUnknownHostHeadersAreRefused"),
	"evict-after":        archtest.By("TestEndpointsAreReleasedAfterTheGraceTime").GivenBy("TestFlagSetsItsOption"),
	"legacy-errors":      archtest.By("TestLegacyErrorsAreForClientsOf1x"),
	"netmode":            archtest.None(idleNetMode),
	"config":             archtest.By("TestConfigFile"),
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

// TestIdleFlags: flags that do nothing, or not in the mode or with the driver
// that was chosen, are warned of at start; others are not.
func TestIdleFlags(t *testing.T) {
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
