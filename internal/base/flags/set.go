package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrHelp and ErrVersion say that the arguments ask for the help or the version; the
// program prints it and ends well.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// Set are the flags of one program or command. The zero value has none.
type Set struct {
	Flags []*Flag
	// Program and About, a phrase, are of a program that takes flags only.
	Program, About string
	// Prefix begins the variables that flags have by default, such as
	// "CONTIV_NETMASTER_" for CONTIV_NETMASTER_DATA_DIR of --data-dir; "" = they have none.
	Prefix string
	// Settings: of two values the last one counts, and a value may be empty.
	Settings bool
	Hints    map[string]string // what to say of names that are none of its flags

	file string // of --config; "" = there is no such flag
}

func (s *Set) add(names, value, usage, def string, to any, set func(string) error) *Flag {
	f := &Flag{Value: value, Usage: usage, Default: def, To: to, set: set}
	for n := range strings.SplitSeq(names, ",") {
		f.Names = append(f.Names, strings.TrimSpace(n))
	}
	if s.Prefix != "" {
		f.Env = s.Prefix + strings.ToUpper(strings.ReplaceAll(f.Names[0], "-", "_"))
	}
	s.Flags = append(s.Flags, f)
	return f
}

// Lookup finds a flag by any of its names; nil = there is none.
func (s *Set) Lookup(name string) *Flag {
	for _, f := range s.Flags {
		if slices.Contains(f.Names, name) {
			return f
		}
	}
	return nil
}

// Given tells how a flag was set: "--name", "$VARIABLE" or "name in FILE"; "" = not at all.
func (s *Set) Given(name string) string {
	if f := s.Lookup(name); f != nil {
		return f.Given
	}
	return ""
}

// AtMostOne fails when more than one of the flags is set; what is what each names.
func (s *Set) AtMostOne(what string, names ...string) error {
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

// FromEnv takes the variables that are set and not empty.
func (s *Set) FromEnv(getenv func(string) string) error {
	for _, f := range s.Flags {
		if f.Env == "" {
			continue
		}
		if v := getenv(f.Env); v != "" {
			if err := f.assign("$"+f.Env, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// UnknownEnv returns the names of an environment, as os.Environ has it, that begin with the
// prefix and are no flag's: a misspelt one would be the default, without a word.
func (s *Set) UnknownEnv(environ []string) (names []string) {
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, s.Prefix) || strings.HasPrefix(name, s.Prefix+"TEST_") {
			continue
		}
		if !slices.ContainsFunc(s.Flags, func(f *Flag) bool { return f.Env == name }) {
			names = append(names, name)
		}
	}
	return names
}

// ParseAll reads the environment and the arguments, without the program's name, of a
// program that takes flags only. Errors are ErrHelp, ErrVersion or a *UsageError.
func (s *Set) ParseAll(args []string, getenv func(string) string) error {
	if err := s.FromEnv(getenv); err != nil {
		return err
	}
	var help, version bool
	all := s.withStandard(&help, &version)
	rest, err := all.Parse(args)
	switch {
	case err != nil:
		return err
	case help, len(rest) > 0 && (rest[0] == "help" || rest[0] == "h"):
		return ErrHelp
	case version:
		return ErrVersion
	case len(rest) > 0:
		return Usagef("unexpected argument %q: %s takes flags only%s", rest[0], s.Program, s.seeHelp())
	}
	return nil
}

// withStandard adds the flags of every program.
func (s *Set) withStandard(help, version *bool) *Set {
	all := &Set{Flags: slices.Clone(s.Flags), Program: s.Program, Settings: s.Settings}
	all.Bool(help, "help, h", "print this text")
	all.Bool(version, "version, v", "print the version")
	return all
}

// IsFlag reports whether an argument is a flag; a lone dash is not.
func IsFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// Parse takes all flags out of args and returns the positional arguments.
func (s *Set) Parse(args []string) ([]string, error) {
	var positional []string
	for {
		rest, ended, err := s.Leading(args)
		switch {
		case err != nil:
			return nil, err
		case ended || len(rest) == 0:
			return append(positional, rest...), nil
		}
		positional, args = append(positional, rest[0]), rest[1:]
	}
}

// Leading takes the flags that args begin with, and returns what follows; ended tells
// that "--" ended them, so that all that follows is positional.
func (s *Set) Leading(args []string) (rest []string, ended bool, err error) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var bad error
	for _, f := range s.Flags {
		for _, n := range f.Names {
			if fs.Lookup(n) == nil { // a command's own flag wins over one that every command takes
				fs.Var(spelling{f, n, s, args, &bad}, n, "")
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
		return nil, false, Usagef("unknown flag %s", text)
	}
	arg := taken[len(taken)-1] // the flag that package flag stopped at
	name := nameOf(arg)
	if f := s.Lookup(name); f != nil {
		return nil, false, Usagef("flag --%s needs a value: %s", f.Names[0], f.Value)
	}
	return nil, false, s.unknown(arg, name)
}

// nameOf is the name in a flag as it is written.
func nameOf(arg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	return name
}

func (s *Set) unknown(arg, name string) error {
	var long []string
	for _, f := range s.Flags {
		long = append(long, f.Names[0])
	}
	written := arg[:strings.Index(arg, name)+len(name)]
	if hint := s.Hints[name]; hint != "" {
		return Usagef("unknown flag %s; %s", written, hint)
	}
	if near := Nearest(name, long); near != "" {
		return Usagef("unknown flag %s; did you mean --%s?%s", written, near, s.seeHelp())
	}
	return Usagef("unknown flag %s%s", written, s.seeHelp())
}

// seeHelp ends refusals of a program that takes flags only.
func (s *Set) seeHelp() string {
	if s.Program == "" {
		return ""
	}
	return "; see " + s.Program + " --help"
}

// spelling is a flag under one of its names, for package flag.
type spelling struct {
	f   *Flag
	typ string
	set *Set     // that it is of
	all []string // the arguments that are parsed
	bad *error   // package flag would add its own words
}

func (v spelling) String() string   { return "" }
func (v spelling) IsBoolFlag() bool { return v.f != nil && v.f.Value == "" }

func (v spelling) Set(value string) error {
	if *v.bad == nil {
		*v.bad = v.take(value)
	}
	return *v.bad
}

func (v spelling) take(value string) error {
	name := v.typ
	if len(name) == 1 {
		name = v.f.Names[0]
	}
	if IsFlag(value) && slices.Contains(v.all, value) && v.set.Lookup(nameOf(value)) != nil {
		// A variable between the two was empty.
		return Usagef("flag --%s needs a value: %s; %s follows, which is a flag (write --%[1]s=%[3]s if that is the value)", name, v.f.Value, value)
	}
	if !v.set.Settings {
		// The first of two values would be passed over in silence: a rule for one group
		// where two were named. A general flag may be there twice: a shell's alias may
		// hold the first.
		if v.f.Given != "" && !v.f.Many && !v.f.General && value != v.f.Text {
			return Usagef("flag --%s is given twice, %q and %q; give it once", name, v.f.Text, value)
		}
		if strings.TrimSpace(value) == "" && v.f.Value != "" && !v.f.Empties { // an unset variable of a script
			return Usagef("flag --%s needs a value: %s, and not an empty one", name, v.f.Value)
		}
	}
	return v.f.assign("flag --"+name, value)
}

// Deprecated are the earlier flags and names that were given, each with today's.
func (s *Set) Deprecated() (names []string) {
	for _, f := range s.Flags {
		name, typed := strings.CutPrefix(f.Given, "--")
		switch {
		case f.Given != "" && f.Instead != "":
			names = append(names, f.Given+": now "+f.Instead)
		case typed && name != f.Names[0]:
			names = append(names, f.Given+": now --"+f.Names[0])
		}
	}
	return names
}

// Help is the help of a program that takes flags only.
func (s *Set) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nusage: %[1]s [flags]\n\nflags (also with one dash, and as --flag=value):\n", s.Program, s.About)
	all := s.withStandard(new(bool), new(bool))
	slices.SortFunc(all.Flags, func(a, b *Flag) int { return strings.Compare(a.Names[0], b.Names[0]) })
	for _, f := range all.Flags {
		fmt.Fprintf(&b, "  %s\n        %s\n", strings.TrimSpace(f.Label()), f.Help())
	}
	return b.String()
}

// Table writes the flags that are general or not, in two columns below a title, for a
// tabwriter.
func (s *Set) Table(w io.Writer, title string, general bool) {
	for _, f := range s.Flags {
		if f.General == general {
			fmt.Fprintf(w, "%s  %s\t%s\n", title, f.Label(), f.Help())
			title = ""
		}
	}
}
