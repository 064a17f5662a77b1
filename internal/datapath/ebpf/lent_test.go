package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Half of the cost of this suite would be the kernel's verifier, again and again on the
// same programs. So a test that opens a driver on an empty pin directory, with usual sizes
// of maps, borrows programs that an earlier test has loaded, with their maps emptied. If it
// opens one again on these pins, it gets other programs, as after an upgrade, that an
// earlier test has loaded onto these maps, and the next time the same ones, as after a
// restart. A test that opens one on other pins, or with other sizes, loads programs as a
// netplugin does.
var lent struct {
	sync.Mutex
	free map[string][]*loaded // by the maps' sizes
	out  map[string]*loaded   // by pin directory
}

// loaded are the maps that are lent together, and what has been loaded onto those
// of them that are pinned: by who was first, and by who came after it, or nil. Each
// has its own of the other maps.
type loaded struct {
	by   [2]*objects
	last int  // who has it, or had it last
	same bool // whether the next restart is one of the same version
}

// lend returns programs and maps that are pinned in dir, as loadObjects does, and
// takes them back when the test is over.
func lend(t testing.TB, dir string, sizes map[string]uint32) (*objects, error) {
	t.Helper()
	lent.Lock()
	defer lent.Unlock()
	pins, err := os.ReadDir(filepath.Join(dir, "maps"))
	if err != nil {
		return loadObjects(dir, sizes)
	}
	if len(pins) > 0 {
		if l := lent.out[dir]; l != nil && l.isPinned(dir, pins) {
			return l.again(dir, sizes)
		}
		return loadObjects(dir, sizes)
	}
	var l *loaded
	var use *objects
	size := fmt.Sprint(sizes)
	if free := lent.free[size]; len(free) > 0 {
		l, lent.free[size] = free[len(free)-1], free[:len(free)-1]
		use, err = l.reload(dir)
	} else {
		l = &loaded{}
		use, err = l.load(0, dir, sizes)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	if lent.out == nil {
		lent.free, lent.out = map[string][]*loaded{}, map[string]*loaded{}
	}
	lent.out[dir] = l
	t.Cleanup(func() {
		lent.Lock()
		defer lent.Unlock()
		delete(lent.out, dir)
		lent.free[size] = append(lent.free[size], l)
	})
	return use, nil
}

// isPinned reports whether what is pinned in a directory is these maps, all of them
// and nothing else.
func (l *loaded) isPinned(dir string, pins []os.DirEntry) bool {
	own := l.by[0].pinned
	return len(pins) == len(own) && !slices.ContainsFunc(pins, func(pin os.DirEntry) bool {
		m := own[pin.Name()]
		return m == nil || !samePin(m, filepath.Join(dir, "maps", pin.Name()))
	})
}

func samePin(m *ebpf.Map, path string) bool {
	pin, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return false
	}
	defer pin.Close()
	a, err1 := m.Info()
	b, err2 := pin.Info()
	if err1 != nil || err2 != nil {
		return false
	}
	x, ok1 := a.ID()
	y, ok2 := b.ID()
	return ok1 && ok2 && x == y
}

// load loads programs, and maps that are not pinned in dir.
func (l *loaded) load(turn int, dir string, sizes map[string]uint32) (*objects, error) {
	use, err := loadAnew(dir, sizes)
	if err != nil {
		return nil, err
	}
	kept, err := use.clone("")
	if err != nil {
		return nil, errors.Join(err, use.Close())
	}
	l.by[turn], l.last = kept, turn
	return use, nil
}

// reload lends the programs that were loaded last, emptied, to a test with nothing pinned.
func (l *loaded) reload(dir string) (*objects, error) {
	l.same = false
	if err := l.by[l.last].empty(false); err != nil {
		return nil, err
	}
	return l.by[l.last].clone(filepath.Join(dir, "maps"))
}

// again lends the other programs of the two to who has the maps pinned.
func (l *loaded) again(dir string, sizes map[string]uint32) (*objects, error) {
	if l.same = !l.same; !l.same {
		return l.by[l.last].clone(filepath.Join(dir, "maps"))
	}
	other := 1 - l.last
	if l.by[other] == nil {
		return l.load(other, dir, sizes)
	}
	if err := l.by[other].empty(true); err != nil {
		return nil, err
	}
	l.last = other
	return l.by[other].clone(filepath.Join(dir, "maps"))
}

// loadAnew loads programs as the netplugin of another version does.
func loadAnew(dir string, sizes map[string]uint32) (*objects, error) {
	scale, err := scaleOf(sizes)
	if err != nil {
		return nil, err
	}
	return loadNew(dir, scale)
}

func (l *loaded) close() error {
	var errs []error
	for _, o := range l.by {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	return errors.Join(errs...)
}

// clone returns other handles of the same programs and maps, and pins in a
// directory the maps that are pinned in o, where they are not yet; "" = it only
// notes which are.
func (o *objects) clone(at string) (*objects, error) {
	c := &objects{pinned: map[string]*ebpf.Map{}}
	c.datapathVariables = o.datapathVariables // which need no closing
	from, to := reflect.ValueOf(o.datapathPrograms), reflect.ValueOf(&c.datapathPrograms).Elem()
	for i := range from.NumField() {
		p, err := from.Field(i).Interface().(*ebpf.Program).Clone()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		to.Field(i).Set(reflect.ValueOf(p))
	}
	from, to = reflect.ValueOf(o.datapathMaps), reflect.ValueOf(&c.datapathMaps).Elem()
	for i := range from.NumField() {
		name := from.Type().Field(i).Tag.Get("ebpf")
		m, err := from.Field(i).Interface().(*ebpf.Map).Clone()
		if err == nil && o.pinned[name] != nil && at != "" {
			m, err = pinOnce(m, filepath.Join(at, name))
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		to.Field(i).Set(reflect.ValueOf(m))
		if o.pinned[name] != nil {
			c.pinned[name] = m
		}
	}
	return c, nil
}

// pinOnce returns a map that is pinned at path, where it may be already; without one
// it has closed it.
func pinOnce(m *ebpf.Map, path string) (*ebpf.Map, error) {
	err := m.Pin(path)
	if err == nil {
		return m, nil
	}
	err = errors.Join(err, m.Close())
	if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return ebpf.LoadPinnedMap(path, nil) // which has been found to be this one
}

// empty makes all maps as new, or only the ones that are not pinned.
func (o *objects) empty(unpinned bool) error {
	maps := reflect.ValueOf(o.datapathMaps)
	for i := range maps.NumField() {
		name := maps.Type().Field(i).Tag.Get("ebpf")
		if unpinned && o.pinned[name] != nil {
			continue
		}
		if err := emptyMap(maps.Field(i).Interface().(*ebpf.Map)); err != nil {
			return fmt.Errorf("empty map %s: %w", name, err)
		}
	}
	return nil
}

func emptyMap(m *ebpf.Map) error {
	if m.Type() == ebpf.RingBuf {
		r, err := ringbuf.NewReader(m)
		if err != nil {
			return err
		}
		r.SetDeadline(time.Now())
		for err == nil {
			_, err = r.Read()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		return errors.Join(err, r.Close())
	}
	switch {
	case m.Flags()&unix.BPF_F_MMAPABLE != 0:
		return clearMemory(m)
	case m.Type() == ebpf.Array, m.Type() == ebpf.PerCPUArray:
		return zero(m)
	}
	var keys [][]byte
	for at := any(nil); ; { // all first: who deletes the present one begins again
		key, err := m.NextKeyBytes(at)
		if err != nil {
			return err
		}
		if key == nil {
			break
		}
		keys, at = append(keys, key), key
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !isNotExist(err) {
			return err
		}
	}
	return nil
}

// clearMemory overwrites an array that can be mapped: the largest has 64 MiB.
func clearMemory(m *ebpf.Map) error {
	size := int(m.MaxEntries()) * int((m.ValueSize()+7)&^7)
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	clear(b)
	return unix.Munmap(b)
}

// zero overwrites an array, some entries at a time.
func zero(m *ebpf.Map) error {
	n, width := min(m.MaxEntries(), 4096), 1
	if perCPU(m.Type()) {
		width = cpus()
	}
	keys := make([]uint32, n)
	one := reflect.SliceOf(reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]()))
	values := reflect.MakeSlice(one, int(n)*width, int(n)*width)
	for at := uint32(0); at < m.MaxEntries(); at += n {
		k := keys[:min(n, m.MaxEntries()-at)]
		for i := range k {
			k[i] = at + uint32(i)
		}
		if _, err := m.BatchUpdate(k, values.Slice(0, len(k)*width).Interface(), nil); err != nil {
			return err
		}
	}
	return nil
}

// TestBorrowedProgramsAreEmpty: what a test is lent holds nothing of what was there before.
func TestBorrowedProgramsAreEmpty(t *testing.T) {
	require(t)
	dir := filepath.Join(bpfMount(t), "host")
	if err := pinDirectory(dir); err != nil {
		t.Fatal(err)
	}
	o, err := loadObjects(dir, map[string]uint32{"conns": 16384, "halfopen": 16384})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	spec, err := loadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	maps := reflect.ValueOf(o.datapathMaps)
	each := func(do func(name string, m *ebpf.Map, value reflect.Value)) {
		for i := range maps.NumField() {
			m := maps.Field(i).Interface().(*ebpf.Map)
			if m.Type() == ebpf.RingBuf {
				continue
			}
			one := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
			if perCPU(m.Type()) {
				one = reflect.SliceOf(one)
			}
			do(maps.Type().Field(i).Tag.Get("ebpf"), m, reflect.New(one))
		}
	}
	last := func(m *ebpf.Map) []byte {
		key := make([]byte, m.KeySize())
		binary.NativeEndian.PutUint32(key, m.MaxEntries()-1)
		if m.Type() == ebpf.LPMTrie {
			binary.NativeEndian.PutUint32(key, 8)
		}
		return key
	}
	each(func(name string, m *ebpf.Map, value reflect.Value) {
		v := value.Elem()
		if m.Type() == ebpf.HashOfMaps {
			inner, err := ebpf.NewMap(spec.Maps[name].InnerMap)
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			if err := m.Put(last(m), inner); err != nil {
				t.Errorf("fill map %s: %v", name, err)
			}
			return
		}
		if perCPU(m.Type()) {
			v.Set(reflect.MakeSlice(v.Type(), cpus(), cpus()))
			v = v.Index(cpus() - 1)
		}
		v.Index(v.Len() - 1).SetUint(1)
		if err := m.Put(last(m), value.Elem().Interface()); err != nil {
			t.Errorf("fill map %s: %v", name, err)
		}
	})
	if err := o.empty(false); err != nil {
		t.Fatal(err)
	}
	each(func(name string, m *ebpf.Map, value reflect.Value) {
		err := m.Lookup(last(m), value.Interface())
		switch m.Type() {
		case ebpf.Array:
			if err != nil || !value.Elem().IsZero() {
				t.Errorf("map %s still holds %x: %v", name, value.Elem(), err)
			}
		case ebpf.PerCPUArray:
			for i := range cpus() {
				if err != nil || !value.Elem().Index(i).IsZero() {
					t.Errorf("map %s still holds %x: %v", name, value.Elem(), err)
				}
			}
		default:
			if !isNotExist(err) {
				t.Errorf("map %s still holds its entry: %v", name, err)
			}
		}
	})
}

// TestRestartBorrowsProgramsWithEmptyMaps: a driver that is opened again on borrowed programs gets other
// programs on the same maps, whose own maps are empty. It loads again what others have
// changed.
func TestRestartBorrowsProgramsWithEmptyMaps(t *testing.T) {
	require(t)
	dir := filepath.Join(bpfMount(t), "host")
	if err := pinDirectory(dir); err != nil {
		t.Fatal(err)
	}
	var seen []ebpf.ProgramID
	next := func() (*objects, int) {
		t.Helper()
		o, err := lend(t, dir, map[string]uint32{"conns": 16384, "halfopen": 16384})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Close() })
		info, err := o.FromContainer.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		seen = append(seen, id)
		for name, m := range o.pinned {
			if at := filepath.Join(dir, "maps", name); !m.IsPinned() || !samePin(m, at) {
				t.Errorf("lent %d: map %s is not what is pinned at %s", len(seen), name, at)
			}
		}
		return o, slices.Index(seen, id)
	}
	first, _ := next()
	network, value := uint32(7), make([]byte, first.Networks.ValueSize())
	if err := first.Networks.Put(network, value); err != nil {
		t.Fatal(err)
	}
	entry := make([]byte, first.ForwardCache.ValueSize())
	entry[0] = 1
	if err := first.ForwardCache.Put(uint32(5), entry); err != nil {
		t.Fatal(err)
	}
	if _, n := next(); n != 1 {
		t.Errorf("the first restart got the programs of open %d again", n)
	}
	if _, n := next(); n != 1 {
		t.Error("the second restart did not get the same programs again")
	}
	third, n := next()
	if n != 0 {
		t.Error("the third restart did not get the programs of the first open")
	}
	if err := third.Networks.Lookup(network, &value); err != nil {
		t.Errorf("what the pinned maps held is gone: %v", err)
	}
	if err := third.ForwardCache.Lookup(uint32(5), &entry); err != nil || entry[0] != 0 {
		t.Errorf("a restart finds what the programs themselves have kept: %x, %v", entry, err)
	}
	if err := os.Remove(filepath.Join(dir, "maps", "rules")); err != nil {
		t.Fatal(err)
	}
	if o, n := next(); n != 4 || o.pinned["rules"] == nil {
		t.Errorf("who finds a map missing got the programs of open %d, and not of its own", n)
	}
}
