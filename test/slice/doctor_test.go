//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// strayDevice is named as those of containers are.
const strayDevice = "cvstraystraystr"

// TestDoctorNamesAndRepairsDamage: damage to a cluster's store and to a host's data plane, devices and
// containers is listed by name. What is reported as repaired is repaired, and nothing else
// is lost.
func TestDoctorNamesAndRepairsDamage(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, doctor)
}

// diagnose asks the doctor.
func (c *cluster) diagnose(flags ...string) (d api.Diagnosis, err error) {
	out, failed := c.Masters.Netctl(c.t.Context(), append([]string{"doctor", "--json"}, flags...)...)
	begin := strings.IndexByte(out, '{')
	if begin < 0 {
		return d, fmt.Errorf("netctl doctor: %w: %s", failed, out)
	}
	return d, json.NewDecoder(strings.NewReader(out[begin:])).Decode(&d)
}

// ofMachine reports whether a finding is about what this machine has little of.
func ofMachine(f api.Finding) bool {
	return f.Check == api.CheckDisks && !strings.Contains(f.Text, smallDisk)
}

// smallDisk is in the path of a disk that a test fills.
const smallDisk = "contiv-small-disk"

// withSmallDisk mounts a file system of 40 MiB until the test ends.
func withSmallDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), smallDisk)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// waitFindings waits until the doctor tells of all of these, each by parts of one finding, and
// returns what it told of them.
func (c *cluster) waitFindings(want map[string][]string) (found map[string]api.Finding) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	found = map[string]api.Finding{}
	if err := testcluster.Until(ctx, "the doctor to tell of all", func(context.Context) error {
		d, err := c.diagnose()
		if err != nil {
			return err
		}
		var missing []error
		for what, parts := range want {
			for _, f := range d.Findings {
				if text := f.Where + ": " + f.Text + ": " + f.Remedy; !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) }) {
					found[what] = f // also if a later look finds it put right
				}
			}
			if _, ok := found[what]; !ok {
				missing = append(missing, fmt.Errorf("%s is not told: %+v", what, d.Findings))
			}
		}
		return errors.Join(missing...)
	}); err != nil {
		c.t.Error(err)
	}
	return found
}

// well waits until the doctor finds nothing but what may be found.
func (c *cluster) well(may func(api.Finding) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, "the doctor to find nothing", func(context.Context) error {
		d, err := c.diagnose()
		d.Findings = slices.DeleteFunc(d.Findings, may)
		if err == nil && (len(d.Findings) > 0 || d.Answered != d.Hosts) {
			err = fmt.Errorf("%+v", d)
		}
		return err
	}); err != nil {
		c.t.Error(err)
	}
}

// write puts rows into the lab's store as a hand would.
func (c *cluster) write(fn func(store.Tx) error) {
	c.t.Helper()
	ctx := c.t.Context()
	rows := memory.New()
	defer func() { _ = rows.Close() }() // of this test's own
	if _, err := rows.Update(ctx, fn); err != nil {
		c.t.Fatal(err)
	}
	kvs, _, err := rows.Range(ctx, tables.StatePrefix)
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := c.Store.Etcd(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // what it was to write is written
	for _, kv := range kvs {
		if kv.Key == store.CommitKey {
			continue
		}
		if _, err := client.Put(ctx, kv.Key, string(kv.Value)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func doctor(t *testing.T, driver string) {
	small := withSmallDisk(t)
	c := pairUp(t, driver, "doc", func(cfg *testcluster.Config) { cfg.AgentArgs = []string{"--flow-log", filepath.Join(small, "flows")} })
	if _, err := c.AddContainer(t.Context(), spec("gone", "h2", "blue/net/clients")); err != nil { // nothing listens there, which would keep its namespace
		t.Fatal(err)
	}
	c.well(ofMachine)
	ctx, h := t.Context(), c.host("h2")

	// The host: a device that no container has, and a container that has deleted its own.
	if out, err := h.Run(ctx, "ip", "link", "add", strayDevice, "type", "veth", "peer", "name", "yartsvc"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := h.Run(ctx, "ip", "link", "set", strayDevice, "alias", "contiv:stray"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.space("gone").Command(ctx, "ip", "link", "del", "eth0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string][]string{
		"an address":                {"10.1.1.77", "blue:net", "allocated without an owner", "--repair"},
		"a tag":                     {"vni 777", "blue:former", "allocated without an owner", "--repair"},
		"a network's number":        {"network 778", "allocated without an owner", "--repair"},
		"a device":                  {"host h2", strayDevice, "contiv:stray", "no attachment has it", "ip link del"},
		"a full disk":               {"host h2", small, "flow log", "is full", "make room"},
		"a container that has gone": {"host h2", "1 container of", c.Config().Name + "-gone/eth0", "the interface is gone", "reclaimEndpoint"},
	}
	damage, mend := c.damageMaps, func() {}
	if driver == testcluster.DriverOVS {
		damage, mend = c.damageSwitch(want)
	} else {
		want["entries of maps"] = []string{"host h2", "another program", "entry map hosts (1 gone, 0 wrong, 1 too many)"}
	}
	net := model.NetworkKey{Tenant: "blue", Name: "net"}
	stray := func() { // records in the store whose owner does not exist
		c.write(func(tx store.Tx) error {
			return errors.Join(
				tables.Addresses.Put(tx, tables.Address{AddressKey: tables.AddressKey{Network: net, Addr: netip.MustParseAddr("10.1.1.77")}, Endpoint: "nobody"}),
				tables.Numbers.Put(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberVNI, Number: 777}, Owner: "blue:former"}),
				tables.Numbers.Put(tx, tables.Number{NumberKey: tables.NumberKey{Kind: tables.NumberNetwork, Number: 778}, Owner: "blue:former"}),
			)
		})
	}
	c.losesNothing("the doctor", func(context.Context) error { // more than once, where packets are lost anyway
		stray()
		damage(h)
		if err := os.WriteFile(filepath.Join(small, "ballast"), make([]byte, 38<<20), 0o600); err != nil {
			return err
		}
		found := c.waitFindings(want)
		for _, what := range []string{"an address", "a tag", "a network's number"} {
			if found[what].Repair != api.RepairPossible {
				t.Errorf("%s: %+v", what, found[what])
			}
		}
		d, err := c.diagnose("--repair")
		if err != nil {
			return err
		}
		repaired := 0
		for _, f := range d.Findings {
			if f.Check == api.CheckOwners && f.Repair == api.RepairDone {
				repaired++
			}
		}
		if repaired != 3 {
			t.Errorf("%d are repaired: %+v", repaired, d.Findings)
		}
		mend()
		return nil
	})
	if err := os.Remove(filepath.Join(small, "ballast")); err != nil {
		t.Error(err)
	}
	if out, err := h.Run(ctx, "ip", "link", "del", strayDevice); err != nil {
		t.Error(err, out)
	}
	if out, err := h.Run(ctx, "curl", "-sS", "-X", "POST", "http://127.0.0.1:9006/debug/reclaimEndpoint/"+c.Config().Name+"-gone"); err != nil || !strings.Contains(out, "reclaimed") {
		t.Error(err, out)
	}
	if err := c.DropContainer("gone"); err != nil {
		t.Error(err)
	}
	c.well(func(f api.Finding) bool { return ofMachine(f) || strings.Contains(f.Text, "in the last hour") })
	for _, line := range []string{"c s tcp/80", "s c tcp/80", "c near tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	c.add(spec("anew", "h2", "blue/net/clients"))
	c.wants("anew s tcp/80", testcluster.OK)
}

// damageMaps removes an unused entry from a map of a host on eBPF, and adds one.
func (c *cluster) damageMaps(h *testcluster.Host) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(h.PinDir(), "maps", "hosts"), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = m.Close() }() // it was written
	near, took := c.addr("near", "4").As4(), false
	var k, v []byte
	it := m.Iterate()
	for it.Next(&k, &v) {
		if strings.Contains(string(k), string(near[:])) {
			took = true
			break
		}
	}
	if err := it.Err(); err != nil || !took {
		c.t.Fatal("h2 knows no container of h1: ", err)
	}
	stray := slices.Repeat([]byte{0x5a}, len(k))
	if err := errors.Join(m.Delete(k), m.Put(stray, v)); err != nil {
		c.t.Fatal(err)
	}
}

// damageSwitch is what is done to a host's Open vSwitch, and undone; it adds to want what is
// to be told of it.
func (c *cluster) damageSwitch(want map[string][]string) (damage func(*testcluster.Host), mend func()) {
	var at *testcluster.Host
	ofctl := func(args ...string) {
		c.t.Helper()
		if out, err := at.Run(c.t.Context(), "ovs-ofctl", append([]string{"-O", "OpenFlow15"}, args...)...); err != nil {
			c.t.Fatal(err, out)
		}
	}
	vsctl := func(args ...string) {
		c.t.Helper()
		if out, err := at.Switch.Vsctl(c.t.Context(), args...); err != nil {
			c.t.Fatal(err, out)
		}
	}
	want["a flow"] = []string{"host h2", "flows of bridge contivBr: 1 of them are not Contiv's", "cookie=0x77", "ovs-ofctl"}
	want["a port"] = []string{"host h2", "ports of bridge contivBr: theirs", "not Contiv's", "del-port"}
	damage = func(h *testcluster.Host) {
		at = h
		ofctl("add-flow", "contivBr", "cookie=0x77,priority=65000,in_port=65000,actions=normal")
		vsctl("add-port", "contivBr", "theirs", "--", "set", "interface", "theirs", "type=internal")
	}
	return damage, func() {
		ofctl("del-flows", "contivBr", "cookie=0x77/-1")
		vsctl("del-port", "contivBr", "theirs")
	}
}
