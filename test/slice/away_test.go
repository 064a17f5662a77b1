//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// goesAndComesBack ends a host's netplugin, and looks whether status with its exit
// code, metrics and netmaster's log tell of it while the host's container s goes on
// talking; removes the host, which makes the other hosts forget it and its
// containers; and starts netplugin again, which puts all of it back.
func (c *cluster) goesAndComesBack(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	until := func(what string, check func(context.Context) error) {
		c.t.Helper()
		if err := testcluster.Until(ctx, what, check); err != nil {
			c.t.Fatal(err)
		}
	}
	status := func(code int, words ...string) {
		c.t.Helper()
		until(fmt.Sprintf("netctl status to end with code %d", code), func(ctx context.Context) error {
			out, err := c.Masters.Netctl(ctx, "status")
			got := 0
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				got = exit.ExitCode()
			}
			for _, w := range words {
				if got != code || !strings.Contains(out, w) {
					return fmt.Errorf("it ends with code %d, want %d and %q:\n%s", got, code, w, out)
				}
			}
			return nil
		})
	}
	metrics := func(known, alive int) {
		c.t.Helper()
		until("metrics of hosts", func(ctx context.Context) error {
			out, err := c.Master.Command(ctx, "curl", "-s", c.Masters.MasterURL()+"/metrics").CombinedOutput()
			for _, want := range []string{fmt.Sprintf("\ncontiv_hosts_known %d\n", known), fmt.Sprintf("\ncontiv_hosts_alive %d\n", alive)} {
				if err == nil && !strings.Contains(string(out), want) {
					err = fmt.Errorf("no %q", want)
				}
			}
			return err
		})
	}
	says := func(words string) {
		c.t.Helper()
		until("netmaster's log to tell", func(context.Context) error {
			text, err := os.ReadFile(c.Process("netmaster").Log)
			if err == nil && !strings.Contains(string(text), words) {
				err = fmt.Errorf("no %q", words)
			}
			return err
		})
	}
	h := c.host(name)
	status(0, "All is well.")
	metrics(2, 2)
	end := h.KillAgent
	if h.Driver() == testcluster.DriverOVS { // once netplugin ends in order: the others hear of that 10 s sooner
		end = func() error { return h.Agent().Stop(20 * time.Second) }
	}
	if err := end(); err != nil {
		c.t.Fatal(err)
	}
	status(7, "Not all is well:", "host "+name+" is away", "and it has 1 endpoint", "start netplugin there")
	metrics(2, 1)
	says(`a host is away: its netplugin sends no heartbeat; its containers keep communicating under the last policy" host=` + name)
	c.wants("c s tcp/80", testcluster.OK)
	c.wants("s c tcp/80", testcluster.OK)

	if out, err := c.Masters.Netctl(ctx, "host", "rm", name); err == nil || !strings.Contains(out, "has 1 endpoint") {
		c.t.Errorf("host rm of a host with an endpoint: %v, %s", err, out)
	}
	if out, err := c.Masters.Netctl(ctx, "host", "rm", "--force", name); err != nil {
		c.t.Fatal(err, out)
	}
	until("h1 to forget "+name, func(ctx context.Context) error {
		out, err := c.host("h1").Run(ctx, "curl", "-s", "http://127.0.0.1:9006/inspect/driver")
		for _, gone := range []string{h.Address.String(), c.addr("s", "4").String(), c.addr("s", "6").String()} {
			for line := range strings.SplitSeq(out, `","`) {
				if err == nil && strings.Contains(line+" ", gone+" ") {
					err = fmt.Errorf("it has %s", line)
				}
			}
		}
		return err
	})
	c.denied("of a host that was removed", "c s tcp/80", "s c tcp/80")
	status(0, "All is well.", "Hosts 1, endpoints 2;")
	metrics(1, 1)

	if err := h.StartAgent(ctx); err != nil {
		c.t.Fatal(err)
	}
	says(`a host is back" host=` + name)
	c.hasEndpoints("blue:net", 3)
	c.wants("c s tcp/80", testcluster.OK) // at the address that it had
	c.wants("s c tcp/80", testcluster.OK)
	c.wants("c s tcp/80 6", testcluster.OK)
	metrics(2, 2)
	status(0, "All is well.", "Hosts 2, endpoints 3;")
}
