//go:build integration

package slice

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// expectedWarnings are the warnings and errors that a cluster without a fault may log, with
// the reason.
var expectedWarnings = []struct{ pattern, why string }{
	{`"a flag has no effect".* flag=--(ovs|ebpf)-`, "the lab gives a host the flags of both data planes, since it may change"},
	{`"the REST API has no authentication`, "the cluster is not a secure one"},
	{`"the data directory has no store: a NEW CLUSTER begins`, "it is what somebody who lost a directory has to see"},
	{`"a host is away`, "its netplugin was stopped"},
	{`"etcd: (peer became inactive|failed to reach the peer URL|failed to get version)`, "a netmaster was stopped"},
	{`"etcd: (.*took too long|request stats)`, "the machine is busy"},
}

// TestCleanClusterLogsNoWarning: a cluster whose hosts join, that has containers come and go
// on every kind of network, whose daemons are restarted one by one as in an upgrade while
// containers run, and that stops, logs nothing of level WARN or ERROR. An operator who
// searches the logs for those finds faults alone.
func TestCleanClusterLogsNoWarning(t *testing.T) {
	shared(t)
	on(t, 2, both, func(t *testing.T, driver string) {
		for _, secure := range []bool{false, true} {
			name := "clean"
			if secure {
				name = "cleansec"
			}
			t.Run(name, func(t *testing.T) { cleanLogs(t, driver, name, secure) })
		}
	})
}

func cleanLogs(t *testing.T, driver, name string, secure bool) {
	t.Helper()
	c := up(t, driver, name, 2, func(cfg *testcluster.Config) {
		cfg.Embedded, cfg.Consul, cfg.Replicas, cfg.Secure = true, "", 3, secure
	})
	c.netctl("network create -e vxlan -s 10.3.1.0/24 -g 10.3.1.254 --subnetv6 fd00:31::/64 --gatewayv6 fd00:31::fe net",
		"network create -e vlan -p 60 -s 10.3.2.0/24 -g 10.3.2.254 phys",
		"network create -n infra -e vxlan -s 10.3.3.0/24 -g 10.3.3.254 inf",
		"policy create closed", "policy rule-add closed 1 -d in --action deny",
		"group create net web -p closed",
		"service create -s net -l app=web -p 80:80:TCP --ip 10.3.1.100 web")
	for _, upgraded := range []bool{false, true} {
		var all []testcluster.ContainerSpec
		for _, h := range c.Hosts() {
			for _, network := range []string{"default/net", "default/phys"} {
				s := spec("c-"+h.Name+"-"+network[len("default/"):], h.Name, network)
				s.Labels = map[string]string{"app": "web", "unique": s.Name}
				all = append(all, s)
			}
			s := spec("c-"+h.Name+"-web", h.Name, "default/net")
			s.Group = "web"
			s.Ports = []testcluster.PortMapping{{HostPort: 8080, ContainerPort: 80}}
			all = append(all, s)
		}
		c.add(all...)
		c.containersAnswer()
		if upgraded {
			c.restartOneByOne()
			c.containersAnswer()
		}
		for _, h := range c.Hosts() {
			if err := h.Status(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, s := range all {
			if err := c.DelContainer(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.netctl("service rm web", "group rm web", "policy rm closed", "network rm net", "network rm phys", "network rm inf")
	for _, h := range c.Hosts() {
		if err := h.Agent().Stop(patience); err != nil {
			t.Error(err)
		}
	}
	if err := c.Process("netmaster3").Stop(patience); err != nil { // the others keep a majority
		t.Error(err)
	}
	for name, p := range c.Processes() {
		if !strings.HasPrefix(name, "netmaster") && !strings.HasSuffix(name, "netplugin") {
			continue // Open vSwitch's own programs
		}
		log, err := os.ReadFile(p.Log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(log) {
			if unexpected(line) {
				t.Errorf("%s: %s", name, bytes.TrimSpace(line))
			}
		}
	}
}

// containersAnswer waits until the containers of the clean cluster reach each other.
func (c *cluster) containersAnswer() {
	c.t.Helper()
	c.until("containers to answer", func(ctx context.Context) error {
		var errs []error
		for _, to := range []netip.Addr{c.addr("c-h2-net", "4"), c.addr("c-h2-net", "6")} {
			if a := c.space("c-h1-net").Probe(ctx, testcluster.Target{Proto: "icmp", Addr: to}, patience); a.Verdict != testcluster.OK {
				errs = append(errs, errors.New(a.String()))
			}
		}
		return errors.Join(errs...)
	})
}

// restartOneByOne ends each daemon in order and starts it again, as an upgrade does: the
// netmasters first, then the hosts.
func (c *cluster) restartOneByOne() {
	c.t.Helper()
	for n := 1; n <= c.Config().Replicas; n++ {
		name := "netmaster"
		if n > 1 {
			name += strconv.Itoa(n)
		}
		if err := errors.Join(c.Process(name).Stop(patience), c.Masters.StartReplica(c.t.Context(), n)); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, h := range c.Hosts() {
		if err := errors.Join(h.Agent().Stop(patience), h.StartAgent(c.t.Context())); err != nil {
			c.t.Fatal(err)
		}
	}
}

var loud = regexp.MustCompile(`\blevel=(WARN|ERROR)\b`)

// unexpected reports whether a line of a log is a warning or an error that has no reason.
func unexpected(line []byte) bool {
	if !loud.Match(line) {
		return false
	}
	for _, e := range expectedWarnings {
		if ok, err := regexp.Match(e.pattern, line); err == nil && ok {
			return false
		}
	}
	return true
}
