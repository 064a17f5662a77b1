package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

var update = flag.Bool("update", false, "write docs/reference/contivlab.md")

// TestReferencePageIsTheHelp: the page of the commands is what their help says.
func TestReferencePageIsTheHelp(t *testing.T) {
	p := &pagetest.Page{
		Name: "contivlab.md", Command: "go test ./cmd/contivlab -run TestReferencePageIsTheHelp -update", Title: "Commands of contivlab",
		Purpose: "On this page you look up the commands and flags of contivlab; [the lab](../how-to/demo.md) explains their use.",
	}
	_, all := commands()
	for _, c := range all {
		if c.short != "" {
			p.Printf("\n## %s\n\n%s. Usage: `%s`\n", c.name, strings.TrimSuffix(c.short, "."), c.usage())
			p.Flags(c.flags.Flags)
		}
	}
	p.Check(t, *update)
}
