package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/effecttest"
)

// flagEffects are netmaster's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]effecttest.Effect{
	"etcd-endpoints":     effecttest.By("TestReplicas"),
	"consul-endpoints":   effecttest.By("TestFlagsRefused"),
	"consul-token-file":  effecttest.By("TestExitCodes"),
	"cluster-store":      effecttest.By("TestReplicas"),
	"restore":            effecttest.By("TestRestoreBackup"),
	"keep-tokens":        effecttest.By("TestRestoreBackup").GivenBy("TestFlagSetsItsOption"),
	"new-authorities":    effecttest.By("TestRestoreKeepsAuthorities").GivenBy("TestFlagSetsItsOption"),
	"data-dir":           effecttest.By("TestEveryFlag"),
	"etcd-listen":        effecttest.By("TestEveryFlag"),
	"join":               effecttest.By("TestClusterGrows"),
	"token":              effecttest.By("TestClusterGrows"),
	"member-name":        effecttest.By("TestClusterGrows"),
	"peer-listen":        effecttest.By("TestClusterGrows"),
	"join-listen":        effecttest.By("TestClusterGrows"),
	"peer-address":       effecttest.By("TestJoinFlags"),
	"join-address":       effecttest.By("TestJoinFlags"),
	"snapshot-dir":       effecttest.By("TestClusterGrows"),
	"snapshot-every":     effecttest.By("TestJoinFlags"),
	"snapshot-keep":      effecttest.By("TestJoinFlags"),
	"recover":            effecttest.By("TestClusterGrows"),
	"external-address":   effecttest.By("TestWarns"),
	"internal-address":   effecttest.By("TestEveryFlag"),
	"agent-address":      effecttest.By("TestEveryFlag"),
	"debug-address":      effecttest.By("TestEveryFlag"),
	"mode":               effecttest.By("TestEveryFlag"),
	"name":               effecttest.By("TestSwarm"),
	"docker-endpoint":    effecttest.By("TestSwarm"),
	"kubeconfig":         effecttest.By("TestKubeconfig"),
	"kubernetes-cluster": effecttest.By("TestOneKubernetes"),
	"pods-choose-tenant": effecttest.By("TestChoosesTenant").GivenBy("TestFlagSetsItsOption"),
	"pod-groups":         effecttest.By("TestPodGroups"),
	"services":           effecttest.By("TestFlagsRefused"),
	"service-cidr":       effecttest.By("TestServicesKept").GivenBy("TestFlagSetsItsOption"),
	"load-balancer-pool": effecttest.By("TestServicesPool").GivenBy("TestFlagSetsItsOption"),
	"external-ip-ranges": effecttest.By("TestServicesKept").GivenBy("TestFlagSetsItsOption"),
	"pod-cidr":           effecttest.By("TestPodNetwork").GivenBy("TestFlagSetsItsOption"),
	"fwdmode":            effecttest.By("TestEveryFlag"),
	"aci-gw":             effecttest.By("TestFabricFlags"),
	"aci-gw-merges":      effecttest.By("TestFabricFlags"),
	"apic":               effecttest.By("TestFabricFlags"),
	"apic-user":          effecttest.By("TestFabricFlags"),
	"apic-password-file": effecttest.By("TestFabricFlags"),
	"apic-ca":            effecttest.By("TestFabricFlags"),
	"apic-cluster":       effecttest.By("TestFabricFlags"),
	"infra":              effecttest.By("TestEveryFlag"),
	"tls-dir":            effecttest.By("TestTLSPath"),
	"store-tls-dir":      effecttest.By("TestTLSPath"),
	"token-file":         effecttest.By("TestToken"),
	"secure":             effecttest.By("TestSecureCluster"),
	"accept-plain":       effecttest.By("TestTurnSecure"),
	"tokens":             effecttest.By("TestWhoIsLetIn"),
	"oidc-file":          effecttest.By("TestIssuerIsAsked"),
	"audit-dir":          effecttest.By("TestWhoIsLetIn"),
	"client-rate":        effecttest.By("TestClientRate"),
	"allowed-hosts":      effecttest.By("TestHostHeader"),
	"evict-after":        effecttest.By("TestGraceTime").GivenBy("TestFlagSetsItsOption"),
	"legacy-errors":      effecttest.By("TestLegacyErrorsAreForClientsOf1x"),
	"netmode":            effecttest.None(idleNetMode),
	"log-level":          effecttest.By("TestFlags").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":       effecttest.By("TestLogJSON"),
	"use-syslog":         effecttest.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":         effecttest.By("TestSyslogURL").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":      effecttest.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),

	"enroll-service-account": effecttest.By("TestEnrollServiceAccount"),
}

// TestEveryFlagHasEffect: each flag does something, by a test, or its help text
// says that it does not.
func TestEveryFlagHasEffect(t *testing.T) {
	var o options
	usage, spellings := map[string]string{}, map[string][]string{}
	var accepted []string
	for _, f := range newFlags(&o).Flags() {
		accepted = append(accepted, f.Name)
		usage[f.Name] = f.Usage
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			spellings[f.Name] = append(spellings[f.Name], "-"+name, "--"+name)
		}
		spellings[f.Name] = append(spellings[f.Name], f.Env)
	}
	effecttest.Check(t, "flagEffects in cmd/netmaster/noeffect_test.go", accepted, flagEffects,
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
		{"--internal-address 127.0.0.1:1 --kubeconfig x --services --service-cidr 10.96.0.0/12", ""},
	} {
		var o options
		fs := newFlags(&o)
		if err := fs.Parse(strings.Fields(tc.args), func(string) (string, bool) { return "", false }); err != nil {
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
