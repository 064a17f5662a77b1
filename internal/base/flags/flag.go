package flags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// UsageError says that the command line or the environment is wrong.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a formatted sentence.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Flag is one option of a program or a command.
type Flag struct {
	Names   []string // without dashes; the name of today first, then short and earlier ones
	Env     string   // variable that sets it too; "" = none
	Value   string   // placeholder in the help; "" = a switch
	Usage   string   // phrase without full stop
	Default string   // in the help; "" = none
	General bool     // every command takes it
	Many    bool     // may be repeated
	Empties bool     // an empty value means none
	Text    string   // as it was set
	Given   string   // how it was set: "--name", "$VARIABLE" or "name in FILE"; "" = not at all
	To      any      // pointer to what it sets; nil = it has none
	Field   string   // what netmaster calls it, if it is no field of the command's object
	Adds    bool     // goes with other forms of the output
	Instead string   // the flag is deprecated: what to give instead

	set   func(string) error
	check func(string) error
}

// Must validates values; its error is a phrase that says what is allowed, such as
// "must be ip:port".
func (f *Flag) Must(check func(string) error) *Flag {
	f.check = check
	return f
}

// Else is the default in the help, where the variable's own value does not tell.
func (f *Flag) Else(text string) *Flag {
	f.Default = text
	return f
}

// From has a variable set the flag, or none.
func (f *Flag) From(variable string) *Flag {
	f.Env = variable
	return f
}

// Old deprecates the flag: it goes on working, and instead says what to give.
func (f *Flag) Old(instead string) *Flag {
	f.Instead = instead
	return f
}

func (f *Flag) assign(how, value string) error {
	if f.check != nil {
		if err := f.check(value); err != nil {
			return Usagef("%s %q: %w", how, value, err)
		}
	}
	if err := f.set(value); err != nil {
		return Usagef("%s %q: %w", how, value, err)
	}
	f.Given, f.Text = strings.TrimPrefix(how, "flag "), value
	return nil
}

// String takes names as "long, short"; the default is what *p holds.
func (s *Set) String(p *string, names, value, usage string) *Flag {
	return s.add(names, value, usage, *p, p, func(v string) error {
		*p = v
		return nil
	})
}

// Func takes a value by a function.
func (s *Set) Func(names, value, usage, def string, set func(string) error) *Flag {
	return s.add(names, value, usage, def, nil, set)
}

// Strings takes a list separated by commas; empty parts are left out.
func (s *Set) Strings(p *[]string, names, value, usage string) *Flag {
	return s.add(names, value, usage, strings.Join(*p, ","), p, func(v string) error {
		*p = Split(v)
		return nil
	})
}

// Split splits a comma-separated list and drops spaces and empty parts.
func Split(v string) []string {
	var out []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// List may be repeated; a value may also hold several, separated by commas.
func (s *Set) List(p *[]string, names, value, usage string) *Flag {
	f := s.add(names, value, usage, "", p, func(v string) error {
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item == "" {
				return errors.New("must have no empty item")
			}
			*p = append(*p, item)
		}
		return nil
	})
	f.Many = true
	return f
}

// Texts may be repeated; a value is taken as it is, commas included.
func (s *Set) Texts(p *[]string, names, value, usage string) *Flag {
	f := s.add(names, value, usage, "", nil, func(v string) error {
		*p = append(*p, v)
		return nil
	})
	f.Many = true
	return f
}

// Enum takes one of the known values, in any case; the variable gets the spelling of known.
func (s *Set) Enum(p *string, names, value, usage string, known ...string) *Flag {
	return s.add(names, value, usage, *p, p, func(v string) error {
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, v) })
		if i < 0 {
			return fmt.Errorf("must be one of %s", strings.Join(known, ", "))
		}
		*p = known[i]
		return nil
	})
}

// Int takes a whole number.
func (s *Set) Int(p *int, names, value, usage string) *Flag {
	return s.add(names, value, usage, strconv.Itoa(*p), p, func(v string) error {
		n, err := strconv.Atoi(v)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return errors.New("is too big a number")
		case err != nil && strings.Contains(strings.TrimPrefix(v, "-"), "-"):
			return errors.New("must be a whole number; there are no ranges")
		case err != nil:
			return errors.New("must be a whole number")
		}
		*p = n
		return nil
	})
}

// IntWithin takes a whole number from lo to hi.
func (s *Set) IntWithin(p *int, names, value, usage string, lo, hi int) *Flag {
	return s.add(names, value, usage, strconv.Itoa(*p), p, func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("must be a whole number between %d and %d", lo, hi)
		}
		*p = n
		return nil
	})
}

// Bool is a switch: --flag or --flag=false; its variable holds true or false.
func (s *Set) Bool(p *bool, names, usage string) *Flag {
	return s.add(names, "", usage, "", p, func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("must be true or false")
		}
		*p = b
		return nil
	})
}

// Duration takes a time above zero.
func (s *Set) Duration(p *time.Duration, names, usage string) *Flag {
	return s.add(names, "TIME", usage, p.String(), nil, func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return errors.New("must be a time above zero such as 5s or 1m30s")
		}
		*p = d
		return nil
	})
}

// Label is the flag's left column in the help: "-t, --tenant TENANT".
func (f *Flag) Label() string {
	var short, long []string
	for _, n := range f.Names {
		if len(n) == 1 {
			short = append(short, "-"+n)
		} else {
			long = append(long, "--"+n)
		}
	}
	indent := ""
	if short == nil {
		indent = "    "
	}
	return strings.TrimRight(indent+strings.Join(append(short, long...), ", ")+" "+f.Value, " ")
}

// Help says what the flag does, which variable sets it and what it is by default.
func (f *Flag) Help() string {
	text := f.Usage
	if f.Many {
		text += " (may be repeated)"
	}
	if f.Env != "" {
		text += " [$" + f.Env + "]"
	}
	if f.Default != "" {
		text += " (default " + f.Default + ")"
	}
	return text
}
