package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/optioncoverage"
)

// flagEffects are netmaster's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]optioncoverage.Effect{
	"etcd-endpoints":     optioncoverage.By("TestReplicas"),
	"consul-endpoints":   optioncoverage.By("TestFlagsRefused"),
	"consul-token-file":  optioncoverage.By("TestExitCodes"),
	"cluster-store":      optioncoverage.By("TestReplicas"),
	"restore":            optioncoverage.By("TestRestoreBackup"),
	"keep-tokens":        optioncoverage.By("TestRestoreBackup").GivenBy("TestFlagSetsItsOption"),
	"new-authorities":    optioncoverage.By("TestRestoreKeepsAuthorities").GivenBy("TestFlagSetsItsOption"),
	"data-dir":           optioncoverage.By("TestEveryFlag"),
	"etcd-listen":        optioncoverage.By("TestEveryFlag"),
	"join":               optioncoverage.By("TestClusterGrows"),
	"token":              optioncoverage.By("TestClusterGrows"),
	"member-name":        optioncoverage.By("TestClusterGrows"),
	"peer-listen":        optioncoverage.By("TestClusterGrows"),
	"join-listen":        optioncoverage.By("TestClusterGrows"),
	"peer-address":       optioncoverage.By("TestJoinFlags"),
	"join-address":       optioncoverage.By("TestJoinFlags"),
	"snapshot-dir":       optioncoverage.By("TestClusterGrows"),
	"snapshot-every":     optioncoverage.By("TestJoinFlags"),
	"snapshot-keep":      optioncoverage.By("TestJoinFlags"),
	"recover":            optioncoverage.By("TestClusterGrows"),
	"external-address":   optioncoverage.By("TestWarns"),
	"internal-address":   optioncoverage.By("TestEveryFlag"),
	"agent-address":      optioncoverage.By("TestEveryFlag"),
	"debug-address":      optioncoverage.By("TestEveryFlag"),
	"mode":               optioncoverage.By("TestEveryFlag"),
	"name":               optioncoverage.By("TestSwarm"),
	"docker-endpoint":    optioncoverage.By("TestSwarm"),
	"kubeconfig":         optioncoverage.By("TestKubeconfig"),
	"kubernetes-cluster": optioncoverage.By("TestOneKubernetes"),
	"pods-choose-tenant": optioncoverage.By("TestChoosesTenant").GivenBy("TestFlagSetsItsOption"),
	"pod-groups":         optioncoverage.By("TestPodGroups"),
	"service-cidr":       optioncoverage.By("TestServicesKept").GivenBy("TestFlagSetsItsOption"),
	"load-balancer-pool": optioncoverage.By("TestServicesPool").GivenBy("TestFlagSetsItsOption"),
	"external-ip-ranges": optioncoverage.By("TestServicesKept").GivenBy("TestFlagSetsItsOption"),
	"pod-cidr":           optioncoverage.By("TestPodNetwork").GivenBy("TestFlagSetsItsOption"),
	"fwdmode":            optioncoverage.By("TestEveryFlag"),
	"aci-gw":             optioncoverage.By("TestFabricFlags"),
	"aci-gw-merges":      optioncoverage.By("TestFabricFlags"),
	"apic":               optioncoverage.By("TestFabricFlags"),
	"apic-user":          optioncoverage.By("TestFabricFlags"),
	"apic-password-file": optioncoverage.By("TestFabricFlags"),
	"apic-ca":            optioncoverage.By("TestFabricFlags"),
	"apic-cluster":       optioncoverage.By("TestFabricFlags"),
	"infra":              optioncoverage.By("TestEveryFlag"),
	"tls-dir":            optioncoverage.By("TestTLSPath"),
	"store-tls-dir":      optioncoverage.By("TestTLSPath"),
	"token-file":         optioncoverage.By("TestToken"),
	"secure":             optioncoverage.By("TestSecureCluster"),
	"accept-plain":       optioncoverage.By("TestTurnSecure"),
	"tokens":             optioncoverage.By("TestWhoIsLetIn"),
	"oidc-file":          optioncoverage.By("TestIssuerIsAsked"),
	"audit-dir":          optioncoverage.By("TestWhoIsLetIn"),
	"client-rate":        optioncoverage.By("TestClientRate"),
	"allowed-hosts":      optioncoverage.By("TestHostHeader"),
	"evict-after":        optioncoverage.By("TestGraceTime").GivenBy("TestFlagSetsItsOption"),
	"legacy-errors":      optioncoverage.By("TestLegacyErrorsAreForClientsOf1x"),
	"netmode":            optioncoverage.None(idleNetMode),
	"log-level":          optioncoverage.By("TestFlags").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":       optioncoverage.By("TestLogJSON"),
	"use-syslog":         optioncoverage.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":         optioncoverage.By("TestSyslogURL").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":      optioncoverage.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),

	"enroll-service-account": optioncoverage.By("TestEnrollServiceAccount"),
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
	optioncoverage.Check(t, "flagEffects in cmd/netmaster/noeffect_test.go", accepted, flagEffects,
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
