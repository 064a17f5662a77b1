package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ErrHelp and ErrVersion are returned by Parse when the arguments ask for the
// help text or the version; the program prints it and exits 0.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// UsageError says that the command line or the environment is wrong: exit 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a formatted sentence.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Flag describes one setting of a program.
type Flag struct {
	Name    string   // without dashes
	Aliases []string // old spellings and short forms, without dashes
	Env     string   // environment variable; empty = none
	Value   string   // placeholder in the help text, such as "ip:port"; empty for booleans
	Usage   string   // sentence without full stop
	Default string   // as shown in the help text when the variable's own value does not tell
	// Check validates a value that was given; its error is a phrase saying what
	// is allowed, such as "must be ip:port". It may be nil.
	Check func(string) error
}

// FlagSet is a set of flags, each settable by any of its spellings (with one
// dash or two, "--flag value" or "--flag=value"), or by its environment
// variable. The command line wins over the environment.
type FlagSet struct {
	program, what string
	flags         []*boundFlag
	byName        map[string]*boundFlag
	twice         string // a spelling that two flags have; empty = none
}

type boundFlag struct {
	Flag
	set   func(string) error
	show  string // default in the help text
	isBol bool
	given string // how it was set: "--name" or "$VARIABLE"; empty = not at all
}

// NewFlagSet returns an empty set; what is a sentence about the program.
func NewFlagSet(program, what string) *FlagSet {
	return &FlagSet{program: program, what: what, byName: make(map[string]*boundFlag)}
}

func (s *FlagSet) add(b *boundFlag) {
	if b.Default != "" {
		b.show = b.Default
	}
	s.flags = append(s.flags, b)
	for _, n := range append([]string{b.Name}, b.Aliases...) {
		if s.byName[n] != nil && s.twice == "" {
			s.twice = n // a mistake of the programmer, which every Parse reports
		}
		s.byName[n] = b
	}
}

// String binds a text; the variable's present value is the default.
func (s *FlagSet) String(p *string, f Flag) {
	s.add(&boundFlag{Flag: f, show: *p, set: func(v string) error {
		*p = v
		return nil
	}})
}

// Strings binds a list separated by commas; empty parts are left out.
func (s *FlagSet) Strings(p *[]string, f Flag) {
	s.add(&boundFlag{Flag: f, show: strings.Join(*p, ","), set: func(v string) error {
		*p = SplitList(v)
		return nil
	}})
}

// SplitList splits a comma-separated list and drops spaces and empty parts.
func SplitList(v string) []string {
	var out []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// Enum binds a text that must be one of the known values, in any case; the
// variable gets the spelling of known.
func (s *FlagSet) Enum(p *string, f Flag, known ...string) {
	s.add(&boundFlag{Flag: f, show: *p, set: func(v string) error {
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, v) })
		if i < 0 {
			return fmt.Errorf("must be one of %s", strings.Join(known, ", "))
		}
		*p = known[i]
		return nil
	}})
}

// Int binds a whole number between lo and hi.
func (s *FlagSet) Int(p *int, f Flag, lo, hi int) {
	s.add(&boundFlag{Flag: f, show: strconv.Itoa(*p), set: func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("must be a whole number between %d and %d", lo, hi)
		}
		*p = n
		return nil
	}})
}

// Bool binds a switch: "--flag" or "--flag=false"; its environment variable
// holds true or false.
func (s *FlagSet) Bool(p *bool, f Flag) {
	s.add(&boundFlag{Flag: f, isBol: true, set: func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("must be true or false")
		}
		*p = b
		return nil
	}})
}

// flagValue adapts a boundFlag, under one of its spellings, to package flag.
type flagValue struct {
	b     *boundFlag
	typed string
	err   *error
}

func (v flagValue) String() string   { return "" }
func (v flagValue) IsBoolFlag() bool { return v.b != nil && v.b.isBol }

func (v flagValue) Set(value string) error {
	if *v.err == nil {
		*v.err = v.b.assign("--"+v.typed, value)
	}
	return nil // package flag would add its own words; Parse returns *v.err
}

func (b *boundFlag) assign(how, value string) error {
	err := error(nil)
	if b.Check != nil {
		err = b.Check(value)
	}
	if err == nil {
		err = b.set(value)
	}
	if err != nil {
		return Usagef("%s %q: %w", how, value, err)
	}
	b.given = how
	return nil
}

// UnknownEnv returns the names of an environment, as os.Environ has it, that begin with a
// program's prefix and are no flag's: a misspelt one would be the default, without a word.
func (s *FlagSet) UnknownEnv(prefix string, environ []string) (names []string) {
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, prefix+"TEST_") {
			continue
		}
		if !slices.ContainsFunc(s.flags, func(b *boundFlag) bool { return b.Env == name }) {
			names = append(names, name)
		}
	}
	return names
}

// checkValues refuses a flag whose value is another flag: --token $EMPTY --join HOST would
// take --join for the token.
func (s *FlagSet) checkValues(args []string) error {
	for i := 0; i+1 < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		b := s.byName[name]
		if b == nil || b.isBol || name == args[i] {
			continue
		}
		i++ // its value
		next, _, _ := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if strings.HasPrefix(args[i], "-") && s.byName[next] != nil {
			return Usagef("--%s needs a value, and %s follows: is a variable empty?", name, args[i])
		}
	}
	return nil
}

// Parse reads the environment and then the arguments (without the program's
// name). Errors are ErrHelp, ErrVersion or a *UsageError.
func (s *FlagSet) Parse(args []string, lookupEnv func(string) (string, bool)) error {
	if s.twice != "" {
		return fmt.Errorf("flag --%s of %s is bound twice", s.twice, s.program)
	}
	for _, b := range s.flags {
		if b.Env == "" {
			continue
		}
		if v, ok := lookupEnv(b.Env); ok && v != "" {
			if err := b.assign("$"+b.Env, v); err != nil {
				return err
			}
		}
	}
	fs := flag.NewFlagSet(s.program, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	var bad error
	for n, b := range s.byName {
		fs.Var(flagValue{b, n, &bad}, n, "")
	}
	var version, v bool
	fs.BoolVar(&version, "version", false, "")
	fs.BoolVar(&v, "v", false, "")
	if err := s.checkValues(args); err != nil {
		return err
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ErrHelp
	case bad != nil:
		return bad
	case err != nil:
		return Usagef("%s; see %s --help", strings.ReplaceAll(err.Error(), ": -", ": --"), s.program)
	case version || v:
		return ErrVersion
	}
	switch rest := fs.Args(); {
	case len(rest) == 0:
		return nil
	case rest[0] == "help" || rest[0] == "h":
		return ErrHelp
	default:
		return Usagef("unexpected argument %q: %s takes flags only; see %s --help", rest[0], s.program, s.program)
	}
}

// Given tells how the flag of this name was set: "--spelling" or "$VARIABLE";
// empty when it has its default.
func (s *FlagSet) Given(name string) string {
	if b := s.byName[name]; b != nil {
		return b.given
	}
	return ""
}

// AtMostOne fails when more than one of the flags is set; what is what each names.
func (s *FlagSet) AtMostOne(what string, names ...string) error {
	first := ""
	for _, name := range names {
		switch how := s.Given(name); {
		case how == "":
		case first == "":
			first = how
		default:
			return Usagef("%s and %s both name %s; give one", first, how, what)
		}
	}
	return nil
}

// Flags returns every flag, in the order in which they were bound.
func (s *FlagSet) Flags() []Flag {
	out := make([]Flag, len(s.flags))
	for i, b := range s.flags {
		out[i] = b.Flag
	}
	return out
}

// Names returns every spelling of every flag, sorted: for tests and
// documentation checks.
func (s *FlagSet) Names() []string {
	var out []string
	for n := range s.byName {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Variables returns every environment variable, sorted.
func (s *FlagSet) Variables() []string {
	var out []string
	for _, b := range s.flags {
		if b.Env != "" {
			out = append(out, b.Env)
		}
	}
	slices.Sort(out)
	return out
}

// Usage returns the help text.
func (s *FlagSet) Usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nusage: %s [flags]\n\nflags (also with one dash, and as --flag=value):\n", s.program, s.what, s.program)
	rows := slices.Clone(s.flags)
	slices.SortFunc(rows, func(a, b *boundFlag) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range rows {
		fmt.Fprintf(&b, "  --%s", f.Name)
		for _, a := range f.Aliases {
			fmt.Fprintf(&b, ", --%s", a)
		}
		if f.Value != "" {
			fmt.Fprintf(&b, " %s", f.Value)
		}
		fmt.Fprintf(&b, "\n        %s", f.Usage)
		if f.show != "" && !f.isBol {
			fmt.Fprintf(&b, " (default %s)", f.show)
		}
		if f.Env != "" {
			fmt.Fprintf(&b, " [$%s]", f.Env)
		}
		b.WriteString("\n")
	}
	b.WriteString("  --help, -h\n        print this text\n  --version, -v\n        print the version\n")
	return b.String()
}
