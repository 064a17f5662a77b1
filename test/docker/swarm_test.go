//go:build integration

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	dockerlab "github.com/contiv/netplugin/v2/internal/testcluster/docker"
)

const managed = "contiv/netplugin:2.0"

// TestSwarmGetsNetworksOfTheLeader makes the managed plugin, enables it, and runs containers with it:
// first with the engine's own networks, then in a swarm of one node, whose
// networks the leading netmaster makes.
func TestSwarmGetsNetworksOfTheLeader(t *testing.T) {
	t.Parallel() // it mostly waits; its engine and its lab are its own
	name := fmt.Sprintf("w%d", os.Getpid())
	socket := filepath.Join(testcluster.BaseDir, name, "h1", "docker", "docker.sock")
	b := upWith(t, testcluster.Config{
		Name: name, BinDir: bin, Hosts: 1, Driver: testcluster.DriverEBPF,
		MasterArgs: []string{"--mode", "swarm-mode", "--name", managed, "--docker-endpoint", "unix://" + socket},
	}, dockerlab.Isolated)
	e := b.e[0]
	e.must(e.CreatePlugin(t.Context(), b.Lab, managed))
	e.must(e.SetPlugin(t.Context(), b.Lab, managed, nil))
	b.netctl("net create --subnet 10.31.1.0/24 --gateway 10.31.1.254 web", "net create --subnet 10.31.2.0/24 back",
		"policy create closed", "policy rule-add --direction in --action deny --protocol tcp --port 80 closed 1", "group create --policy closed web front")

	// Mode docker: the engine's own networks.
	e.setPlugin("CONTIV_NETPLUGIN_MODE=docker")
	e.must(e.EnablePlugin(t.Context(), managed))
	e.until("networks", time.Minute, func() error { return e.has("web", "local") })
	e.run("m1", "--net web")
	e.run("m2", "--net web")
	e.reaches("m1", "80", e.addr("m2", "web"), true)
	e.docker("rm -f m1 m2")
	b.nothingLeft()

	// The mode changes.
	e.must(e.DisablePlugin(t.Context(), managed))
	e.setPlugin("CONTIV_NETPLUGIN_MODE=swarm-mode")
	e.must(e.EnablePlugin(t.Context(), managed))
	for n := range strings.FieldsSeq(e.docker("network ls --filter driver=" + managed + " --format {{.Name}}")) {
		e.docker("network rm " + n)
	}
	e.docker("swarm init --advertise-addr " + e.host.Address.String() + " --data-path-port 7789")
	e.until("networks of the swarm, as the engine asks for the scope when a plugin is enabled", time.Minute, func() error { return e.has("web", "swarm") })
	if log := b.Process("netmaster").Tail(40) + e.Log(); strings.Contains(log, "restart the engine") {
		t.Errorf("the scope of networks counts as a mismatch:\n%s", log)
	}
	e.stop()
	e.start()
	e.until("networks of the swarm", 2*time.Minute, func() error { return e.has("web", "swarm") })

	e.docker("service create -d --stop-grace-period 1s --name s1 --network web --replicas 2 --endpoint-mode dnsrr --no-resolve-image bb httpd -f -h /www")
	e.docker("service create -d --stop-grace-period 1s --name s2 --network front --no-resolve-image bb httpd -f -h /www") // with a virtual IP
	e.until("the services run", 2*time.Minute, func() error {
		if got := e.docker("service ls --format {{.Name}}={{.Replicas}}"); got != "s1=2/2\ns2=1/1" {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
	var tasks []string
	for _, s := range []string{"s1", "s2"} {
		tasks = append(tasks, strings.Fields(e.docker("ps -q --filter label=com.docker.swarm.service.name="+s))...)
	}
	e.reaches(tasks[0], "80", e.addr(tasks[1], "web"), true)
	front := e.addr(tasks[2], "front")
	e.reaches(tasks[0], "ping", front, true)
	e.reaches(tasks[0], "80", front, false)  // the policy of the group
	e.run("c1", "--net web --ip 10.31.1.99") // networks are attachable
	e.reaches("c1", "80", e.addr(tasks[1], "web"), true)
	e.refused("run --rm --net web --ip 10.31.1.99 bb ip a", "10.31.1.99")
	e.docker("kill " + tasks[0])
	e.until("the swarm replaces a task", time.Minute, func() error {
		if got := e.docker("service ps --format {{.CurrentState}} --filter desired-state=running s1"); strings.Count(got, "Running") != 2 {
			return fmt.Errorf("tasks are %s", got)
		}
		return nil
	})

	// A Contiv network comes and goes with the swarm's.
	b.netctl("net create --subnet 10.31.3.0/24 more")
	e.until("another network", time.Minute, func() error { return e.has("more", "swarm") })
	b.netctl("net rm more")
	e.until("it goes", time.Minute, func() error {
		if e.has("more", "swarm") == nil {
			return errors.New("it is still there")
		}
		return nil
	})
	e.docker("service rm s1 s2")
	e.docker("rm -f c1")
	e.until("tasks are gone", time.Minute, func() error {
		if got := e.docker("ps -aq"); got != "" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
	b.nothingLeft()
	e.docker("swarm leave -f")
}

func (e *engine) setPlugin(setting string) {
	e.t.Helper()
	e.docker("plugin set " + managed + " " + setting)
}

// has fails unless the engine has a network with the scope.
func (e *engine) has(network, scope string) error {
	got, err := e.Docker(context.Background(), "network", "ls", "--filter", "driver="+managed, "--format", "{{.Name}} {{.Scope}}")
	if err == nil && !strings.Contains("\n"+got+"\n", "\n"+network+" "+scope+"\n") {
		err = fmt.Errorf("networks are %q", got)
	}
	return err
}
