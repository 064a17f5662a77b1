//go:build integration

package cluster

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// What runs. make test-cluster gives SEED, OPS and STORE.
var (
	ops     = flag.Int("ops", 0, "how many requests clients make, in runs of at most 20,000, each on a store of its own; 0 = few, and what takes minutes is skipped")
	longest = flag.Duration("longest", 400*time.Millisecond, "how long a fault lasts at most")
	kindOf  = flag.String("store", "embedded", "the cluster's store: embedded; etcd, a process; disk, one on a disk that fails; consul, a process; consul3, three servers of it; members, that of netmasters which are processes and members of it")
	masters = flag.String("masters", "inside", "netmasters: inside this process, of the parts of the program; program, processes, whose clocks are set")
)

// perRun is how many requests are made on one store.
const perRun = 20_000

// few is the default number of requests, for which `make test` has time.
const few = 500

// TestCluster: three netmasters and five agents on a store, under faults.
func TestCluster(t *testing.T) {
	testenv.Need(t)
	for left, plan := cmp.Or(*ops, few), *seed; left > 0; left, plan = left-perRun, plan+1 {
		t.Logf("-plan %d -ops %d goes on from here", plan, left)
		if !t.Run(*kindOf, func(t *testing.T) { underFaults(t, plan, min(left, perRun)) }) {
			return
		}
	}
}

func stores(t *testing.T) *onServer {
	t.Helper()
	switch *kindOf {
	case "embedded":
		e := &embeddedEtcd{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
		e.start()
		t.Cleanup(e.end)
		return onEtcd(t, e)
	case "etcd", "disk":
		dir, d := t.TempDir(), (*disk)(nil)
		if *kindOf == "disk" {
			d = newDisk(t)
			dir = d.dir
		}
		e := newEtcdProcess(t, filepath.Join(dir, "etcd"))
		e.start()
		s := onEtcd(t, e)
		s.pauses(e)
		if d != nil {
			s.disk, s.more = d, append(s.more, badDisk(s, e, d)...)
		}
		return s
	case "consul":
		led := newConsulProcess(t)
		led.start()
		s := onConsul(t, led)
		s.pauses(led.process)
		return s
	}
	t.Fatalf("there is no store %q", *kindOf)
	return nil
}

// underFaults is a run of the whole cluster on a store.
func underFaults(t *testing.T, plan uint64, total int) {
	t.Helper()
	w := newCluster(t)
	w.longest, w.calm = *longest, 4**longest // the store and what follows it come back meanwhile
	w.start(true)
	finish := w.withAgents(t, plan)
	for _, wrong := range w.run(plan, total) {
		t.Error(wrong)
	}
	finish()
	if d := diskOf(w.st); d != nil && total >= asksForAll {
		d.met(t)
	}
}

// newCluster is a world on the store, and with the netmasters, that were asked for.
func newCluster(t *testing.T) *world {
	t.Helper()
	if *kindOf == "members" {
		d := newDisk(t) // before all that runs on it
		return newMembers(t, programOn(t, nil, ""), d).w
	}
	if *kindOf == "consul3" {
		if *masters != "inside" {
			t.Fatal("on consul3 netmasters are inside")
		}
		return newWorld(t, threeConsuls(t))
	}
	st := stores(t)
	w := newWorld(t, st)
	switch *masters {
	case "inside":
	case "program":
		flag := "--etcd-endpoints"
		if *kindOf == "consul" {
			flag = "--consul-endpoints"
		}
		p := programOn(t, st, flag)
		w.begin, w.more = p.begin, p.faults(w)
	default:
		t.Fatalf("there are no netmasters %q", *masters)
	}
	return w
}

// skipUnlessCI skips what cannot be tried here, unless CI says that it must be.
func skipUnlessCI(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// shortDir is a directory whose path leaves room for a unix socket's (108 bytes).
func shortDir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "cl-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	})
	return d
}
