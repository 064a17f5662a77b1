package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

// flagEffects are netplugin's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]archtest.Effect{
	"etcd-endpoints":                 archtest.By("TestBadFlagValuesAreRefused"),
	"consul-endpoints":               archtest.By("TestBadFlagValuesAreRefused"),
	"consul-token-file":              archtest.By("TestBadFlagValuesAreRefused"),
	"tls-dir":                        archtest.By("TestTLSFlags"),
	"store-tls-dir":                  archtest.By("TestTLSFlags"),
	"join":                           archtest.By("TestHostJoinsASecureClusterOnceByItsToken"),
	"token":                          archtest.By("TestHostJoinsASecureClusterOnceByItsToken"),
	"token-file":                     archtest.By("TestNetpluginShowsItsToken"),
	"join-token-file":                archtest.By("TestHostJoinsByItsServiceAccount"),
	"join-authority":                 archtest.By("TestHostJoinsByItsServiceAccount"),
	"cluster-store":                  archtest.By("TestBadFlagValuesAreRefused"),
	"netmaster":                      archtest.By("TestDetachWorksWithoutNetmaster").GivenBy("TestFlagSetsItsOption"),
	"host":                           archtest.By("TestCommandLineWinsOverTheEnvironment"),
	"ctrl-ip":                        archtest.By("TestBadFlagValuesAreRefused"),
	"vtep-ip":                        archtest.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"vxlan-port":                     archtest.By("TestConformance").GivenBy("TestFlagSetsItsOption"),
	"vlan-uplinks":                   archtest.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"mode":                           archtest.By("TestEnginesRunContainersForTheirWholeLife").GivenBy("TestFlagSetsItsOption"),
	"netmode":                        archtest.By("TestBadFlagValuesAreRefused"),
	"fwdmode":                        archtest.By("TestContradictingFlagsStopTheAgent"),
	"private-subnet":                 archtest.By("TestContradictingFlagsStopTheAgent"),
	"ip-forward":                     archtest.By("TestContainersReachOutsideAsPoliciesSay").GivenBy("TestFlagSetsItsOption"),
	"driver":                         archtest.By("TestAutoChoosesTheDriverThatTheHostCanRun"),
	"take-host":                      archtest.By("TestTakeHostReleasesThePreviousHost"),
	"ebpf-pin-dir":                   archtest.By("TestUnusableHostsAreRefusedAtStart").GivenBy("TestFlagSetsItsOption"),
	"cgroup":                         archtest.By("TestNodesServeTheirOwnProcesses").GivenBy("TestFlagSetsItsOption"),
	"ebpf-map-sizes":                 archtest.By("TestBadFlagValuesAreRefused").GivenBy("TestFlagSetsItsOption"),
	"ovs-db":                         archtest.By("TestMissingSwitchIsReported"),
	"ovs-run-dir":                    archtest.By("TestMissingSwitchIsReported").GivenBy("TestFlagSetsItsOption"),
	"ovs-bridge":                     archtest.By("TestUnmanagedBridgeIsRefused").GivenBy("TestFlagSetsItsOption"),
	"ovs-datapath":                   archtest.By("TestUnusableHostsAreRefusedAtStart").GivenBy("TestFlagSetsItsOption"),
	"plugin-name":                    archtest.By("TestEnginesRunContainersForTheirWholeLife").GivenBy("TestFlagSetsItsOption"),
	"docker-socket-dir":              archtest.By("TestEnginesRunContainersForTheirWholeLife").GivenBy("TestFlagSetsItsOption"),
	"docker-endpoint":                archtest.By("TestEnginesRunContainersForTheirWholeLife").GivenBy("TestFlagSetsItsOption"),
	"docker-token-file":              archtest.By("TestDockerOnSecureCluster"),
	"docker-scope":                   archtest.By("TestSwarmGetsNetworksOfTheLeader").GivenBy("TestFlagSetsItsOption"),
	"remount-proc-sys":               archtest.By("TestSwarmGetsNetworksOfTheLeader").GivenBy("TestFlagSetsItsOption"),
	"dns":                            archtest.By("TestNameServerFollowsHome").GivenBy("TestFlagSetsItsOption"),
	"dns-upstream":                   archtest.By("TestFailingResolversAreAnsweredFor"),
	"uninstall":                      archtest.By("TestUninstallLeavesTheHostAsBefore"),
	"force":                          archtest.By("TestUninstallLeavesTheHostAsBefore"),
	"stay":                           archtest.By("TestInstallCNI"),
	"install-cni":                    archtest.By("TestInstallCNI"),
	"cni-bin-dir":                    archtest.By("TestInstallCNI"),
	"cni-conf-dir":                   archtest.By("TestInstallCNI"),
	"state-dir":                      archtest.By("TestDelIsReplayedAfterNetpluginWasDown").GivenBy("TestFlagSetsItsOption"),
	"cni-socket":                     archtest.By("TestDelIsReplayedAfterNetpluginWasDown").GivenBy("TestFlagSetsItsOption"),
	"rest-address":                   archtest.By("TestDelIsReplayedAfterNetpluginWasDown").GivenBy("TestFlagSetsItsOption"),
	"flow-log":                       archtest.By("TestFlowLogHasRealConnections"),
	"debug-address":                  archtest.By("TestBadFlagValuesAreRefused").GivenBy("TestFlagSetsItsOption"),
	"containers-reach-control-plane": archtest.By("TestContainersReachTheControlPlaneOnlyIfAllowed"),
	"debug-hooks":                    archtest.By("TestContainersTalkThroughCutsAndPauses").GivenBy("TestFlagSetsItsOption"),
	"config":                         archtest.By("TestCommandLineAndEnvironmentWinOverTheFile"),
	"log-level":                      archtest.By("TestCommandLineWinsOverEnvironment").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":                   archtest.By("TestLogJSON"),
	"use-syslog":                     archtest.By("TestSyslogMessagesFollowTheRFCs").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":                     archtest.By("TestBadSyslogURLsAreRefused").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":                  archtest.By("TestSyslogMessagesFollowTheRFCs").GivenBy("TestFlagSetsItsOption"),
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
	archtest.CheckEffects(t, "flagEffects in cmd/netplugin/noeffect_test.go", accepted, flagEffects,
		func(flag, sentence string) bool { return strings.Contains(usage[flag], sentence) },
		func(flag string) []string { return spellings[flag] })
}

// TestFlagsWithoutEffectAreWarnedOf: flags that do nothing, or not in the mode or with the driver
// that was chosen, are warned of at start; others are not.
func TestFlagsWithoutEffectAreWarnedOf(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--ctrl-ip 127.0.0.1 --driver ebpf --ebpf-pin-dir /x --dns-upstream 1.1.1.1", ""},
		{"--ctrl-ip 127.0.0.1 --driver ebpf --ovs-bridge x --ovs-datapath netdev", "ovs-bridge,ovs-datapath"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --ebpf-pin-dir /x --dns off --dns-upstream 1.1.1.1", "dns-upstream"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --mode kubernetes --fwdmode routing", "mode"},
		{"--ctrl-ip 127.0.0.1 --driver ovs --mode docker --docker-endpoint none", ""},
		{"--ctrl-ip 127.0.0.1 --driver ovs --docker-endpoint none --plugin-name x", "docker-endpoint,plugin-name"},
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
