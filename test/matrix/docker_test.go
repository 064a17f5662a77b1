//go:build integration

package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
)

// engines are a Docker Engine on each host.
type engines struct {
	*bed
	of      map[string]*docker.Engine
	compose bool // each container is a project of Compose's
}

func (*engines) publishes() bool { return true }
func (*engines) named() bool     { return true }

func (e *engines) prepare(ctx context.Context) error {
	e.of = map[string]*docker.Engine{}
	for _, h := range e.Hosts() {
		engine, err := docker.New(h)
		if err != nil {
			return err
		}
		e.of[h.Name] = engine
		if err := errors.Join(e.restart(ctx, h), engine.Start(ctx)); err != nil {
			return err
		}
		if err := engine.Import(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *engines) close() (err error) {
	for _, engine := range e.of {
		err = errors.Join(err, engine.Close(context.Background()))
	}
	return err
}

func (e *engines) restart(ctx context.Context, h *testcluster.Host) error {
	return h.RestartAgent(ctx, e.of[h.Name].Env()...)
}

func (e *engines) attach(ctx context.Context, w *workload) error {
	engine, network := e.of[w.host.Name], e.networkOf(w)
	if err := hasNetwork(ctx, engine, network); err != nil {
		return err
	}
	start := e.start
	if e.compose {
		start = e.up
	}
	if err := start(ctx, w, network); err != nil {
		return err
	}
	w.id = w.name
	return e.started(ctx, w)
}

// networkOf is what Docker calls the network of a workload's group.
func (e *engines) networkOf(w *workload) string {
	name := network
	if w.group != "" {
		name = w.group
	}
	if e.tenant != defaultTenant {
		name += "/" + e.tenant
	}
	return name
}

// hasNetwork waits until an engine has a network.
func hasNetwork(ctx context.Context, e *docker.Engine, network string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testcluster.Until(ctx, "the engine to have network "+network, func(ctx context.Context) error {
		_, err := e.Docker(ctx, "network", "inspect", network)
		return err
	})
}

// started fills in the namespace and addresses of a workload whose container runs.
func (e *engines) started(ctx context.Context, w *workload) error {
	engine := e.of[w.host.Name]
	out, err := engine.Docker(ctx, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}", w.id)
	if err != nil {
		return err
	}
	if err := w.hasAddrs(out); err != nil {
		return err
	}
	w.ns, err = engine.Space(ctx, w.id)
	return err
}

func (e *engines) start(ctx context.Context, w *workload, network string) error {
	args := []string{"run", "-d", "--name", w.name, "--network", network}
	for k, v := range w.labels {
		args = append(args, "--label", k+"="+v)
	}
	if w.port != 0 {
		args = append(args, "-p", fmt.Sprint(w.port, ":80"))
	}
	if out, err := e.of[w.host.Name].Docker(ctx, append(args, "bb", "sleep", "100000")...); err != nil {
		return fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// up starts a workload's project, of one service on a network that is there.
func (e *engines) up(ctx context.Context, w *workload, network string) error {
	service := map[string]any{"image": "bb", "command": "sleep 100000", "container_name": w.name, "networks": []string{"n"}, "labels": w.labels, "stop_grace_period": "0s"}
	if w.port != 0 {
		service["ports"] = []string{fmt.Sprint(w.port, ":80")}
	}
	file, err := json.Marshal(map[string]any{
		"version": "3.7", "services": map[string]any{w.name: service},
		"networks": map[string]any{"n": map[string]any{"external": true, "name": network}},
	})
	if err != nil {
		return err
	}
	return e.project(ctx, w, file, "up", "-d")
}

// project runs Compose for a workload's project, whose file it keeps.
func (e *engines) project(ctx context.Context, w *workload, file []byte, args ...string) error {
	engine := e.of[w.host.Name]
	path := filepath.Join(w.host.Dir, w.name+".json")
	if file != nil {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			return err
		}
	}
	c := exec.CommandContext(ctx, composeCLI, append([]string{"-f", path, "-p", w.name}, args...)...)
	c.Env = append(os.Environ(), "DOCKER_HOST=unix://"+engine.Socket(), "DOCKER_CONFIG="+filepath.Dir(engine.Socket()))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("docker-compose %s of %s: %w: %s", strings.Join(args, " "), w.name, err, out)
	}
	return nil
}

// composeCLI is Debian's Compose 1.29.
const composeCLI = "/usr/bin/docker-compose"

func (e *engines) detach(ctx context.Context, w *workload) error {
	w.ns.Close()
	if e.compose {
		return e.project(ctx, w, nil, "down")
	}
	out, err := e.of[w.host.Name].Docker(ctx, "rm", "-f", w.name)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}
