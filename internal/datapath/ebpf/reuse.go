package ebpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
)

// Nearly all of a start is the kernel's verifier. So the programs are pinned, with the maps
// that belong to them alone, and the next process uses them again if they were made of the
// same object and the same scale, and use the maps that are pinned now.

// programsDir has one directory, which is named by the fingerprint of the programs in it.
const programsDir = "programs"

// isSection reports whether a map is a section of the object, such as its constants.
func isSection(name string) bool { return strings.HasPrefix(name, ".") }

// sectionPin is where such a map is pinned: names of pins have no dot.
func sectionPin(at, name string) string { return filepath.Join(at, "section-"+name[1:]) }

// hasPrograms reports whether programs of some netplugin are pinned.
func hasPrograms(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, programsDir))
	return err == nil && len(entries) > 0
}

// reusePin is where programs of the object and a scale are pinned.
func reusePin(dir string, s scale) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%+v\n", s) // maps are printed in order; a hash takes everything
	_, _ = sum.Write(_DatapathBytes)
	return filepath.Join(dir, programsDir, hex.EncodeToString(sum.Sum(nil)))
}

// fieldsOf yields the fields of one of the generated structures by the names of their objects.
func fieldsOf[T any](of any) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		v := reflect.ValueOf(of).Elem()
		for i := range v.NumField() {
			if p, ok := reflect.TypeAssert[*T](v.Field(i).Addr()); ok && !yield(v.Type().Field(i).Tag.Get("ebpf"), p) {
				return
			}
		}
	}
}

// pinReusable pins programs that were loaded, for reuseObjects.
func (o *objects) pinReusable(dir string, s scale, sections map[string]*ebpf.Map) error {
	at := reusePin(dir, s)
	if err := os.RemoveAll(filepath.Join(dir, programsDir)); err != nil {
		return fmt.Errorf("ebpf driver: remove the programs before: %w", err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("ebpf driver: pin directory: %w", err)
	}
	o.reusable = map[string]pinned{}
	for name, m := range fieldsOf[*ebpf.Map](&o.datapathMaps) {
		if o.pinned[name] == nil {
			o.reusable[filepath.Join(at, name)] = *m
		}
	}
	for name, p := range fieldsOf[*ebpf.Program](&o.datapathPrograms) {
		o.reusable[filepath.Join(at, name)] = *p
	}
	var errs []error
	for name, m := range sections {
		errs = append(errs, m.Pin(sectionPin(at, name)))
	}
	for path, p := range o.reusable {
		errs = append(errs, p.Pin(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ebpf driver: pin the programs: %w", err)
	}
	return nil
}

// reuseObjects returns the pinned programs if they are what would be loaded; nil otherwise,
// for whatever reason.
func reuseObjects(dir string, s scale) *objects {
	at := reusePin(dir, s)
	if _, err := os.Stat(at); err != nil {
		return nil
	}
	o := &objects{pinned: map[string]*ebpf.Map{}, reusable: map[string]pinned{}}
	if err := o.open(filepath.Join(dir, "maps"), at); err != nil {
		_ = o.Close() // the programs are loaded instead
		return nil
	}
	return o
}

// open opens what is pinned, and fails if the programs use other maps than these.
func (o *objects) open(mapsAt, at string) error {
	known := map[ebpf.MapID]bool{}
	sections, err := filepath.Glob(sectionPin(at, ".*"))
	if err != nil {
		return err
	}
	for _, path := range sections {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return err
		}
		err = note(known, m)
		if err := errors.Join(err, m.Close()); err != nil {
			return err
		}
	}
	for name, m := range fieldsOf[*ebpf.Map](&o.datapathMaps) {
		path := filepath.Join(at, name)
		if *m, err = ebpf.LoadPinnedMap(path, nil); err == nil {
			o.reusable[path] = *m
		} else if *m, err = ebpf.LoadPinnedMap(filepath.Join(mapsAt, name), nil); err == nil {
			o.pinned[name] = *m
		} else {
			return err
		}
		if err := note(known, *m); err != nil {
			return err
		}
	}
	for name, p := range fieldsOf[*ebpf.Program](&o.datapathPrograms) {
		path := filepath.Join(at, name)
		if *p, err = ebpf.LoadPinnedProgram(path, nil); err != nil {
			return err
		}
		o.reusable[path] = *p
		info, err := (*p).Info()
		if err != nil {
			return err
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			if !known[id] {
				return fmt.Errorf("program %s uses another map", name)
			}
		}
		if info.Name != name[:min(len(name), 15)] {
			return fmt.Errorf("pin %s is another program", name)
		}
	}
	return nil
}

// note notes which map it is.
func note(known map[ebpf.MapID]bool, m *ebpf.Map) error {
	info, err := m.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	known[id] = true
	return nil
}
