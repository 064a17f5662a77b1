//go:build integration

package matrix

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
)

// managedPlugin is what the engines of a swarm call the managed plugin.
const managedPlugin = "contiv/netplugin:2.0"

// swarmFlags are netmaster's, which makes the networks at the manager, h1's engine.
func swarmFlags(name string) []string {
	return []string{"--mode", "swarm-mode", "--name", managedPlugin, "--docker-endpoint", "unix://" + filepath.Join(testcluster.BaseDir, name, "h1", "docker", "docker.sock")}
}

// swarms are engines that are one swarm. Each workload is a service of one task.
type swarms struct {
	engines
	nodes map[string]string // of hosts
}

// named is false: the name of a task's container has its number and the task's.
func (*swarms) named() bool { return false }

func (s *swarms) manager() *docker.Engine { return s.of["h1"] }

func (s *swarms) prepare(ctx context.Context) error {
	s.of, s.nodes = map[string]*docker.Engine{}, map[string]string{}
	var workers []*docker.Engine
	for _, h := range s.Hosts() {
		e, err := docker.New(h, docker.Isolated...)
		if err != nil {
			return err
		}
		s.of[h.Name] = e
		if err := e.Start(ctx); err != nil {
			return err
		}
		if err := e.Import(ctx); err != nil {
			return err
		}
		if err := e.CreatePlugin(ctx, s.Lab, managedPlugin); err != nil {
			return err
		}
		if err := s.enable(ctx, h); err != nil {
			return err
		}
		if h.Name != "h1" {
			workers = append(workers, e)
		}
	}
	if err := docker.JoinSwarm(ctx, s.manager(), workers...); err != nil {
		return err
	}
	for name, e := range s.of {
		var err error
		if s.nodes[name], err = e.Docker(ctx, "info", "-f", "{{.Swarm.NodeID}}"); err != nil {
			return err
		}
	}
	return nil
}

func (s *swarms) enable(ctx context.Context, h *testcluster.Host) error {
	flags, err := h.JoinFlags(ctx)
	if err != nil {
		return err
	}
	if err := s.of[h.Name].SetPlugin(ctx, s.Lab, managedPlugin, flags, "CONTIV_NETPLUGIN_MODE=swarm-mode"); err != nil {
		return err
	}
	return s.of[h.Name].EnablePlugin(ctx, managedPlugin)
}

func (s *swarms) restart(ctx context.Context, h *testcluster.Host) error {
	if err := s.of[h.Name].DisablePlugin(ctx, managedPlugin); err != nil {
		return err
	}
	return s.enable(ctx, h)
}

func (s *swarms) attach(ctx context.Context, w *workload) error {
	network := strings.ReplaceAll(s.networkOf(w), "/", "_")
	if err := hasNetwork(ctx, s.manager(), network); err != nil {
		return err
	}
	args := []string{
		"service", "create", "-d", "--name", w.name, "--network", network, "--constraint", "node.id==" + s.nodes[w.host.Name],
		"--endpoint-mode", "dnsrr", "--no-resolve-image", "--stop-grace-period", "1s",
	}
	for k, v := range w.labels {
		args = append(args, "--container-label", k+"="+v)
	}
	if w.port != 0 {
		args = append(args, "--publish", fmt.Sprintf("mode=host,published=%d,target=80", w.port))
	}
	if _, err := s.manager().Docker(ctx, append(args, docker.Image, "sleep", "100000")...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, "the task of "+w.name, func(ctx context.Context) error {
		ids, err := s.tasks(ctx, w)
		if err != nil {
			return err
		}
		if w.id = ids; len(strings.Fields(ids)) != 1 {
			told, err := s.manager().Docker(ctx, "service", "ps", "--no-trunc", "--format", "{{.CurrentState}} {{.Error}}", w.name)
			return errors.Join(fmt.Errorf("its containers are %q: %s", ids, told), err)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("%w; end of the manager's log:\n%s", err, s.manager().Log())
	}
	return s.started(ctx, w)
}

// tasks are the containers of a workload's service on its host that run.
func (s *swarms) tasks(ctx context.Context, w *workload) (string, error) {
	return s.of[w.host.Name].Docker(ctx, "ps", "-q", "--no-trunc", "--filter", "label=com.docker.swarm.service.name="+w.name)
}

func (s *swarms) detach(ctx context.Context, w *workload) error {
	w.ns.Close()
	if _, err := s.manager().Docker(ctx, "service", "rm", w.name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testcluster.Until(ctx, "the task of "+w.name+" to end", func(ctx context.Context) error {
		ids, err := s.tasks(ctx, w)
		if err == nil && ids != "" {
			err = fmt.Errorf("there is %s", ids)
		}
		return err
	})
}
