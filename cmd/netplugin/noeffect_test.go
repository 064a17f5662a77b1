package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/effecttest"
)

// flagEffects are netplugin's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]effecttest.Effect{
	"etcd-endpoints":                 effecttest.By("TestBadFlags"),
	"consul-endpoints":               effecttest.By("TestBadFlags"),
	"consul-token-file":              effecttest.By("TestBadFlags"),
	"tls-dir":                        effecttest.By("TestTLSFlags"),
	"store-tls-dir":                  effecttest.By("TestTLSFlags"),
	"join":                           effecttest.By("TestSecureCluster"),
	"token":                          effecttest.By("TestSecureCluster"),
	"token-file":                     effecttest.By("TestToken"),
	"join-token-file":                effecttest.By("TestJoinByAccount"),
	"join-authority":                 effecttest.By("TestJoinByAccount"),
	"cluster-store":                  effecttest.By("TestBadFlags"),
	"netmaster":                      effecttest.By("TestMasterGone").GivenBy("TestFlagSetsItsOption"),
	"host":                           effecttest.By("TestEnvironment"),
	"ctrl-ip":                        effecttest.By("TestBadFlags"),
	"vtep-ip":                        effecttest.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"vxlan-port":                     effecttest.By("TestConformance").GivenBy("TestFlagSetsItsOption"),
	"vlan-uplinks":                   effecttest.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"mode":                           effecttest.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"netmode":                        effecttest.By("TestBadFlags"),
	"fwdmode":                        effecttest.By("TestContradiction"),
	"private-subnet":                 effecttest.By("TestContradiction"),
	"ip-forward":                     effecttest.By("TestOutside").GivenBy("TestFlagSetsItsOption"),
	"driver":                         effecttest.By("TestChoose"),
	"take-host":                      effecttest.By("TestTakeHostReleasesTheFormerHost"),
	"ebpf-pin-dir":                   effecttest.By("TestStartRefused").GivenBy("TestFlagSetsItsOption"),
	"ebpf-map-sizes":                 effecttest.By("TestBadFlags").GivenBy("TestFlagSetsItsOption"),
	"ovs-db":                         effecttest.By("TestNoSwitch"),
	"ovs-run-dir":                    effecttest.By("TestNoSwitch").GivenBy("TestFlagSetsItsOption"),
	"ovs-bridge":                     effecttest.By("TestForeignBridge").GivenBy("TestFlagSetsItsOption"),
	"ovs-datapath":                   effecttest.By("TestStartRefused").GivenBy("TestFlagSetsItsOption"),
	"plugin-name":                    effecttest.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-socket-dir":              effecttest.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-endpoint":                effecttest.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-token-file":              effecttest.By("TestDockerOnSecureCluster"),
	"docker-scope":                   effecttest.By("TestSwarm").GivenBy("TestFlagSetsItsOption"),
	"mirror-from":                    effecttest.By("TestFailover"),
	"dns":                            effecttest.By("TestNameServerFollowsHome").GivenBy("TestFlagSetsItsOption"),
	"dns-upstream":                   effecttest.By("TestResolvers"),
	"uninstall":                      effecttest.By("TestUninstall"),
	"force":                          effecttest.By("TestUninstall"),
	"stay":                           effecttest.By("TestInstallCNI"),
	"install-cni":                    effecttest.By("TestInstallCNI"),
	"cni-bin-dir":                    effecttest.By("TestInstallCNI"),
	"cni-conf-dir":                   effecttest.By("TestInstallCNI"),
	"state-dir":                      effecttest.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"cni-socket":                     effecttest.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"rest-address":                   effecttest.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"flow-log":                       effecttest.By("TestFlowLogFile"),
	"debug-address":                  effecttest.By("TestBadFlags").GivenBy("TestFlagSetsItsOption"),
	"containers-reach-control-plane": effecttest.By("TestControlPlane"),
	"debug-hooks":                    effecttest.By("TestCutAndPaused").GivenBy("TestFlagSetsItsOption"),
	"log-level":                      effecttest.By("TestFlags").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":                   effecttest.By("TestLogJSON"),
	"use-syslog":                     effecttest.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":                     effecttest.By("TestSyslogURL").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":                  effecttest.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
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
	effecttest.Check(t, "flagEffects in cmd/netplugin/noeffect_test.go", accepted, flagEffects,
		func(flag, sentence string) bool { return strings.Contains(usage[flag], sentence) },
		func(flag string) []string { return spellings[flag] })
}

// TestIdleFlags: flags that do nothing, or not in the mode or with the driver
// that was chosen, are warned of at start; others are not.
func TestIdleFlags(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--ctrl-ip 127.0.0.1 --driver ebpf --ebpf-pin-dir /x --dns-upstream 1.1.1.1", ""},
		{"--ctrl-ip 127.0.0.1 --driver ebpf --ovs-bridge x --ovs-datapath netdev", "ovs-bridge,ovs-datapath"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --ebpf-pin-dir /x --dns off --dns-upstream 1.1.1.1", "ebpf-pin-dir,dns-upstream"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --mode kubernetes --fwdmode routing", "mode"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --mode docker --docker-endpoint none", ""},
		{"--ctrl-ip 127.0.0.1 --driver ovs --docker-endpoint none --name x", "docker-endpoint,name"},
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
		o.warnIdle(fs, slog.New(slog.NewTextHandler(&out, nil)))
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
