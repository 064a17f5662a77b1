package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// command is one of contivlab's. Flags stand before its arguments.
type command struct {
	name  string
	args  string // as in help; empty = none
	short string // one sentence; empty: of no use to people
	least int    // arguments
	most  int    // -1 = any number
	hands bool   // hands all but a leading --lab on, flags too
	flags *flag.FlagSet
	run   func(ctx context.Context, args []string) error
}

// newCommand makes a command without arguments, which takes --lab; a caller gives it more.
func newCommand(name, short string, lab *string, run func(ctx context.Context, args []string) error) *command {
	c := &command{name: name, short: short, flags: flag.NewFlagSet(name, flag.ContinueOnError), run: run}
	labFlag(c.flags, lab)
	return c
}

// takes sets a command's arguments.
func (c *command) takes(args string, least, most int) *command {
	c.args, c.least, c.most = args, least, most
	return c
}

func labFlag(fs *flag.FlagSet, lab *string) {
	fs.StringVar(lab, "lab", *lab, "`name` of the lab: 1-12 lower-case letters and digits")
}

// given tells whether a flag was on the command line.
func given(fs *flag.FlagSet, name string) (is bool) {
	fs.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

// execute runs the command line args. Help goes to out.
func execute(ctx context.Context, out io.Writer, top *flag.FlagSet, all []*command, args []string) error {
	top.Usage = func() { overview(out, all) }
	if done, err := parse(top, args); done {
		return err
	}
	args = top.Args()
	if len(args) == 0 || args[0] == "help" && len(args) == 1 {
		top.Usage()
		return nil
	}
	help := args[0] == "help"
	if help {
		args = []string{args[1], "--help"}
	}
	for _, c := range all {
		if c.name != args[0] {
			continue
		}
		c.flags.Usage = func() { c.help(out) }
		own, handed := args[1:], []string(nil)
		if c.hands && !help {
			own, handed = cutLab(own)
		}
		if done, err := parse(c.flags, own); done {
			return err
		}
		rest := append(c.flags.Args(), handed...)
		if len(rest) < c.least || c.most >= 0 && len(rest) > c.most {
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

// parse parses flags, and tells whether that was all, as after --help.
func parse(fs *flag.FlagSet, args []string) (done bool, err error) {
	usage := fs.Usage
	fs.Usage = func() {} // not at every mistake
	defer func() { fs.Usage = usage }()
	fs.SetOutput(io.Discard)
	err = fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		usage()
		return true, nil
	}
	return err != nil, err
}

func (c *command) usage() string {
	return strings.TrimSpace("contivlab " + c.name + " [flags] " + c.args)
}

func (c *command) help(out io.Writer) {
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n\nFlags:\n", c.short, c.usage())
	c.flags.SetOutput(out)
	c.flags.PrintDefaults()
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
	fmt.Fprint(out, "\n'contivlab COMMAND --help' tells the flags of one.\n")
}
