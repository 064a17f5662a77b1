//go:build integration

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const composeCLI = "/usr/bin/docker-compose"

// compose runs docker-compose, with the host's engine.
func (e *engine) compose(file, project string, args ...string) {
	e.t.Helper()
	run := func() ([]byte, error) {
		c := exec.CommandContext(e.t.Context(), composeCLI, append([]string{"-f", file, "-p", project}, args...)...)
		c.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.Socket(), "COMPOSE_PARALLEL_LIMIT=32", "DOCKER_CONFIG="+filepath.Dir(e.Socket()))
		return c.CombinedOutput()
	}
	began := time.Now()
	out, err := run()
	if err != nil && strings.Contains(string(out), "timed out") && e.revived(began) {
		out, err = run()
	}
	if err != nil {
		e.t.Fatalf("docker-compose %s on %s: %v: %s", strings.Join(args, " "), e.host.Name, err, out)
	}
}

// build makes an image that stands for one that this machine does not have.
func (e *engine) build(tag, dockerfile string) {
	e.t.Helper()
	dir := e.t.TempDir()
	e.must(os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM bb\n"+dockerfile), 0o600))
	e.must(os.WriteFile(filepath.Join(dir, "python"), []byte("#!/bin/sh\nexec httpd -f -h /www -p $3\n"), 0o700)) //nolint:gosec // a program
	_, err := e.try("build", "-q", "-t", tag, dir)
	e.must(err)
}

// example: examples/compose works as its page says, on two hosts. Small images stand in for
// the page's.
func example(b *bed) {
	one, two := b.e[0], b.e[1]
	script, err := filepath.Abs("../../examples/compose/policy.sh")
	if err != nil {
		b.t.Fatal(err)
	}
	for range 2 {
		c := b.Master.Command(b.t.Context(), "sh", script)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NETMASTER="+b.Masters.MasterURL())
		if out, err := c.CombinedOutput(); err != nil {
			b.t.Fatalf("%v: %s", err, out)
		}
	}
	names := []string{"net1", "lone", "web", "db", "net1/blue", "shop", "shop-web", "shop-app", "shop-db"}
	for _, e := range b.e {
		e.networksAre(names...)
	}
	one.build("nginx:alpine", "CMD httpd -f -h /www")
	one.build("python:3-alpine", "COPY python /bin/python\n")
	one.build("postgres:alpine", "CMD httpd -f -h /www -p 5432")
	file := "../../examples/compose/docker-compose.yml"
	one.compose(file, "shop", "up", "-d")
	two.docker("run -d --name app2 --net shop-app bb httpd -f -h /www -p 8080")

	app, db := one.addr("shop_app_1", "shop-app"), one.addr("shop_db_1", "shop-db")
	app2 := two.addr("app2", "shop-app")
	one.reaches("shop_web_1", "8080", app, true)
	one.reaches("shop_web_1", "8080", app2, true)
	one.reaches("shop_app_1", "5432", db, true)
	two.reaches("app2", "5432", db, true)
	one.reaches("shop_web_1", "5432", db, false)
	one.reaches("shop_db_1", "8080", app, false)
	one.until("the page is published", 5*time.Second, func() error { return b.wget("")(one.host.Address.String() + ":8080") })
	one.until("the group's name has both members", 10*time.Second, func() error {
		out, err := one.try("exec", "shop_web_1", "nslookup", "-type=a", "shop-app", "127.0.0.11")
		if err == nil && (!strings.Contains(out, app) || !strings.Contains(out, app2)) {
			err = errors.New(out)
		}
		return err
	})
	one.compose(file, "shop", "restart", "-t", "0")
	one.reaches("shop_web_1", "8080", one.addr("shop_app_1", "shop-app"), true)
	one.compose(file, "shop", "down", "-t", "0")
	two.docker("rm -f app2")
	b.nothingLeft()
	b.netctl("policy rule-rm shop-app web", "policy rule-rm shop-db app", "group rm shop-web", "group rm shop-app", "group rm shop-db", "net rm shop", "policy rm shop-app", "policy rm shop-db")
}

// compose starts 20 containers that depend on each other with Compose, and finds
// them by name.
func compose(b *bed) {
	var f strings.Builder
	f.WriteString("version: '3'\nservices:\n")
	for i := range 20 {
		fmt.Fprintf(&f, "  s%d:\n    image: bb\n    command: httpd -f -h /www\n    container_name: cs%[1]d\n    networks: [net1]\n    stop_grace_period: 0s\n", i)
		if i > 0 {
			fmt.Fprintf(&f, "    depends_on: [s%d]\n", (i-1)/4)
		}
	}
	f.WriteString("networks:\n  net1: {external: true}\n")
	file := filepath.Join(b.t.TempDir(), "compose.yml")
	e := b.e[0]
	e.must(os.WriteFile(file, []byte(f.String()), 0o600))
	start := time.Now()
	e.compose(file, "many", "up", "-d")
	b.t.Logf("Compose starts 20 containers in %v", time.Since(start).Round(time.Millisecond))
	for _, i := range []int{0, 7, 19} {
		e.reaches("cs3", "80", e.addr(fmt.Sprintf("cs%d", i), "net1"), true)
	}
	e.until("all have names", 15*time.Second, func() error {
		for i := range 20 {
			name := fmt.Sprintf("cs%d", i)
			out, err := e.try("exec", "cs5", "nslookup", "-type=a", name, "127.0.0.11")
			if err == nil && !strings.Contains(out, e.addr(name, "net1")) {
				err = errors.New(out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	e.compose(file, "many", "down", "-t", "0")
	b.nothingLeft()
}
