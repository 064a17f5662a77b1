package main

import (
	"flag"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

var update = flag.Bool("update", false, "write docs/reference/netplugin.md")

func noEnv(string) string { return "" }

// TestFlagsOf1xAreKnown: every spelling and variable of netplugin 1.x is known.
func TestFlagsOf1xAreKnown(t *testing.T) {
	names := strings.Fields(`consul-endpoints consul consul-token-file ctrl-ip etcd-endpoints etcd fwdmode forward-mode host
		host-label log-level mode plugin-mode cluster-mode netmode network-mode syslog-url use-json-log json-log
		use-syslog syslog vlan-uplinks vlan-if vtep-ip vxlan-port cluster-store`)
	envs := strings.Fields(`CONSUL_ENDPOINTS CONTROL_IP ETCD_ENDPOINTS FORWARD_MODE HOST LOG_LEVEL MODE NET_MODE
		SYSLOG_URL USE_JSON_LOG USE_SYSLOG VLAN_UPLINKS VTEP_IP VXLAN_PORT`)
	var o options
	fs := newFlags(&o)
	for _, n := range names {
		if fs.Lookup(n) == nil {
			t.Errorf("flag --%s is not known", n)
		}
	}
	usage := fs.Help()
	for _, e := range envs {
		if !strings.Contains(usage, "[$CONTIV_NETPLUGIN_"+e+"]") {
			t.Errorf("variable CONTIV_NETPLUGIN_%s is not known", e)
		}
	}
}

// TestReferencePageIsTheFlags: the page of the flags is what the flags say.
func TestReferencePageIsTheFlags(t *testing.T) {
	var o options
	pagetest.CheckFlags(t, "netplugin", newFlags(&o).Flags, *update)
}

// TestCommandsOfPagesParse: netplugin takes the flags and the files that pages show.
func TestCommandsOfPagesParse(t *testing.T) {
	pagetest.CheckProgram(t, "netplugin", func() *flags.Set {
		var o options
		return newFlags(&o)
	})
}

// TestBadFlagValuesAreRefused refuses nonsense with a sentence that names flag and value.
func TestBadFlagValuesAreRefused(t *testing.T) {
	tests := []struct {
		args []string
		want []string // parts of the sentence
	}{
		{[]string{"--etcd-endpoints", "foo"}, []string{"--etcd-endpoints", `"foo"`, "http://host:port"}},
		{[]string{"--etcd", "http://a:1/x"}, []string{"--etcd ", "http://host:port"}},
		{[]string{"--cluster-store", "consul://1.2.3.4:85000"}, []string{"--cluster-store", "between 1 and 65535"}},
		{[]string{"--consul", "1.2.3.4"}, []string{"--consul ", "http://host:port"}},
		{[]string{"--consul", "http://1.2.3.4:8500", "--etcd", "http://1.2.3.4:1"}, []string{"--etcd", "--consul", "one"}},
		{[]string{"--consul-token-file", "/x"}, []string{"--consul-token-file", "--consul-endpoints"}},
		{[]string{"--cluster-store", "etcd://1.2.3.4:1", "--etcd", "http://1.2.3.4:1"}, []string{"--cluster-store", "--etcd", "one"}},
		{[]string{"--etcd-endpoints", "http://127.0.0.1:99999"}, []string{"--etcd-endpoints", "http://127.0.0.1:99999", "between 1 and 65535"}},
		{[]string{"--fwdmode", "x"}, []string{"--fwdmode", "bridge, routing"}},
		{[]string{"--mode", "x"}, []string{"--mode", "kubernetes"}},
		{[]string{"--netmode", "vlan"}, []string{"--netmode", "--vlan-uplinks"}},
		{[]string{"--vtep-ip", "1.2.3"}, []string{"--vtep-ip", "1.2.3"}},
		{[]string{"--ctrl-ip", "0.0.0.0"}, []string{"--ctrl-ip", "0.0.0.0"}},
		{[]string{"--vxlan-port", "70000"}, []string{"--vxlan-port", "70000", "65535"}},
		{[]string{"--vlan-if", "a/b"}, []string{"--vlan-if", "a/b"}},
		{[]string{"--host", "a b"}, []string{"--host", "a b"}},
		{[]string{"--private-subnet", "10.0.0.0/8"}, []string{"--private-subnet", "/16"}},
		{[]string{"--netmaster", "ftp://x"}, []string{"--netmaster", "ftp://x"}},
		{[]string{"--driver", "x"}, []string{"--driver", "ovs"}},
		{[]string{"--ovs-db", "x"}, []string{"--ovs-db", "unix:/path"}},
		{[]string{"--ovs-datapath", "x"}, []string{"--ovs-datapath", "netdev"}},
		{[]string{"--state-dir", "x"}, []string{"--state-dir", "absolute"}},
		{[]string{"--cni-socket", "/" + strings.Repeat("x", 107)}, []string{"--cni-socket", "107"}},
		{[]string{"--rest-address", "x"}, []string{"--rest-address", "ip:port"}},
		{[]string{"--bogus"}, []string{"--bogus"}},
		{[]string{"bogus"}, []string{"bogus"}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var o options
			fs := newFlags(&o)
			err := fs.ParseAll(tt.args, noEnv)
			if err == nil {
				err = o.finish(t.Context(), fs)
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("sentence %q lacks %q", err, w)
				}
			}
		})
	}
}

// TestCommandLineWinsOverTheEnvironment reads settings from the environment; the command line wins.
func TestCommandLineWinsOverTheEnvironment(t *testing.T) {
	env := map[string]string{
		envPrefix + "ETCD_ENDPOINTS": "etcd://10.0.0.1:2379,10.0.0.2:2379", envPrefix + "HOST": "fromenv",
		envPrefix + "VTEP_IP": "10.0.0.9", envPrefix + "CONTROL_IP": "10.0.0.8",
	}
	var o options
	fs := newFlags(&o)
	err := fs.ParseAll([]string{"-host-label=fromargs"}, func(k string) string { return env[k] })
	if err == nil {
		err = o.finish(t.Context(), fs)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.hostName != "fromargs" || o.vtep.String() != "10.0.0.9" || o.ctrl.String() != "10.0.0.8" {
		t.Errorf("host %s, vtep %s, control %s", o.hostName, o.vtep, o.ctrl)
	}
	if got := strings.Join(o.store.Etcd, " "); got != "http://10.0.0.1:2379 http://10.0.0.2:2379" {
		t.Errorf("etcd endpoints %q", got)
	}
}

// TestAddressesAreOurs: an address that the host does not have is refused, and the refusal
// lists the host's addresses.
func TestAddressesAreOurs(t *testing.T) {
	o := options{driver: driverAuto, ctrl: netip.MustParseAddr("127.0.0.1"), vtep: netip.MustParseAddr("127.0.0.1")}
	if err := o.checkAddresses(); err == nil || !strings.Contains(err.Error(), `--vtep-ip "127.0.0.1": is loopback`) {
		t.Errorf("a tunnel on loopback: %v", err)
	}
	o.driver = driverFake
	if err := o.checkAddresses(); err != nil {
		t.Errorf("an address of this host, which forwards nothing: %v", err)
	}
	o.driver = driverAuto
	o.vtep = netip.MustParseAddr("198.51.100.9")
	if err := o.checkAddresses(); err == nil || !strings.Contains(err.Error(), `--vtep-ip "198.51.100.9": is not an address of this host, which has `) {
		t.Errorf("an address of another host: %v", err)
	}
	o.ctrl, o.vtep = o.vtep, o.ctrl
	if err := o.checkAddresses(); err == nil || !strings.Contains(err.Error(), "--ctrl-ip") {
		t.Errorf("an address of another host: %v", err)
	}
}
