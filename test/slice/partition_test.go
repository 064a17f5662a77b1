//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// partitioned is when TCP, which doubles its timeout, has just sent again (after 12.6 s)
// and would do so next 25.4 s after the partition began.
const partitioned = 14 * time.Second

// TestNetmasterAnswersAfterAPartition: of three netmasters that keep the store, one is cut
// off without a word, first a follower, then the leader. It answers nothing meanwhile, and
// again when the network is back; how soon is in the log, with -full of a long partition.
func TestNetmasterAnswersAfterAPartition(t *testing.T) {
	need(t, "/usr/bin/curl")
	on(t, 1, []string{testcluster.DriverEBPF}, func(t *testing.T, driver string) {
		c := up(t, driver, "part", 0, func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul = true, "" })
		master, err := netip.ParseAddrPort(strings.TrimPrefix(c.Masters.MasterURL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		first := &masterOnNetwork{c: c, ns: c.Master, port: "masterc", url: c.Masters.MasterURL()}
		c.joinedMaster("m2", 21, master.Addr())
		last := c.joinedMaster("m3", 22, master.Addr())
		last.partition()
		first.partition() // which leads
	})
}

// masterOnNetwork is a netmaster with a member of the store, on a machine of its own.
type masterOnNetwork struct {
	c    *cluster
	ns   *testcluster.Namespace
	port string // its link in the fabric
	url  string
}

// joinedMaster starts a netmaster that joins the first one's cluster.
func (c *cluster) joinedMaster(name string, n int, first netip.Addr) *masterOnNetwork {
	c.t.Helper()
	m := &masterOnNetwork{c: c, port: fmt.Sprint("joined", n)}
	var err error
	if m.ns, err = c.AddNamespace(name); err != nil {
		c.t.Fatal(err)
	}
	at, err := c.Network.JoinControl(m.ns, n)
	if err != nil {
		c.t.Fatal(err)
	}
	token, err := c.Masters.Netctl(c.t.Context(), "cluster", "token", "-q")
	if err != nil {
		c.t.Fatal(err, token)
	}
	addr := netip.AddrPortFrom(at, 9999).String()
	m.url = "http://" + addr
	cmd := m.ns.Command(c.t.Context(), filepath.Join(c.Config().BinDir, "netmaster"),
		"--external-address", addr, "--internal-address", addr, "--data-dir", filepath.Join(c.t.TempDir(), name), "--member-name", name,
		"--join", netip.AddrPortFrom(first, 9005).String(), "--token", strings.TrimSpace(token))
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Wait() }) // it was killed with the test's context
	c.until(name+" to serve", m.serves)
	return m
}

// serves asks for what needs most of the members.
func (m *masterOnNetwork) serves(ctx context.Context) error {
	_, err := m.ns.Command(ctx, "curl", "-sf", "--max-time", "1", "-o", "/dev/null", m.url+"/readyz").CombinedOutput()
	return err
}

// partition drops what is sent from and to the netmaster for a while.
func (m *masterOnNetwork) partition() {
	t := m.c.t
	t.Helper()
	link := func(args ...string) {
		t.Helper()
		if out, err := m.c.Fabric.Command(t.Context(), "ip", append([]string{"link", "set", m.port}, args...)...).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	link("nomaster")
	cut := time.Now()
	m.c.until("the netmaster to be alone", func(ctx context.Context) error {
		if m.serves(ctx) == nil {
			return errors.New("it answers")
		}
		if conformance.Full() && time.Since(cut) < partitioned {
			return errors.New("not for long enough")
		}
		return nil
	})
	link("master", "control")
	healed := time.Now()
	m.c.until("the netmaster to answer", m.serves)
	t.Logf("%s answers %s after the network is back", m.url, time.Since(healed).Round(time.Millisecond))
}
