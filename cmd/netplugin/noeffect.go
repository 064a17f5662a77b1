package main

import (
	"log/slog"
	"os"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// idleMode is about modes that do nothing, as the help text has it.
const idleMode = "kubernetes, mesos and test do no more than none: CNI, and the calls of 1.x's plugin for Mesos, are served in every mode"

// onlyWith are flags that do nothing unless another choice is made.
var onlyWith = []struct {
	flag, when string // the choice, in words
	holds      func(options) bool
}{
	{"plugin-name", "--mode docker or swarm-mode", options.docker},
	{"docker-token-file", "--mode docker or swarm-mode", options.docker},
	{"docker-socket-dir", "--mode docker or swarm-mode", options.docker},
	{"docker-endpoint", "--mode docker or swarm-mode", options.docker},
	{"docker-scope", "--mode docker or swarm-mode", options.docker},
	{"vlan-uplinks", "a driver that forwards", options.forwards},
	{"dns-upstream", "--dns on", func(o options) bool { return o.dns == dnsOn }},
}

// warnIdle says at start which of the flags given do nothing on this host; the
// driver is chosen by then.
func (o options) warnIdle(fs *flags.Set, log *slog.Logger) {
	daemon.WarnFlags(fs, os.Environ(), log)
	if o.mode != modeNone && !o.docker() {
		log.Warn("a flag has no effect", "flag", "--mode", "value", o.mode, "why", idleMode)
	}
	for _, f := range onlyWith {
		if !f.holds(o) {
			o.warn(fs, log, f.flag, f.when)
		}
	}
	for _, p := range dataPlanes {
		for _, flag := range p.ownFlags() {
			if p.name != o.driver {
				o.warn(fs, log, flag, "driver "+p.name)
			}
		}
	}
}

// warnUnsupported says which of the flags given do nothing with a driver that can
// do no more than this.
func (o options) warnUnsupported(fs *flags.Set, can driver.Capabilities, log *slog.Logger) {
	if !can.Egress {
		for _, flag := range []string{"ip-forward", "containers-reach-control-plane", "dns-upstream"} {
			o.warn(fs, log, flag, "a driver with egress")
		}
	}
	if !can.Log && !can.Audit {
		o.warn(fs, log, "flow-log", "a driver that tells of rules with log, or of audited policies")
	}
}

func (o options) warn(fs *flags.Set, log *slog.Logger, flag, when string) {
	if how := fs.Given(flag); how != "" {
		log.Warn("a flag has no effect", "flag", how, "why", "it is for "+when, "mode", o.mode, "driver", o.driver)
	}
}
