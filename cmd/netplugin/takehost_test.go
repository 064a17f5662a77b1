package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// A machine that is another one than the host of its name is refused while that has
// endpoints. With --take-host it takes the name, and the endpoints are released.
func TestTakeHostReleasesThePreviousHost(t *testing.T) {
	c := newCluster(t)
	c.startPlugin()
	c.plugin.stop()
	c.must("POST", "/plugin/createEndpoint", api.CreateEndpointRequest{
		TenantName: "blue", NetworkName: "net1", EndpointID: "cni:n-host1:lost:eth0", ConfigEP: api.ConfigEP{Host: "n-host1", Container: "lost"},
	})
	newcomer := func(more ...string) *process {
		return c.spawn("netplugin", nil, append([]string{
			"--driver", "fake", "--host", "n-host1", "--ctrl-ip", "127.0.0.2", "--state-dir", filepath.Join(c.dir, "other"),
			"--cni-socket", filepath.Join(c.dir, "other.sock"), "--rest-address", "none",
		}, more...)...)
	}
	endpoints := func() int {
		n, err := c.client.Networks().Inspect(t.Context(), "blue:net1")
		if err != nil {
			t.Fatal(err)
		}
		return n.Oper.NumEndpoints
	}
	refused := newcomer()
	select {
	case <-refused.done:
	case <-time.After(time.Minute):
		t.Fatal("without --take-host it still runs")
	}
	if code := refused.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(refused.log.String(), "--take-host") || endpoints() != 1 {
		t.Fatalf("without --take-host: exit code %d, %d endpoints", code, endpoints())
	}
	newcomer("--take-host")
	c.eventually("the former host's endpoint is released", func() error {
		if n := endpoints(); n != 0 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
}
