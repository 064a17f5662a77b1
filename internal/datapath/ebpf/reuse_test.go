package ebpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func bpfMount(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		for end := time.Now().Add(5 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = unix.Unmount(dir, 0) {
			<-time.After(5 * time.Millisecond) // a child between fork and exec has something of it open
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestRestartReusesPrograms: the next process uses the pinned programs if they are what it
// would load, onto the maps that are pinned, and loads programs whenever anything differs.
func TestRestartReusesPrograms(t *testing.T) {
	require(t)
	dir := filepath.Join(bpfMount(t), "host")
	sizes := map[string]uint32{"conns": 16384, "halfopen": 16384}
	var last ebpf.ProgramID
	next := func(what string, reused bool) {
		t.Helper()
		if err := pinDirectory(dir); err != nil {
			t.Fatal(err)
		}
		o, err := loadObjects(dir, sizes)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer o.Close()
		info, err := o.FromContainer.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		if (id == last) != reused {
			t.Errorf("%s: programs are reused: %v, want %v", what, id == last, reused)
		}
		last = id
		for name, m := range o.pinned {
			if !samePin(m, filepath.Join(dir, "maps", name)) {
				t.Errorf("%s: map %s is not the pinned one", what, name)
			}
		}
		for name, m := range fieldsOf[*ebpf.Map](&o.datapathMaps) {
			if *m == nil || !(*m).IsPinned() {
				t.Errorf("%s: map %s is not pinned", what, name)
			}
		}
		if all, err := os.ReadDir(filepath.Join(dir, programsDir)); err != nil || len(all) != 1 {
			t.Errorf("%s: programs of %d versions are pinned, %v", what, len(all), err)
		}
	}
	programs := func() string {
		all, err := filepath.Glob(filepath.Join(dir, programsDir, "*"))
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0]
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	next("at first", false)
	next("started again", true)
	sizes["conns"] = 32768
	next("another size", false)
	next("started again with that size", true)
	do(os.Rename(programs(), filepath.Join(dir, programsDir, "another-object")))
	next("programs of another object", false)
	do(os.Remove(filepath.Join(dir, "maps", "rules")))
	next("a map is gone", false)
	do(os.Remove(filepath.Join(programs(), "forward_cache")))
	next("a map of the programs is gone", false)
	do(os.Remove(filepath.Join(programs(), "from_tunnel")))
	next("a program is gone", false)
	do(os.Rename(filepath.Join(programs(), "to_container"), filepath.Join(programs(), "from_container")))
	next("another program in its place", false)
	do(os.RemoveAll(filepath.Join(dir, programsDir)))
	next("no programs are pinned", false)
	next("started again at last", true)
}
