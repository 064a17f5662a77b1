//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// tellsWithin is how soon after the last mistake the status is right.
const tellsWithin = 10 * time.Second

// known is a fault that is left in, with the words by which the status must
// name it.
type known struct {
	name  string
	only  string // the driver whose hosts tell it; empty = any
	words []string
	do    func(ctx context.Context) (undo, error)
}

func (w *world) known() []known {
	return []known{
		{"netplugin of h3 is down", "", []string{"h3"}, func(context.Context) (undo, error) {
			h, err := w.Host("h3")
			if err != nil {
				return nil, err
			}
			return w.endDaemon("h3-netplugin", func(ctx context.Context) error { return w.startAgent(ctx, h) })
		}},
		{"a victim's interface on h2 is gone", lab.DriverEBPF, []string{"h2"}, func(ctx context.Context) (undo, error) {
			h, err := w.Host("h2")
			if err != nil {
				return nil, err
			}
			return victimVeth(ctx, w, h, nil)
		}},
	}
}

// finish asks for the status when all is put right, and with one fault left in.
func (w *world) finish() {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	if !w.hasStatus(ctx) {
		w.t.Log("this netctl has no status")
		return
	}
	start := time.Now()
	out, err := w.status(ctx, func(_ string, err error) error { return err })
	if err != nil {
		w.fault("everything was put right, and %v later the status says otherwise: %v\n%s", tellsWithin, err, out)
	} else {
		w.t.Logf("all is well %v after the last mistake:\n%s", time.Since(start).Round(time.Millisecond), out)
	}
	for _, k := range w.known() {
		if k.only != "" && k.only != w.driver {
			continue
		}
		back, err := k.do(ctx)
		if err != nil {
			w.fault("%s: %v", k.name, err)
			continue
		}
		start := time.Now()
		out, err := w.status(ctx, func(out string, err error) error {
			_, wrong, _ := strings.Cut(out, "Not all is well:")
			if err == nil || wrong == "" {
				return errors.New("it says that all is well")
			}
			for _, word := range k.words {
				if !strings.Contains(wrong, word) {
					return fmt.Errorf("it does not say %q", word)
				}
			}
			return nil
		})
		if err != nil {
			w.fault("%s, and %v later the status does not say so: %v\n%s", k.name, tellsWithin, err, out)
		} else {
			w.t.Logf("%s; the status says so after %v:\n%s", k.name, time.Since(start).Round(time.Millisecond), out)
		}
		if back != nil {
			if err := back(ctx); err != nil {
				w.fault("%s, put right: %v", k.name, err)
			}
		}
		if out, err := w.status(ctx, func(_ string, err error) error { return err }); err != nil {
			w.fault("%s, put right, and %v later the status says otherwise: %v\n%s", k.name, tellsWithin, err, out)
		}
	}
}

func (w *world) hasStatus(ctx context.Context) bool {
	out, err := w.Netctl(ctx, "status", "--help")
	return err == nil && strings.Contains(out, "status")
}

// status asks until the answer is right, or time is up.
func (w *world) status(ctx context.Context, right func(string, error) error) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellsWithin)
	defer cancel()
	err = lab.Until(ctx, "the status to be right", func(ctx context.Context) error {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var e error
		out, e = w.Netctl(asking, "status")
		return right(out, e)
	})
	return out, err
}
