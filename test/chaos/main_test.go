//go:build integration

package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// What runs. make chaos-operator gives SEED, COUNT and DRIVER.
var (
	seed        = flag.Uint64("plan", 1, "the seed that decides which mistakes are made")
	count       = flag.Int("mistakes", 0, "how many are made on each driver; 0 = 15, with -full 25")
	damageCount = flag.Int("damages", 0, "how many damages TestStatusTellsDamages makes; 0 = 4, with -full 25")
	drivers     = flag.String("drivers", "", "drivers to try, separated by commas; empty = one that the round chooses, with -full both")
	kind        = flag.String("store", embedded, "the cluster's store: embedded in netmaster, or an etcd process")
	secure      = flag.String("secure", "", "TestStatusTellsDamages: what the cluster is secure by: secure (netmaster --secure), pki (netctl pki); empty = plain; without -drivers what the round chooses, with -full all")
	clocks      = flag.Bool("clocks", false, "TestStatusTellsDamages: also set clocks, with programs made for it, which takes minutes the first time; CONTIV_TEST_BIN has to have such; -full does it")
	open        = flag.Bool("open", false, "also mistakes that show faults which are known and not mended yet")
	environment = testcluster.EnvironmentFlag()
	only        = flag.String("only", "", "mistakes whose names hold one of these words, separated by commas; empty = all")
)

// bin holds the programs under test, built once, or given by CONTIV_TEST_BIN.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	if *damageCount == 0 {
		*damageCount = 4
		if conformance.Full() {
			*damageCount = 25
		}
	}
	if *count == 0 {
		*count = 15
		if conformance.Full() {
			*count = 25
		}
	}
	os.Exit(func() int {
		*clocks = *clocks || conformance.Full() && os.Getenv("CONTIV_TEST_BIN") == ""
		if bin = os.Getenv("CONTIV_TEST_BIN"); bin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "contiv-chaos-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
		bin = filepath.Join(dir, "bin")
		build := testcluster.Build
		if *clocks {
			build = testcluster.BuildWithClocks
		}
		if err := build(context.Background(), ".", bin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// TestOperator makes mistakes, one after another: wrong flags, a host's name taken, deleted
// files, devices, filters, rules, flows and pins, daemons killed and paused, a full disk,
// another store, restored backups, bad requests. A seed decides which, on which host and for
// how long. Then it puts all right and asks for the status; then it leaves each kind of
// mistake in once and asks again.
//
// Containers that no mistake touches are watched all the while, by a ping every 10 ms and a
// TCP connection, on one host and across hosts. Failures are:
//   - an outage longer than the documentation says of a mistake, reported with the mistakes
//     around it,
//   - a packet that arrives although policy denies it or another tenant sent it,
//   - a `netctl status` that 10 seconds after the last mistake does not say what is wrong, or
//     says more,
//   - a status that says all is well while allowed packets had no answer for 10 seconds.
func TestOperator(t *testing.T) {
	chosen := []string{testcluster.DriverEBPF, testcluster.DriverOVS}
	switch {
	case *drivers != "":
		chosen = strings.Split(*drivers, ",")
	case !conformance.Full():
		i := conformance.Choose(t.Name(), len(chosen))
		t.Logf("on %s of %v, by the round; -drivers says others, -full takes all", chosen[i], chosen)
		chosen = chosen[i : i+1]
	}
	for _, d := range chosen {
		t.Run(d, func(t *testing.T) {
			operate(t, d)
		})
	}
}
