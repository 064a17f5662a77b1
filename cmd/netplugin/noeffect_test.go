package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/optioncoverage"
)

// flagEffects are netplugin's flags, each with the test that fails when it does
// nothing, or with the sentence of its help text that says so.
var flagEffects = map[string]optioncoverage.Effect{
	"etcd-endpoints":                 optioncoverage.By("TestBadFlags"),
	"consul-endpoints":               optioncoverage.By("TestBadFlags"),
	"consul-token-file":              optioncoverage.By("TestBadFlags"),
	"tls-dir":                        optioncoverage.By("TestTLSFlags"),
	"store-tls-dir":                  optioncoverage.By("TestTLSFlags"),
	"join":                           optioncoverage.By("TestSecureCluster"),
	"token":                          optioncoverage.By("TestSecureCluster"),
	"token-file":                     optioncoverage.By("TestToken"),
	"join-token-file":                optioncoverage.By("TestJoinByAccount"),
	"join-authority":                 optioncoverage.By("TestJoinByAccount"),
	"cluster-store":                  optioncoverage.By("TestBadFlags"),
	"netmaster":                      optioncoverage.By("TestMasterGone").GivenBy("TestFlagSetsItsOption"),
	"host":                           optioncoverage.By("TestEnvironment"),
	"ctrl-ip":                        optioncoverage.By("TestBadFlags"),
	"vtep-ip":                        optioncoverage.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"vxlan-port":                     optioncoverage.By("TestConformance").GivenBy("TestFlagSetsItsOption"),
	"vlan-uplinks":                   optioncoverage.By("TestMatrix").GivenBy("TestFlagSetsItsOption"),
	"mode":                           optioncoverage.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"netmode":                        optioncoverage.By("TestBadFlags"),
	"fwdmode":                        optioncoverage.By("TestContradiction"),
	"private-subnet":                 optioncoverage.By("TestContradiction"),
	"ip-forward":                     optioncoverage.By("TestOutside").GivenBy("TestFlagSetsItsOption"),
	"driver":                         optioncoverage.By("TestChoose"),
	"take-host":                      optioncoverage.By("TestTakeHostReleasesTheFormerHost"),
	"ebpf-pin-dir":                   optioncoverage.By("TestStartRefused").GivenBy("TestFlagSetsItsOption"),
	"ebpf-map-sizes":                 optioncoverage.By("TestBadFlags").GivenBy("TestFlagSetsItsOption"),
	"ovs-db":                         optioncoverage.By("TestNoSwitch"),
	"ovs-run-dir":                    optioncoverage.By("TestNoSwitch").GivenBy("TestFlagSetsItsOption"),
	"ovs-bridge":                     optioncoverage.By("TestForeignBridge").GivenBy("TestFlagSetsItsOption"),
	"ovs-datapath":                   optioncoverage.By("TestStartRefused").GivenBy("TestFlagSetsItsOption"),
	"plugin-name":                    optioncoverage.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-socket-dir":              optioncoverage.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-endpoint":                optioncoverage.By("TestDocker").GivenBy("TestFlagSetsItsOption"),
	"docker-token-file":              optioncoverage.By("TestDockerOnSecureCluster"),
	"docker-scope":                   optioncoverage.By("TestSwarm").GivenBy("TestFlagSetsItsOption"),
	"dns":                            optioncoverage.By("TestNameServerFollowsHome").GivenBy("TestFlagSetsItsOption"),
	"dns-upstream":                   optioncoverage.By("TestResolvers"),
	"uninstall":                      optioncoverage.By("TestUninstall"),
	"force":                          optioncoverage.By("TestUninstall"),
	"stay":                           optioncoverage.By("TestInstallCNI"),
	"install-cni":                    optioncoverage.By("TestInstallCNI"),
	"cni-bin-dir":                    optioncoverage.By("TestInstallCNI"),
	"cni-conf-dir":                   optioncoverage.By("TestInstallCNI"),
	"state-dir":                      optioncoverage.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"cni-socket":                     optioncoverage.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"rest-address":                   optioncoverage.By("TestSpool").GivenBy("TestFlagSetsItsOption"),
	"flow-log":                       optioncoverage.By("TestFlowLogFile"),
	"debug-address":                  optioncoverage.By("TestBadFlags").GivenBy("TestFlagSetsItsOption"),
	"containers-reach-control-plane": optioncoverage.By("TestControlPlane"),
	"debug-hooks":                    optioncoverage.By("TestCutAndPaused").GivenBy("TestFlagSetsItsOption"),
	"log-level":                      optioncoverage.By("TestFlags").GivenBy("TestFlagSetsItsOption"),
	"use-json-log":                   optioncoverage.By("TestLogJSON"),
	"use-syslog":                     optioncoverage.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
	"syslog-url":                     optioncoverage.By("TestSyslogURL").GivenBy("TestFlagSetsItsOption"),
	"syslog-format":                  optioncoverage.By("TestSyslog").GivenBy("TestFlagSetsItsOption"),
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
	optioncoverage.Check(t, "flagEffects in cmd/netplugin/noeffect_test.go", accepted, flagEffects,
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
