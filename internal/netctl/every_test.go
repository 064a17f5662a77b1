package netctl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Every command of netctl, one after the other against a live netmaster,
// prints what the golden holds: standard output, then standard error, then the
// exit code unless it is 0.
func TestEveryCommandPrintsItsGolden(t *testing.T) {
	const file = "testdata/every-command.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New()
	host := model.Host{Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1"), Store: "held:former/1"} // as its agent tells
	of := store.Incarnation{ID: "6c5f0f9e-7d3d-4d55-9c3e-3f5f0c2a7b11", Generation: 1, Since: "2026-11-22T00:00:00Z"}
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(tables.Hosts.Put(tx, host), tables.Incarnations.Put(tx, of))
	}); err != nil {
		t.Fatal(err)
	}
	url := startNetmasterOn(t, st)
	var all strings.Builder
	ran := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.TrimPrefix(line, "$ "))
		if !strings.HasPrefix(line, "$ netctl ") {
			continue
		}
		r := netctl(t, url, words[1:]...)
		printed := strings.ReplaceAll(r.out+r.errOut, url, DefaultNetmaster) // its port differs each time
		fmt.Fprintf(&all, "$ %s\n%s", strings.Join(words, " "), printed)
		if r.code != 0 {
			fmt.Fprintf(&all, "exit code %d\n", r.code)
		}
		path, c := "netctl", testTree()
		for _, w := range words[1:] {
			if sub := c.find(w); sub != nil && c.subs != nil {
				c, path = sub, path+" "+sub.name
			}
		}
		ran[path] = true
	}
	var walk func(c *command, path string)
	walk = func(c *command, path string) {
		if c.subs == nil && !ran[path] {
			t.Errorf("%s is not run", path)
		}
		for _, s := range c.subs {
			walk(s, path+" "+s.name)
		}
	}
	walk(testTree(), "netctl")
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), all.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
