package netctl

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// checkOneOutputForm refuses flags that ask for different forms of the output.
func checkOneOutputForm(s *flags.Set) error {
	asked, by := "", ""
	for _, name := range []string{"output", "json", "quiet"} {
		d := s.Lookup(name)
		if d == nil || d.Given == "" || d.Adds {
			continue
		}
		form, flag := map[string]string{"json": formJSON, "quiet": formName}[name], "--"+name
		switch on, _ := strconv.ParseBool(d.Text); {
		case name == "output":
			form, flag = d.Text, "--output "+d.Text
		case !on:
			continue
		}
		if asked != "" && asked != form {
			return flags.Usagef("flags %s and %s ask for different output; give one of them", by, flag)
		}
		asked, by = form, flag
	}
	return nil
}

// inFlags names flags in netmaster's sentence about fields that they fill in of an object;
// nil = only what flags say of themselves.
func inFlags(s *flags.Set, object any, err error) error {
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
	for _, d := range s.Flags {
		if field := cmp.Or(d.Field, fields[d.To]); field != "" {
			said := regexp.MustCompile(`(^|[:;] )` + regexp.QuoteMeta(field) + `(\[\d+\])?( "(?:[^"\\]|\\.)*")?:`)
			text = said.ReplaceAllString(text, "${1}--"+d.Names[0]+"$2$3:")
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
