package netctl

import (
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

// TestReferencePageIsTheCommandTree: the page of the commands is what the command tree says.
func TestReferencePageIsTheCommandTree(t *testing.T) {
	p := &pagetest.Page{
		Name: "netctl.md", Command: "go test ./internal/netctl -run TestReferencePageIsTheCommandTree -update", Title: "Commands of netctl",
		Purpose: "On this page you look up the commands and flags of netctl; [netctl](../how-to/netctl.md) explains their use, and `netctl COMMAND --help` shows examples.",
	}
	root := newRoot(common{session: &session{globals: globals{netmaster: "the cluster of the last login, else " + DefaultNetmaster + ", or " + localNetmaster + " without that name"}}}, Env{Getenv: noVariables})
	p.Printf("\n## Flags of every command\n")
	p.Flags(root.allFlags(root.globals, new(bool)).Flags)
	p.Printf("\n## Exit codes\n")
	var codes [][]string
	for code, meaning := range exitMeanings {
		codes = append(codes, []string{strconv.Itoa(code), meaning})
	}
	p.Table([]string{"code", "meaning"}, codes...)
	for _, c := range root.subs {
		c.describeOn(p, "netctl", "##")
	}
	p.Check(t, *update)
}

// describeOn appends the command and those below it to the page.
func (c *command) describeOn(p *pagetest.Page, path, heading string) {
	path += " " + c.name
	p.Printf("\n%s %s\n\n%s.", heading, path, strings.TrimSuffix(c.short, "."))
	for line := range strings.Lines(c.note) {
		p.Printf(" Note: %s.", strings.TrimSpace(line))
	}
	p.Printf(" Usage: `%s`", c.usage(path))
	if c.aliases != nil {
		p.Printf("; also `%s`", strings.Join(c.aliases, "`, `"))
	}
	p.Printf("\n")
	if len(c.flags.Flags) > 0 {
		p.Flags(c.flags.Flags)
	}
	for _, s := range c.subs {
		s.describeOn(p, path, heading+"#")
	}
}
