package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// TestFlagsStandBeforeOrBehindTheCommand checks where flags may stand: those of the program before the command, those
// of a command behind it, --lab in either place. Flags behind a command's arguments belong
// to the arguments.
func TestFlagsStandBeforeOrBehindTheCommand(t *testing.T) {
	for line, want := range map[string]string{
		"do a":                 "demo [a]",
		"--lab x do a b":       "x [a b]",
		"do -lab=y a --lab z":  "y [a --lab z]",
		"--lab x do --lab y a": "y [a]",
		"do":                   "wrong number",
		"dont":                 "unknown command",
		"do --nope a":          "unknown flag --nope",
		"--nope do":            "unknown flag --nope",
		"on --timeout 5s a":    "demo [--timeout 5s a]",
		"on --lab z --help":    "z [--help]",
		"on -lab=z -t b --lab": "z [-t b --lab]",
		"on":                   "demo []",
	} {
		got, name := "", "demo"
		top := &flags.Set{}
		labFlag(top, &name)
		c := newCommand("do", "Does it", &name, func(_ context.Context, args []string) error {
			got = name + " [" + strings.Join(args, " ") + "]"
			return nil
		}).takes("WHAT...", 1, -1)
		on := newCommand("on", "Hands it on", &name, c.run).takes("ARGUMENT...", 0, -1)
		on.hands = true
		if err := execute(t.Context(), io.Discard, top, []*command{c, on}, strings.Fields(line)); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// TestHelpListsEveryCommandAndItsFlags: every command that people use is listed, and tells its flags.
func TestHelpListsEveryCommandAndItsFlags(t *testing.T) {
	top, all := commands()
	for _, c := range all {
		var one, list strings.Builder
		err := execute(t.Context(), &one, top, all, []string{"help", c.name})
		if err != nil || !strings.Contains(one.String(), "--lab NAME") {
			t.Errorf("help %s: %v\n%s", c.name, err, one.String())
		}
		if err := execute(t.Context(), &list, top, all, nil); err != nil {
			t.Error(err)
		}
		if slices.Contains(strings.Fields(list.String()), c.name) != (c.short != "") {
			t.Errorf("%s is listed wrongly:\n%s", c.name, list.String())
		}
	}
}
