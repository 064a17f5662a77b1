package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/model"
)

func parse(t *testing.T, env map[string]string, args ...string) (options, error) {
	t.Helper()
	var o options
	fs := newFlags(&o)
	err := fs.ParseAll(args, func(k string) string { return env[k] })
	if err == nil {
		err = o.finish(t.Context(), fs)
	}
	return o, err
}

// TestFlagsOf1xSetWhatTheyDid: every flag, spelling and variable of 1.x's help text, and the
// 2017 spellings, set what they did.
func TestFlagsOf1xSetWhatTheyDid(t *testing.T) {
	tests := []struct {
		spellings []string
		env       string
		value     string
		get       func(options) string
		want      string
	}{
		{[]string{"etcd-endpoints", "etcd"}, "ETCD_ENDPOINTS", "http://10.0.0.1:2379,etcd://10.0.0.2:2379", func(o options) string { return strings.Join(o.store.Etcd, " ") }, "http://10.0.0.1:2379 http://10.0.0.2:2379"},
		{[]string{"etcd-endpoints"}, "ETCD_ENDPOINTS", "http://127.0.0.1:2379", func(o options) string { return strings.Join(o.store.Etcd, " ") }, "http://127.0.0.1:2379"},
		{[]string{"cluster-store"}, "CLUSTER_STORE", "etcd://127.0.0.1:2379", func(o options) string { return strings.Join(o.store.Etcd, " ") }, "http://127.0.0.1:2379"},
		{[]string{"external-address", "listen-url"}, "EXTERNAL_ADDRESS", "127.0.0.1:8888", func(o options) string { return o.external + " " + o.internal + " " + o.agent }, "127.0.0.1:8888 127.0.0.1:8888 127.0.0.1:9001"},
		{[]string{"internal-address", "control-url"}, "INTERNAL_ADDRESS", "127.0.0.5:7777", func(o options) string { return o.internal + " " + o.agent }, "127.0.0.5:7777 127.0.0.5:9001"},
		{[]string{"internal-address"}, "INTERNAL_ADDRESS", "10.0.0.1:7777", func(o options) string { return o.external }, "127.0.0.1:7777"},
		{[]string{"internal-address"}, "INTERNAL_ADDRESS", "127.0.0.1:7777", func(o options) string { return o.external }, "127.0.0.1:7777"},
		{[]string{"fwdmode", "forward-mode"}, "FORWARD_MODE", "routing", func(o options) string { return o.fwdMode }, "routing"},
		{[]string{"infra", "infra-type"}, "INFRA", "ACI", func(o options) string { return o.infra }, "aci"},
		{[]string{"log-level"}, "LOG_LEVEL", "debug", func(o options) string { return o.log.Level }, "DEBUG"},
		{[]string{"mode", "plugin-mode", "cluster-mode"}, "MODE", "kubernetes", func(o options) string { return o.mode }, "kubernetes"},
		{[]string{"mode"}, "MODE", "none", func(o options) string { return o.mode }, "none"},
		{[]string{"mode"}, "MODE", "swarm-mode", func(o options) string { return o.mode }, "swarm-mode"},
		{[]string{"mode"}, "MODE", "mesos", func(o options) string { return o.mode }, "mesos"},
		{[]string{"mode"}, "MODE", "test", func(o options) string { return o.mode }, "test"},
		{[]string{"name", "plugin-name"}, "PLUGIN_NAME", "v2plugin", func(o options) string { return o.name }, "v2plugin"},
		{[]string{"netmode", "network-mode"}, "NET_MODE", "vlan", func(o options) string { return o.netMode }, "vlan"},
		{[]string{"syslog-url"}, "SYSLOG_URL", "tcp://127.0.0.1:601", func(o options) string { return o.log.SyslogURL }, "tcp://127.0.0.1:601"},
		{[]string{"use-json-log", "json-log"}, "USE_JSON_LOG", "true", func(o options) string { return map[bool]string{true: "yes"}[o.log.JSON] }, "yes"},
		{[]string{"use-syslog", "syslog"}, "USE_SYSLOG", "true", func(o options) string { return map[bool]string{true: "yes"}[o.log.Syslog] }, "yes"},
	}
	for _, tt := range tests {
		check := func(how string, o options, err error) {
			if err != nil || tt.get(o) != tt.want {
				t.Errorf("%s: got %q, %v; want %q", how, tt.get(o), err, tt.want)
			}
		}
		for _, s := range tt.spellings {
			for _, dash := range []string{"-", "--"} {
				o, err := parse(t, nil, dash+s+"="+tt.value)
				check(dash+s+"=", o, err)
				if tt.value != "true" {
					o, err = parse(t, nil, dash+s, tt.value)
					check(dash+s, o, err)
				} else {
					o, err = parse(t, nil, dash+s)
					check(dash+s, o, err)
				}
			}
		}
		o, err := parse(t, map[string]string{"CONTIV_NETMASTER_" + tt.env: tt.value})
		check("$"+tt.env, o, err)
	}
}

// TestBadFlagValuesAreRefused: bad values are usage errors that name flag, value and what
// is allowed.
func TestBadFlagValuesAreRefused(t *testing.T) {
	tests := []struct {
		args string
		want []string
	}{
		{"--etcd-endpoints ftp://x:1", []string{"--etcd-endpoints", "ftp://x:1", "http://host:port"}},
		{"--etcd http://127.0.0.1", []string{"--etcd", "http://127.0.0.1", "host:port"}},
		{"--etcd-endpoints http://127.0.0.1:99999", []string{"--etcd-endpoints", "http://127.0.0.1:99999", "between 1 and 65535"}},
		{"--cluster-store etcd://127.0.0.1:99999", []string{"--cluster-store", "etcd://127.0.0.1:99999", "between 1 and 65535"}},
		{"--etcd-endpoints ,", []string{"--etcd-endpoints", "must name an etcd"}},
		{"--consul-endpoints http://127.0.0.1", []string{"--consul-endpoints", "http://host:port"}},
		{"--consul http://127.0.0.1:8500 --etcd http://127.0.0.1:2379", []string{"--consul", "--etcd", "give one"}},
		{"--consul http://127.0.0.1:8500 --etcd-listen 127.0.0.1:1", []string{"--etcd-listen", "embedded etcd", "omit one"}},
		{"--consul-token-file /x", []string{"--consul-token-file", "--consul-endpoints"}},
		{"--cluster-store consul://127.0.0.1:8500,127.0.0.2:8500", []string{"--cluster-store", "must be consul://host:port"}},
		{"--cluster-store redis://127.0.0.1:1", []string{"--cluster-store", "redis://127.0.0.1:1", "etcd://host:port"}},
		{"--cluster-store etcd://127.0.0.1:2379 --etcd http://127.0.0.1:2379", []string{"--cluster-store", "--etcd", "give one"}},
		{"--etcd http://127.0.0.1:2379 --data-dir /x", []string{"--data-dir", "embedded etcd", "omit one"}},
		{"--external-address 9999", []string{"--external-address", `"9999"`, "ip:port"}},
		{"--listen-url 0.0.0.0:99999", []string{"--listen-url", "99999", "ip:port"}},
		{"--external-address 127.0.0.1:0", []string{"--external-address", "127.0.0.1:0", "between 1 and 65535"}},
		{"--external-address http://0.0.0.0:9999", []string{"--external-address", "ip:port"}},
		{"--internal-address 0.0.0.0:9999", []string{"--internal-address", "0.0.0.0:9999", "one address"}},
		{"--evict-after 30s", []string{"--evict-after", "30s", "at least 1m"}},
		{"--evict-after -1h", []string{"--evict-after", "at least 1m"}},
		{"--evict-after never", []string{"--evict-after", "24h"}},
		{"--mode swarm", []string{"--mode", "swarm", "none, docker, swarm-mode, kubernetes, mesos, test"}},
		{"--name /b", []string{"--name", "/b", "managed plugin"}},
		{"--docker-endpoint tcp://x", []string{"--docker-endpoint", "unix:///path"}},
		{"--docker-endpoint unix:///run/docker.sock", []string{"--docker-endpoint", "--mode swarm-mode"}},
		{"--netmode gre", []string{"--netmode", "gre", "vlan, vxlan"}},
		{"--fwdmode nat", []string{"--fwdmode", "nat", "bridge, routing"}},
		{"--infra x", []string{"--infra", `"x"`, "default, aci"}},
		{"--allowed-hosts contiv.example.com:9999", []string{"--allowed-hosts", "contiv.example.com:9999", "without scheme and port"}},
		{"--allowed-hosts a.example.com,http://b.example.com", []string{"--allowed-hosts", "without scheme and port"}},
		{"--log-level LOUD", []string{"--log-level", "LOUD", "DEBUG, INFO, WARN, ERROR"}},
		{"--syslog-url 127.0.0.1", []string{"--syslog-url", "127.0.0.1", "udp://ip:port"}},
		{"--etcd-listen :2379", []string{"--etcd-listen", ":2379", "ip:port"}},
		{"--data-dir=", []string{"--data-dir", "must not be empty"}},
		{"--kubernetes-cluster u", []string{"--kubernetes-cluster", "--kubeconfig"}},
		{"--kubeconfig x --kubernetes-cluster a.b", []string{"--kubernetes-cluster", "a.b", "must be a UID"}},
		{"--service-cidr 10.96.0.0/12", []string{"--service-cidr", "--kubeconfig"}},
		{"--kubeconfig x --service-cidr 10.96.0.1/12", []string{"--service-cidr", "10.96.0.1/12", "without host bits"}},
		{"--kubeconfig x --service-cidr 10.96.0.0/12,10.97.0.0/16", []string{"--service-cidr", "10.96.0.0/12 and 10.97.0.0/16 overlap"}},
		{"--kubeconfig x --service-cidr 10.96.0.0/12 --pod-cidr 10.100.0.0/16", []string{"--pod-cidr", "10.100.0.0/16", "overlaps 10.96.0.0/12 of --service-cidr"}},
		{"--kubeconfig x --service-cidr 0.0.0.0/0", []string{"--service-cidr", "must be prefixes", "not all addresses (/0)"}},
		{"--kubeconfig x --service-cidr 10.96.0.0/12,x", []string{"--service-cidr", "must be prefixes"}},
		{"--load-balancer-pool 203.0.113.0/24", []string{"--load-balancer-pool", "--kubeconfig"}},
		{"--kubeconfig x --load-balancer-pool 203.0.113.1/24", []string{"--load-balancer-pool", "203.0.113.1/24", "must be a block such as"}},
		{"--kubeconfig x --load-balancer-pool 203.0.113.0/24,203.0.113.9", []string{"--load-balancer-pool", "overlaps"}},
		{"--external-ip-ranges 203.0.113.0/24", []string{"--external-ip-ranges", "--kubeconfig"}},
		{"--kubeconfig x --external-ip-ranges 203.0.113.9", []string{"--external-ip-ranges", "must be prefixes"}},
		{"--bogus", []string{"--bogus", "--help"}},
		{"serve", []string{`"serve"`, "--help"}},
	}
	for _, tt := range tests {
		_, err := parse(t, nil, strings.Fields(tt.args)...)
		if _, ok := errors.AsType[*flags.UsageError](err); !ok {
			t.Errorf("%s: got %v, want a usage error", tt.args, err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", tt.args, err, w)
			}
		}
	}
}

// TestServiceFlagsAreApplied: what the flags for Kubernetes' services say is what is kept.
func TestServiceFlagsAreApplied(t *testing.T) {
	o, err := parse(t, map[string]string{"CONTIV_NETMASTER_SERVICE_CIDR": "10.96.0.0/12"}, "--kubeconfig", "x",
		"--load-balancer-pool", "203.0.113.0/29,2001:db8::1", "--external-ip-ranges", "198.51.100.0/24,10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(o.services.ranges, []model.AddrRange(o.services.pool), o.services.external)
	if want := "[10.96.0.0/12] [203.0.113.1-203.0.113.6 2001:db8::1-2001:db8::1] [10.0.0.0/8 198.51.100.0/24]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDefaultsAreAnEmbeddedEtcdAnd1xAddresses: with no flags but one that depends on the machine, an embedded etcd
// and 1.x's addresses.
func TestDefaultsAreAnEmbeddedEtcdAnd1xAddresses(t *testing.T) {
	o, err := parse(t, nil, "--agent-address", "127.0.0.1:9001")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{strings.Join(o.store.Etcd, ","), o.external, o.agent, o.mode, o.dataDir, o.etcdListen, o.name}
	want := []string{"", "0.0.0.0:9999", "127.0.0.1:9001", "none", "/var/lib/contiv/etcd", "127.0.0.1:2379", "netplugin"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
