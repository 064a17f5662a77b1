package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Half of what this suite costs would be the kernel's verifier, again and again
// on the same programs. So who opens a driver on an empty pin directory, with the
// maps' usual sizes, is lent programs that an earlier test has loaded, with their
// maps emptied. Whoever opens one on pins that stand, as after a restart, or with
// other sizes, loads programs as a netplugin does.
var lent struct {
	sync.Mutex
	free []*objects
}

// lend returns programs and maps that are pinned in dir, as loadObjects does, and
// takes them back when the test is over.
func lend(t testing.TB, dir string, sizes map[string]uint32) (*objects, error) {
	t.Helper()
	if pins, err := os.ReadDir(filepath.Join(dir, "maps")); err != nil || len(pins) > 0 {
		return loadObjects(dir, sizes)
	}
	lent.Lock()
	defer lent.Unlock()
	var kept *objects
	if n := len(lent.free); n > 0 {
		kept, lent.free = lent.free[n-1], lent.free[:n-1]
		if err := kept.empty(); err != nil {
			return nil, errors.Join(err, kept.Close())
		}
	}
	var use *objects
	var err error
	if kept == nil {
		if use, err = loadObjects(dir, sizes); err != nil {
			return nil, err
		}
		if kept, err = use.clone(""); err != nil {
			return nil, errors.Join(err, use.Close())
		}
	} else if use, err = kept.clone(filepath.Join(dir, "maps")); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	t.Cleanup(func() {
		lent.Lock()
		defer lent.Unlock()
		lent.free = append(lent.free, kept)
	})
	return use, nil
}

// clone returns other handles of the same programs and maps, and pins in a
// directory the maps that are pinned in o, or notes in pinned which are.
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
		m, err := from.Field(i).Interface().(*ebpf.Map).Clone()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		to.Field(i).Set(reflect.ValueOf(m))
		name := from.Type().Field(i).Tag.Get("ebpf")
		if o.pinned[name] == nil {
			continue
		}
		c.pinned[name] = m
		if at == "" {
			continue
		}
		if err := m.Pin(filepath.Join(at, name)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// empty makes all maps as they are when they are new.
func (o *objects) empty() error {
	maps := reflect.ValueOf(o.datapathMaps)
	for i := range maps.NumField() {
		m := maps.Field(i).Interface().(*ebpf.Map)
		if err := emptyMap(m); err != nil {
			return fmt.Errorf("empty map %s: %w", maps.Type().Field(i).Tag.Get("ebpf"), err)
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
	if m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray {
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

// zero overwrites an array, some entries at a time: the largest has 64 MiB.
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

// TestLentIsAsNew: what a test is lent holds nothing of what was there before.
func TestLentIsAsNew(t *testing.T) {
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
	if err := o.empty(); err != nil {
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
