//go:build integration

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// composeCLIs are Debian's Compose 1.29 and, where $CONTIV_COMPOSE names it, a Compose v2
// (tools/compose).
func composeCLIs() []string {
	clis := []string{composeCLI}
	if v2 := os.Getenv("CONTIV_COMPOSE"); v2 != "" {
		clis = append(clis, v2)
	}
	return clis
}

// composeFiles: Compose files as people write them, unchanged but for the driver, come up,
// find each other by name, are kept apart by their networks, publish, scale and go.
func composeFiles(b *bed) {
	e := b.e[0]
	names := strings.Fields(e.docker("network ls --filter driver=netplugin --format {{.Name}}"))
	for _, cli := range composeCLIs() {
		project := strings.ReplaceAll(filepath.Base(cli), "-", "") // my_app
		compose := func(file string, args ...string) {
			e.t.Helper()
			argv := append([]string{"-f", filepath.Join("testdata", file), "-p", project}, args...)
			c := exec.CommandContext(e.t.Context(), cli, argv...)
			c.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.Socket(), "DOCKER_CONFIG="+filepath.Dir(e.Socket()))
			if out, err := c.CombinedOutput(); err != nil {
				e.t.Fatalf("%s %s: %v: %s", cli, strings.Join(args, " "), err, out)
			}
		}
		// addr is the address of a service's n-th container on a network.
		addr := func(service, n, network string) (container, address string) {
			e.t.Helper()
			out := e.docker("ps -q --filter label=com.docker.compose.project=" + project + " --filter label=com.docker.compose.service=" + service +
				" --filter label=com.docker.compose.container-number=" + n)
			return strings.TrimSpace(out), e.addr(strings.TrimSpace(out), project+"_"+network)
		}
		compose("shop.yml", "up", "-d")
		web, _ := addr("web", "1", "front_end")
		api, front := addr("api", "1", "front_end")
		_, db := addr("db", "1", "back_end")
		e.reaches(web, "80", front, true)
		e.reaches(api, "5432", db, true)
		e.reaches(web, "5432", db, false)
		for name, from := range map[string]string{"api": web, "database": api} {
			e.until("the name "+name, 15*time.Second, func() error {
				out, err := e.try("exec", from, "nslookup", "-type=a", name, "127.0.0.11")
				if err == nil && !strings.Contains(out, "Address") {
					err = errors.New(out)
				}
				return err
			})
		}
		e.until("the page is published", 10*time.Second, func() error { return b.wget("")(e.host.Address.String() + ":8088") })
		compose("shop.yml", "down", "-t", "0")

		compose("workers.yml", "up", "-d", "--scale", "worker=3")
		queue, _ := addr("queue", "1", "default")
		for _, n := range []string{"1", "3"} {
			_, worker := addr("worker", n, "default")
			e.reaches(queue, "80", worker, true)
		}
		compose("workers.yml", "up", "-d", "--scale", "worker=1")
		compose("workers.yml", "down", "-t", "0")

		compose("existing.yml", "up", "-d")
		if _, a := addr("app", "1", "lone"); !strings.HasPrefix(a, "10.21.2.") {
			b.t.Errorf("app has address %q", a)
		}
		compose("existing.yml", "down", "-t", "0")
		e.networksAre(names...)
	}
	b.nothingLeft()
}

// TestDockerOnSecureCluster: a host's certificate is enough to use networks, and a tenant
// administrator's token to create them; without it the error tells Docker's user what to
// do.
func TestDockerOnSecureCluster(t *testing.T) {
	t.Parallel()
	b := upSecure(t)
	one, two := b.e[0], b.e[1]
	one.refused("network create -d netplugin --subnet 10.21.9.0/24 mine", "--docker-token-file")
	one.refused("network create -d netplugin --subnet 10.21.9.0/24 -o network=mine mine", "--docker-token-file")
	one.run("w1", "--net net1")
	two.run("w2", "--net net1")
	one.reaches("w1", "80", two.addr("w2", "net1"), true)
	one.docker("rm -f w1")
	two.docker("rm -f w2")

	token, err := b.Masters.Netctl(t.Context(), "token", "create", "-q", "docker", "--role", "tenant-admin", "--tenants", "default")
	if err != nil {
		t.Fatal(err, token)
	}
	file := filepath.Join(t.TempDir(), "token")
	one.must(os.WriteFile(file, []byte(token), 0o600))
	one.must(one.host.RestartAgent(t.Context(), append(one.env(), "CONTIV_NETPLUGIN_DOCKER_TOKEN_FILE="+file)...))
	one.refused("network create -d netplugin --subnet 10.21.9.0/24 -o tenant=blue -o network=mine mine", "default")
	one.refused("network create -d netplugin --subnet 10.21.9.0/24 -o tenant=nosuch mine", "nosuch")
	b.sub("Compose", composeFiles)
}

// upSecure builds a secure lab with an engine on each host.
func upSecure(t *testing.T) *bed {
	t.Helper()
	b := upWith(t, testcluster.Config{Name: fmt.Sprint("s", os.Getpid()), BinDir: bin, Hosts: 2, Driver: testcluster.DriverEBPF, Embedded: true, Secure: true}, nil)
	b.netctl("net create --subnet 10.21.1.0/24 --gateway 10.21.1.254 net1", "net create --subnet 10.21.2.0/28 lone", "tenant create blue")
	for _, e := range b.e {
		e.networksAre("net1", "lone")
	}
	return b
}
