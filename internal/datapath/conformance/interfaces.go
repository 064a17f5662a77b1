package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// testMissingInterface: a port without its interface is reported as not found,
// the others work, and it works once the interface is there.
func testMissingInterface(t *testing.T, h Harness) {
	t.Helper()
	b := open(t, h)
	_, big := DesiredStates(t)
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range big.Ports.All() {
			if !yield(name) {
				return
			}
		}
	})
	late := names[0]
	for name, p := range big.Ports.All() {
		if name != late {
			b.AddInterface(t, name, p.MAC)
		}
	}
	report, err := b.drv.Apply(context.Background(), big)
	if err != nil {
		t.Fatalf("Apply() = %v", err)
	}
	for _, name := range names {
		if err := report.Ports.Err(name); name == late && !errors.Is(err, model.ErrNotFound) || name != late && err != nil {
			t.Errorf("port %s: %v (missing: %s)", name, err, late)
		}
	}
	p, _ := big.Ports.Get(late)
	b.AddInterface(t, late, p.MAC)
	// It was made and then set up: a look between the two is put right by an event.
	for timeout := time.After(eventPatience); ; {
		report, err := b.drv.Apply(t.Context(), big)
		if err != nil {
			t.Fatalf("Apply() = %v", err)
		}
		why := report.Ports.Err(late)
		if why == nil {
			break
		}
		select {
		case <-b.drv.Events():
		case <-timeout:
			t.Fatalf("interface %s is there for %v, and no Apply that an event asked for takes it: %v", late, eventPatience, why)
		}
	}
	b.apply(t, big)
}

// testLostInterface: an interface that somebody sets down, renames or deletes is
// an event, after which an Apply reports that port, and no other; likewise when it
// is as it was again.
func testLostInterface(t *testing.T, h Harness) {
	t.Helper()
	if h.RemoveInterface == nil {
		t.Skip("the harness has no RemoveInterface")
	}
	b := open(t, h)
	_, pic := DesiredStates(t)
	b.interfaces(t, pic)
	b.apply(t, pic)
	lost := slices.Min(slices.Collect(maps.Keys(maps.Collect(pic.Ports.All()))))
	wait := func(what string, right func(error) bool) {
		t.Helper()
		timeout := time.After(eventPatience)
		for {
			select {
			case <-b.drv.Events(): // as an agent does
				report, err := b.drv.Apply(t.Context(), pic)
				if err != nil {
					t.Fatalf("Apply() = %v", err)
				}
				if !right(report.Ports.Err(lost)) {
					continue
				}
				for name, st := range report.Ports.All() {
					if name != lost && st.Err != nil {
						t.Errorf("interface %s %s: port %s: %v", lost, what, name, st.Err)
					}
				}
				return
			case <-timeout:
				t.Fatalf("interface %s %s, and %v later no Apply that an event asked for reports it", lost, what, eventPatience)
			}
		}
	}
	h.DownInterface(t, lost, true)
	wait("set down", func(err error) bool { return err != nil })
	h.DownInterface(t, lost, false)
	wait("set up", func(err error) bool { return err == nil })
	if h.RenameInterface != nil {
		h.RenameInterface(t, lost, "renamed")
		wait("renamed", func(err error) bool { return errors.Is(err, model.ErrNotFound) })
		h.RenameInterface(t, "renamed", lost)
		wait("named as before", func(err error) bool { return err == nil })
	}
	h.RemoveInterface(t, lost)
	wait("deleted", func(err error) bool { return errors.Is(err, model.ErrNotFound) })
	p, _ := pic.Ports.Get(lost)
	h.AddInterface(t, lost, p.MAC)
	wait("back", func(err error) bool { return err == nil })
}
