package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// command is one of contivlab's. Flags stand before its arguments.
type command struct {
	name  string
	args  string // as in help; empty = none
	short string // one sentence; empty: of no use to people
	least int    // arguments
	most  int    // -1 = any number
	hands bool   // hands all but a leading --lab on, flags too
	flags flags.Set
	run   func(ctx context.Context, args []string) error
}

// newCommand makes a command without arguments, which takes --lab; a caller gives it more.
func newCommand(name, short string, lab *string, run func(ctx context.Context, args []string) error) *command {
	c := &command{name: name, short: short, run: run}
	labFlag(&c.flags, lab)
	return c
}

// takes sets a command's arguments.
func (c *command) takes(args string, least, most int) *command {
	c.args, c.least, c.most = args, least, most
	return c
}

func labFlag(fs *flags.Set, lab *string) {
	fs.String(lab, "lab", "NAME", "name of the lab: 1-12 lower-case letters and digits")
}

// execute runs the command line args. Help goes to out.
func execute(ctx context.Context, out io.Writer, top *flags.Set, all []*command, args []string) error {
	args, help, err := parse(top, args)
	switch {
	case err != nil:
		return err
	case help, len(args) == 0, args[0] == "help" && len(args) == 1:
		overview(out, all)
		return nil
	case args[0] == "help":
		help, args = true, args[1:]
	}
	for _, c := range all {
		if c.name != args[0] {
			continue
		}
		if help {
			c.help(out)
			return nil
		}
		own, handed := args[1:], []string(nil)
		if c.hands {
			own, handed = cutLab(own)
		}
		rest, help, err := parse(&c.flags, own)
		rest = append(rest, handed...)
		switch {
		case err != nil:
			return err
		case help:
			c.help(out)
			return nil
		case len(rest) < c.least || c.most >= 0 && len(rest) > c.most:
			return fmt.Errorf("%s: wrong number of arguments; usage: %s", c.name, c.usage())
		}
		return c.run(ctx, rest)
	}
	return fmt.Errorf("unknown command %q; contivlab --help lists them", args[0])
}

// cutLab returns the --lab that arguments begin with, and what follows.
func cutLab(args []string) (own, rest []string) {
	n := 0
	if len(args) > 0 {
		switch name, _, whole := strings.Cut(args[0], "="); {
		case name != "--lab" && name != "-lab":
		case whole:
			n = 1
		default:
			n = min(2, len(args))
		}
	}
	return args[:n], args[n:]
}

// parse takes the flags that args begin with; help says that they ask for it.
func parse(fs *flags.Set, args []string) (rest []string, help bool, err error) {
	all := flags.Set{Flags: slices.Clone(fs.Flags)}
	all.Bool(&help, "help, h", "show this help")
	rest, _, err = all.Leading(args)
	return rest, help, err
}

func (c *command) usage() string {
	return strings.TrimSpace("contivlab " + c.name + " [flags] " + c.args)
}

func (c *command) help(out io.Writer) {
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", c.short, c.usage())
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	c.flags.Table(w, "\nFlags:\n", false)
	_ = w.Flush() // a terminal that is gone needs no help
}

func overview(out io.Writer, all []*command) {
	fmt.Fprint(out, "Clusters of simulated hosts on this machine, in network namespaces\n\nUsage:\n  contivlab [--lab NAME] COMMAND [flags] [arguments]\n\nCommands:\n")
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, c := range all {
		if c.short != "" {
			fmt.Fprintf(w, "  %s\t%s\n", c.name, c.short)
		}
	}
	_ = w.Flush() // a terminal that is gone needs no help
	fmt.Fprint(out, "\n'contivlab COMMAND --help' shows a command's flags.\n")
}
