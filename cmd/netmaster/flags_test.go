package main

import (
	"fmt"
	"strings"
	"testing"
)

// Flags whose effects are shown by tests of other packages, or by options that are set
// directly, set these options.
func TestFlagSetsItsOption(t *testing.T) {
	for line, get := range map[string]func(options) any{
		"--restore /x --keep-tokens = true":                                       func(o options) any { return o.restoreConfig(nil).KeepTokens },
		"--restore /x --new-authorities = true":                                   func(o options) any { return o.restoreConfig(nil).NewAuthorities },
		"--evict-after 90m = 1h30m0s":                                             func(o options) any { return o.graceTime() },
		"--log-level debug = DEBUG":                                               func(o options) any { return o.log.Level },
		"--use-syslog = true":                                                     func(o options) any { return o.log.Syslog },
		"--syslog-url tcp://10.0.0.9:601 = tcp://10.0.0.9:601":                    func(o options) any { return o.log.SyslogURL },
		"--syslog-format rfc3164 = rfc3164":                                       func(o options) any { return o.log.SyslogFormat },
		"--kubeconfig x --pods-choose-tenant = true":                              func(o options) any { return choices(o).Tenant },
		"--kubeconfig x --pod-cidr 10.9.0.0/16 = [10.9.0.0/16]":                   func(o options) any { return o.podSubnets },
		"--kubeconfig x --service-cidr 10.96.0.0/12 = [10.96.0.0/12]":             func(o options) any { return o.services.config().Ranges },
		"--kubeconfig x --external-ip-ranges 10.8.0.0/16 = [10.8.0.0/16]":         func(o options) any { return o.services.config().External },
		"--kubeconfig x --load-balancer-pool 10.7.0.0/24 = [10.7.0.1-10.7.0.254]": func(o options) any { return fmt.Sprint(o.services.config().Pool) },
	} {
		args, want, _ := strings.Cut(line, " = ")
		o, err := parse(t, nil, append(strings.Fields(args), "--internal-address", "127.0.0.1:9999")...)
		if got := fmt.Sprint(get(o)); err != nil || got != want {
			t.Errorf("%s: %s, want %s; error %v", args, got, want, err)
		}
		if before, err := parse(t, nil, "--internal-address", "127.0.0.1:9999"); err != nil || fmt.Sprint(get(before)) == want {
			t.Errorf("%s changes nothing (%v)", args, err)
		}
	}
}
