package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
)

// configured is what the agent gets of options.
func configured(o options) (cfg agent.Config) {
	o.configure(&cfg)
	return cfg
}

// TestFlagSetsItsOption: flags whose effects are shown by tests of other packages, which
// configure an agent or a driver by themselves, set what these are configured by.
func TestFlagSetsItsOption(t *testing.T) {
	parse := func(args string) (o options, err error) {
		fs := newFlags(&o)
		if err = fs.ParseAll(strings.Fields(args+" --ctrl-ip 127.0.0.1"), noEnv); err == nil {
			err = o.finish(t.Context(), fs)
		}
		return o, err
	}
	for line, get := range map[string]func(options) any{
		"--netmaster http://10.0.0.1:9999 = http://10.0.0.1:9999": func(o options) any { return configured(o).Netmasters },
		"--vtep-ip 127.0.0.3 = 127.0.0.3":                         func(o options) any { return configured(o).VTEP },
		"--vxlan-port 4790 = 4790":                                func(o options) any { return configured(o).VXLANPort },
		"--vlan-uplinks eth1,eth2 = [eth1 eth2]":                  func(o options) any { return configured(o).Uplinks },
		"--mode docker = docker":                                  func(o options) any { return o.mode },
		"--ip-forward = true":                                     func(o options) any { return configured(o).IPForward },
		"--ebpf-pin-dir /sys/fs/bpf/x = /sys/fs/bpf/x":            func(o options) any { return o.ebpfPinDir },
		"--cgroup /sys/fs/cgroup/x = /sys/fs/cgroup/x":            func(o options) any { return o.cgroup },
		"--ebpf-map-sizes ports=7000 = ports=7000":                func(o options) any { return o.ebpfSizes },
		"--ovs-run-dir /run/x = /run/x":                           func(o options) any { return o.ovsRunDir },
		"--ovs-bridge x = x":                                      func(o options) any { return o.ovsBridge },
		"--ovs-datapath netdev = netdev":                          func(o options) any { return o.ovsDatapath },
		"--mode docker --plugin-name x = x":                       func(o options) any { return o.pluginName },
		"--mode docker --docker-socket-dir /x = /x":               func(o options) any { return o.dockerDir },
		"--mode docker --docker-endpoint none = none":             func(o options) any { return o.dockerEngine },
		"--mode docker --docker-scope global = global":            func(o options) any { return o.dockerScope },
		"--remount-proc-sys = true":                               func(o options) any { return o.remountSysctls },
		"--dns off = true":                                        func(o options) any { return configured(o).NoDNS },
		"--state-dir /x/s = /x/s":                                 func(o options) any { return configured(o).StateDir },
		"--cni-socket /x/c = /x/c":                                func(o options) any { return configured(o).Socket },
		"--rest-address 127.0.0.1:8 = 127.0.0.1:8":                func(o options) any { return configured(o).RESTAddress },
		"--debug-address 127.0.0.1:7 = 127.0.0.1:7":               func(o options) any { return configured(o).DebugAddress },
		"--debug-hooks = true":                                    func(o options) any { return configured(o).DebugHooks },
		"--containers-reach-control-plane = true":                 func(o options) any { return configured(o).ContainersReachControl },
		"--take-host = true":                                      func(o options) any { return configured(o).TakeHost },
		"--fwdmode routing = routing":                             func(o options) any { return configured(o).FwdMode },
		"--private-subnet 172.20.0.0/16 = 172.20.0.0/16":          func(o options) any { return configured(o).PvtSubnet },
		"--host h9 = h9":                                          func(o options) any { return configured(o).Host },
		"--log-level debug = DEBUG":                               func(o options) any { return o.log.Level },
		"--use-syslog = true":                                     func(o options) any { return o.log.Syslog },
		"--syslog-url tcp://10.0.0.9:601 = tcp://10.0.0.9:601":    func(o options) any { return o.log.SyslogURL },
		"--syslog-format rfc3164 = rfc3164":                       func(o options) any { return o.log.SyslogFormat },
	} {
		args, want, _ := strings.Cut(line, " = ")
		o, err := parse(args)
		if got := fmt.Sprint(get(o)); err != nil || got != want {
			t.Errorf("%s: %s, want %s; error %v", args, got, want, err)
		}
		if before, err := parse(""); err != nil || fmt.Sprint(get(before)) == want {
			t.Errorf("%s changes nothing (%v)", args, err)
		}
	}
}
