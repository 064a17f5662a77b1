package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The scopes of a driver's networks: local = each engine has its own, global = a
// swarm's engines share them.
const (
	scopeLocal  = "local"
	scopeGlobal = "global"
)

// scopeFile holds the scope that the engine was last told: an engine asks once, when
// it first uses the plugin, and keeps the answer until it ends.
type scopeFile string

func (f scopeFile) read() (string, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// capabilities answers the engine's question for the scope.
func (l *Listening) capabilities(context.Context, empty) (driverCapabilities, error) {
	scope := l.scope()
	old, err := l.reported.read()
	if err == nil && old != scope {
		err = os.MkdirAll(filepath.Dir(string(l.reported)), 0o700) // New has not made it yet
	}
	if err == nil && old != scope {
		err = durable.WriteFile(string(l.reported), []byte(scope+"\n"))
	}
	if err != nil {
		return driverCapabilities{}, fmt.Errorf("save the scope reported to Docker: %w", err)
	}
	return driverCapabilities{Scope: scope, ConnectivityScope: scopeGlobal}, nil
}

// checkScope fails when the engine still uses another scope than this plugin now has.
func (p *Plugin) checkScope() error {
	told, err := p.socket.reported.read()
	if err != nil {
		return fmt.Errorf("read the scope reported to Docker: %w", err)
	}
	if told == "" || told == p.socket.scope() {
		return nil
	}
	return model.Errorf(model.ErrConflict, "the engine keeps the scope from its first use of the plugin: its networks are %s, but --docker-scope is %s now; "+
		"remove the plugin's networks and restart the engine, or give --docker-scope %[1]s again", told, p.socket.scope())
}

// allocateNetwork answers a swarm's manager. Networks are allocated by
// netmaster: the options go to the workers as they are.
func (p *Plugin) allocateNetwork(_ context.Context, r allocateNetworkRequest) (allocateNetworkResponse, error) {
	if err := checkOptions("-o", r.Options, networkOptions); err != nil {
		return allocateNetworkResponse{}, err
	}
	_, ok, err := parseRef(r.Options)
	if err == nil && !ok {
		err = model.InvalidField("option network", "",
			"must name the Contiv network: in a swarm netmaster makes the networks; by hand, docker network create -o network=NAME (and -o tenant=TENANT, -o group=GROUP)")
	}
	return allocateNetworkResponse{Options: r.Options}, err
}
