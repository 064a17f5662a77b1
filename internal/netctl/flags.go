package netctl

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// flagSet are the flags of one command, parsed by package flag, as 1.x did: a
// name takes one dash or two, its value follows as the next argument or after
// "=". Flags may stand before, between and after positional arguments; "--"
// ends them.
type flagSet struct {
	defs []*flagDef
}

type flagDef struct {
	names   []string // long name first
	value   string   // placeholder in help; empty: a switch
	usage   string
	def     string // shown in help; empty: none
	set     func(string) error
	general bool   // one of the options that every command takes
	many    bool   // may be repeated
	adds    bool   // goes with other forms of the output: oneForm
	empties bool   // an empty value means none
	given   bool   // set on the command line
	text    string // as it was set there
	to      any    // pointer to what it sets; nil = it has none
	field   string // that netmaster calls by this name, if it is none of the object's own
}

func (s *flagSet) add(names, value, usage, def string, set func(string) error) *flagDef {
	d := &flagDef{value: value, usage: usage, def: def, set: set}
	for n := range strings.SplitSeq(names, ",") {
		d.names = append(d.names, strings.TrimSpace(n))
	}
	s.defs = append(s.defs, d)
	return d
}

// stringVar takes names as "long, short"; the default is what *p holds.
func (s *flagSet) stringVar(p *string, names, value, usage string) {
	s.add(names, value, usage, *p, func(v string) error {
		*p = v
		return nil
	}).to = p
}

func (s *flagSet) intVar(p *int, names, value, usage string) {
	s.add(names, value, usage, strconv.Itoa(*p), intInto(p)).to = p
}

func intInto(p *int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			switch {
			case errors.Is(err, strconv.ErrRange):
				return usageErrorf("is too big a number")
			case strings.Contains(strings.TrimPrefix(v, "-"), "-"):
				return usageErrorf("must be a whole number; there are no ranges")
			}
			return usageErrorf("must be a whole number")
		}
		*p = n
		return nil
	}
}

func (s *flagSet) boolVar(p *bool, names, usage string) *flagDef {
	d := s.add(names, "", usage, "", func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return usageErrorf("must be true or false")
		}
		*p = b
		return nil
	})
	d.to = p
	return d
}

func (s *flagSet) durationVar(p *time.Duration, names, usage string) {
	s.add(names, "TIME", usage, p.String(), func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return usageErrorf("must be a time above zero such as 5s or 1m30s")
		}
		*p = d
		return nil
	})
}

// listVar may be repeated; a value may also hold several, separated by commas.
func (s *flagSet) listVar(p *[]string, names, value, usage string) {
	d := s.add(names, value, usage+" (may be repeated)", "", func(v string) error {
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item == "" {
				return usageErrorf("must have no empty item")
			}
			*p = append(*p, item)
		}
		return nil
	})
	d.many, d.to = true, p
}

// textVar may be repeated; a value is taken as it is, commas included.
func (s *flagSet) textVar(p *[]string, names, value, usage string) {
	d := s.add(names, value, usage+" (may be repeated)", "", func(v string) error {
		*p = append(*p, v)
		return nil
	})
	d.many = true
}

func (s *flagSet) lookup(name string) *flagDef {
	for _, d := range s.defs {
		if slices.Contains(d.names, name) {
			return d
		}
	}
	return nil
}

// isFlag tells whether an argument is a flag; a lone dash is not.
func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// leading takes the flags that args begin with, and returns what follows; ended
// tells that "--" ended them, so that all that follows is positional.
func (s *flagSet) leading(args []string) (rest []string, ended bool, err error) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var bad error
	for _, d := range s.defs {
		for _, n := range d.names {
			if fs.Lookup(n) == nil { // a command's own flag wins over one that every command takes
				fs.Var(flagValue{d, &bad, s, args}, n, "")
			}
		}
	}
	err = fs.Parse(args)
	rest = fs.Args()
	taken := args[:len(args)-len(rest)]
	switch {
	case bad != nil:
		return nil, false, bad
	case err == nil:
		return rest, len(taken) > 0 && taken[len(taken)-1] == "--", nil
	}
	if text, ok := strings.CutPrefix(err.Error(), "bad flag syntax: "); ok {
		return nil, false, usageErrorf("unknown flag %s", text)
	}
	arg := taken[len(taken)-1] // the flag that package flag stopped at
	name, _, _ := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	if d := s.lookup(name); d != nil {
		return nil, false, usageErrorf("flag --%s needs a value: %s", d.names[0], d.value)
	}
	return nil, false, s.unknown(arg, name)
}

// flagValue is a flag under one of its names, for package flag.
type flagValue struct {
	d   *flagDef
	bad *error   // package flag would add its own words
	set *flagSet // that it is of
	all []string // the arguments that are parsed
}

func (v flagValue) String() string   { return "" }
func (v flagValue) IsBoolFlag() bool { return v.d != nil && v.d.value == "" }

func (v flagValue) Set(value string) error {
	if *v.bad = v.swallows(value); *v.bad == nil {
		*v.bad = v.d.assign(value)
	}
	return *v.bad
}

// swallows refuses a flag as the value of one before it: a variable between them was empty.
func (v flagValue) swallows(value string) error {
	if !isFlag(value) || !slices.Contains(v.all, value) {
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(value[1:], "-"), "=")
	if v.set.lookup(name) == nil {
		return nil
	}
	return usageErrorf("flag --%s needs a value: %s; %s follows, which is a flag (write --%[1]s=%[3]s if that is the value)", v.d.names[0], v.d.value, value)
}

func (d *flagDef) assign(value string) error {
	// The first of two values would be passed over in silence: a rule for one group
	// where two were named. A general flag may be there twice: a shell's alias may
	// hold the first.
	if d.given && !d.many && !d.general && value != d.text {
		return usageErrorf("flag --%s is given twice, %q and %q; give it once", d.names[0], d.text, value)
	}
	if strings.TrimSpace(value) == "" && d.value != "" && !d.empties { // an unset variable of a script
		return usageErrorf("flag --%s needs a value: %s, and not an empty one", d.names[0], d.value)
	}
	if err := d.set(value); err != nil {
		return usageErrorf("flag --%s %q: %v", d.names[0], value, err)
	}
	d.given, d.text = true, value
	return nil
}

// oneForm refuses flags that ask for different forms of the output.
func (s *flagSet) oneForm() error {
	asked, by := "", ""
	for _, name := range []string{"output", "json", "quiet"} {
		d := s.lookup(name)
		if d == nil || !d.given || d.adds {
			continue
		}
		form, flag := map[string]string{"json": formJSON, "quiet": formName}[name], "--"+name
		switch on, _ := strconv.ParseBool(d.text); {
		case name == "output":
			form, flag = d.text, "--output "+d.text
		case !on:
			continue
		}
		if asked != "" && asked != form {
			return usageErrorf("flags %s and %s ask for different output; give one of them", by, flag)
		}
		asked, by = form, flag
	}
	return nil
}

// given tells whether a flag was on the command line.
func (s *flagSet) given(name string) bool {
	d := s.lookup(name)
	return d != nil && d.given
}

func (s *flagSet) unknown(arg, name string) error {
	var long []string
	for _, d := range s.defs {
		long = append(long, d.names[0])
	}
	if (name == "o" || name == "output") && s.lookup("json") != nil {
		return usageErrorf("unknown flag %s; --json (-j) prints JSON, and lists ('ls', 'get KIND') take -o", dashes(arg, name))
	}
	if near := nearest(name, long); near != "" {
		return usageErrorf("unknown flag %s; did you mean --%s?", dashes(arg, name), near)
	}
	return usageErrorf("unknown flag %s", dashes(arg, name))
}

// dashes returns the flag as it was written, without its value.
func dashes(arg, name string) string { return arg[:strings.Index(arg, name)+len(name)] }

// parse takes all flags out of args and returns the positional arguments.
func (s *flagSet) parse(args []string) ([]string, error) {
	var positional []string
	for {
		rest, ended, err := s.leading(args)
		switch {
		case err != nil:
			return nil, err
		case ended || len(rest) == 0:
			return append(positional, rest...), nil
		}
		positional, args = append(positional, rest[0]), rest[1:]
	}
}

// inFlags names flags in netmaster's sentence about fields that they fill in of an object;
// nil = only what flags say of themselves.
func (s *flagSet) inFlags(object any, err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Status == http.StatusForbidden {
		return err
	}
	fields := map[any]string{} // by pointers to them
	if object != nil {
		for f, member := range reflect.ValueOf(object).Elem().Fields() {
			fields[member.Addr().Interface()] = cmp.Or(jsonName(f), strings.ToLower(f.Name))
		}
	}
	text := err.Error()
	for _, d := range s.defs {
		if field := cmp.Or(d.field, fields[d.to]); field != "" {
			said := regexp.MustCompile(`(^|: )` + regexp.QuoteMeta(field) + `(\[\d+\])?( "(?:[^"\\]|\\.)*")?:`)
			text = said.ReplaceAllString(text, "${1}--"+d.names[0]+"$2$3:")
		}
	}
	return &flagsError{err, text}
}

// flagsError is an error in the words of the command line.
type flagsError struct {
	err  error
	text string
}

func (e *flagsError) Error() string { return e.text }

func (e *flagsError) Unwrap() error { return e.err }

// label is the flag's left column in help: "-t, --tenant TENANT".
func (d *flagDef) label() string {
	var short, long []string
	for _, n := range d.names {
		if len(n) == 1 {
			short = append(short, "-"+n)
		} else {
			long = append(long, "--"+n)
		}
	}
	if short == nil {
		return strings.TrimRight("    "+strings.Join(long, ", ")+" "+d.value, " ")
	}
	return strings.TrimRight(strings.Join(append(short, long...), ", ")+" "+d.value, " ")
}

func (d *flagDef) help() string {
	if d.def == "" {
		return d.usage
	}
	return fmt.Sprintf("%s (default %s)", d.usage, d.def)
}
