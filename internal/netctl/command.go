package netctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// command is a node of the command tree: either a group of commands (subs) or
// something to run.
type command struct {
	name     string
	aliases  []string
	short    string   // one sentence
	note     string   // which part has no effect in this version, in model.NoEffect's words
	examples []string // whole command lines
	args     []string // positional arguments, all required, as in help
	optional []string // positional arguments after them that may be left out
	fills    any      // pointer to the object on the wire that the flags fill in; nil = none
	asks     any      // likewise to what is no object; nil = nothing
	subs     []*command
	lists    bool                    // prints a list: listFlags
	globals  *globals                // set on the root only
	version  func(w io.Writer) error // set on the root only: --version

	flags flags.Set
	// run gets the positional arguments: as many as args, and the optional ones given.
	run func(ctx context.Context, args []string) error
}

// invocation is a command line taken apart: what to do, under which name.
type invocation struct {
	path    string // for messages: "netctl network create"
	execute func(ctx context.Context, stdout io.Writer) error
}

func (c *command) find(name string) *command {
	for _, s := range c.subs {
		if s.name == name || slices.Contains(s.aliases, name) {
			return s
		}
	}
	return nil
}

// resolve finds the command that args name and parses its flags.
func (c *command) resolve(args []string) (invocation, error) {
	return c.resolveAt(c.name, args, c.globals, c.version)
}

// resolveAt goes down the tree: a group of commands looks for the next name, a
// command proper takes the rest.
func (c *command) resolveAt(path string, args []string, g *globals, version func(io.Writer) error) (invocation, error) {
	inv := invocation{path: path}
	var help, showVersion bool
	fs := c.allFlags(g, &help)
	if version != nil {
		fs.Bool(&showVersion, "version, v", "print netctl's version").General = true
	}
	for c.subs != nil && len(args) > 0 {
		if flags.IsFlag(args[0]) {
			var err error
			if args, _, err = fs.Leading(args); err != nil {
				return inv, err
			}
			continue
		}
		if args[0] == "help" || args[0] == "h" {
			return c.resolveHelp(path, args[1:], g)
		}
		sub := c.find(args[0])
		if sub == nil {
			return inv, c.unknown(path, args[0])
		}
		return sub.resolveAt(path+" "+sub.name, args[1:], g, nil)
	}
	positional, err := fs.Parse(args)
	if err != nil {
		return inv, err
	}
	switch {
	case showVersion:
		inv.execute = func(_ context.Context, w io.Writer) error { return version(w) }
	case help || c.subs != nil:
		inv.execute = func(_ context.Context, w io.Writer) error { return c.help(w, path, fs) }
	default:
		if err := errors.Join(c.checkArgs(positional), checkOneOutputForm(fs)); err != nil {
			return inv, err
		}
		inv.execute = func(ctx context.Context, _ io.Writer) error {
			return inFlags(&c.flags, cmp.Or(c.fills, c.asks), planned(ctx, c.run(ctx, positional)))
		}
	}
	return inv, nil
}

// resolveHelp answers "help network create": the help of the command that the
// names lead to.
func (c *command) resolveHelp(path string, names []string, g *globals) (invocation, error) {
	for _, name := range names {
		sub := c.find(name)
		if sub == nil {
			return invocation{path: path}, c.unknown(path, name)
		}
		c, path = sub, path+" "+sub.name
	}
	return invocation{path, func(_ context.Context, w io.Writer) error {
		return c.help(w, path, c.allFlags(g, new(bool)))
	}}, nil
}

// allFlags returns the command's own flags and the ones that every command takes.
func (c *command) allFlags(g *globals, help *bool) *flags.Set {
	general := &flags.Set{}
	g.bind(general)
	general.Bool(help, "help, h", "show this help")
	for _, d := range general.Flags {
		d.General = true
	}
	all := &flags.Set{Flags: append(slices.Clone(c.flags.Flags), general.Flags...)}
	if all.Lookup("json") != nil {
		const hint = "--json (-j) prints JSON, and lists ('ls', 'get KIND') take -o"
		all.Hints = map[string]string{"o": hint, "output": hint}
	}
	return all
}

func (c *command) checkArgs(positional []string) error {
	for i, name := range c.args {
		if i >= len(positional) {
			return flags.Usagef("%s is missing", name)
		}
		if positional[i] == "" {
			return flags.Usagef("%s must not be empty", name)
		}
	}
	if most := len(c.args) + len(c.optional); len(positional) > most {
		if positional[most] == "" {
			return flags.Usagef("unexpected argument \"\": a variable may be empty, or a switch that takes no value (such as --json, --token of login) has got one")
		}
		hint := ""
		if slices.Contains(c.args, "TEXT") {
			hint = ": write TEXT in quotes"
		}
		return flags.Usagef("unexpected argument %q%s", positional[most], hint)
	}
	return nil
}

func (c *command) unknown(path, name string) error {
	var names []string
	for _, s := range c.subs {
		names = append(append(names, s.name), s.aliases...)
	}
	var of []string // the commands of this name in groups, as for "netctl ls"
	for _, s := range c.subs {
		if sub := s.find(name); sub != nil {
			of = append(of, fmt.Sprintf("'%s %s %s'", path, s.name, sub.name))
		}
	}
	if len(of) > 0 {
		return flags.Usagef("unknown command %q; there are %s", name, strings.Join(of, ", "))
	}
	if near := flags.Nearest(name, names); near != "" {
		return flags.Usagef("unknown command %q; did you mean '%s %s'?", name, path, near)
	}
	return flags.Usagef("unknown command %q", name)
}

// usage is a line with the command's arguments.
func (c *command) usage(path string) string {
	words := []string{path}
	if c.subs != nil {
		words = append(words, "COMMAND")
	}
	words = append(append(words, "[flags]"), c.args...)
	for _, arg := range c.optional {
		words = append(words, "["+arg+"]")
	}
	return strings.Join(words, " ")
}

// help writes the command's help, examples first.
func (c *command) help(w io.Writer, path string, fs *flags.Set) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.short)
	for line := range strings.Lines(c.note) {
		fmt.Fprintf(&b, "Note: %s.\n", strings.TrimSpace(line))
	}
	b.WriteString("\nExamples:\n")
	for _, e := range c.examples {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", c.usage(path))
	if c.aliases != nil {
		fmt.Fprintf(&b, "\nAlso known as: %s\n", strings.Join(c.aliases, ", "))
	}
	tw := tabwriter.NewWriter(&b, 0, 2, 2, ' ', 0)
	if c.subs != nil {
		fmt.Fprint(tw, "\nCommands:\n")
		for _, s := range c.subs {
			fmt.Fprintf(tw, "  %s\t%s\n", strings.Join(append([]string{s.name}, s.aliases...), ", "), s.short)
		}
	}
	fs.Table(tw, "\nFlags:\n", false)
	fs.Table(tw, "\nGlobal flags:\n", true)
	if err := tw.Flush(); err != nil {
		return err
	}
	if c.globals != nil {
		b.WriteString("\nA long flag may be written with one dash (-subnet 10.1.1.0/24). Flags may stand before or after arguments.\n\nExit codes:\n")
		for code, meaning := range exitMeanings {
			fmt.Fprintf(&b, "  %d  %s\n", code, meaning)
		}
		b.WriteString("\n'netctl COMMAND --help' shows a command's help.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
