package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Sentences about flags that do nothing, as help texts have them.
const (
	idleMode    = "kubernetes and mesos have no effect: agents report endpoints, and --kubeconfig works in any mode"
	idleNetMode = "has no effect: no orchestrator leaves the choice to netmaster in this version"
	idleName    = "has no effect but with --mode swarm-mode: it names the Docker plugin that a swarm's networks use"
)

// idleInfra says which types of infrastructure do nothing.
func idleInfra() string {
	var texts []string
	for _, n := range model.NoEffects("globals") {
		texts = append(texts, n.Text)
	}
	return strings.Join(texts, "; ")
}

// warnIdle says at start which of the flags given do nothing.
func (o *options) warnIdle(log *slog.Logger) {
	warn := func(flag, value, text string) {
		log.Warn("a flag has no effect", "flag", "--"+flag, "value", value, "why", text)
	}
	daemon.WarnFlags(o.flags, os.Environ(), log)
	if o.mode == modeKubernetes || o.mode == modeMesos {
		warn("mode", o.mode, idleMode)
	}
	if o.netMode != "" {
		warn("netmode", o.netMode, idleNetMode)
	}
	if o.name != "netplugin" && o.mode != modeSwarm {
		warn("name", o.name, idleName)
	}
	for _, n := range model.WithoutEffect(o.initial()) {
		warn("infra", n.Value, n.Text)
	}
}
