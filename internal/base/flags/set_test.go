package flags

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type settings struct {
	Name string
	List []string
	Port int
	On   bool
	Mode string
}

func newSet(v *settings) *Set {
	fs := &Set{Program: "prog", About: "does things", Settings: true}
	fs.String(&v.Name, "name, plugin-name, n", "name", "a name").Must(func(s string) error {
		if s == "bad" {
			return errors.New("must not be bad")
		}
		return nil
	}).From("P_NAME")
	fs.Strings(&v.List, "list", "items", "a list").From("P_LIST")
	fs.IntWithin(&v.Port, "port", "port", "a port", 1, 65535).From("P_PORT")
	fs.Bool(&v.On, "on", "a switch").From("P_ON")
	fs.Enum(&v.Mode, "mode", "mode", "a mode", "docker", "none").From("P_MODE")
	return fs
}

// TestCommandLineWinsOverEnvironment covers spellings, precedence, and the sentences of refusals.
func TestCommandLineWinsOverEnvironment(t *testing.T) {
	tests := []struct {
		args []string
		env  map[string]string
		want settings
		err  string
	}{
		{args: []string{"--name", "x", "-port", "5", "--on", "--mode=DOCKER"}, want: settings{Name: "x", Port: 5, On: true, Mode: "docker"}},
		{args: []string{"-plugin-name=x", "--list", "a, b,,c", "--on=false"}, want: settings{Name: "x", Port: 1, List: []string{"a", "b", "c"}}},
		{args: []string{"-n", "y"}, env: map[string]string{"P_NAME": "x", "P_ON": "true", "P_PORT": ""}, want: settings{Name: "y", Port: 1, On: true}},
		{env: map[string]string{"P_LIST": "a", "P_MODE": "none", "P_PORT": "9"}, want: settings{Port: 9, List: []string{"a"}, Mode: "none"}},
		{args: []string{"--port", "0"}, err: `flag --port "0": must be a whole number between 1 and 65535`},
		{args: []string{"-plugin-name", "bad"}, err: `flag --plugin-name "bad": must not be bad`},
		{args: []string{"--mode", "x"}, err: `flag --mode "x": must be one of docker, none`},
		{args: []string{"--on=maybe"}, err: `flag --on "maybe": must be true or false`},
		{env: map[string]string{"P_PORT": "x"}, err: `$P_PORT "x": must be a whole number between 1 and 65535`},
		{args: []string{"--nope"}, err: `unknown flag --nope; see prog --help`},
		{args: []string{"--name"}, err: `flag --name needs a value: name`},
		{args: []string{"start"}, err: `unexpected argument "start": prog takes flags only; see prog --help`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := settings{Port: 1}
			err := newSet(&got).ParseAll(tt.args, func(k string) string { return tt.env[k] })
			if tt.err != "" {
				var usage *UsageError
				if !errors.As(err, &usage) || err.Error() != tt.err {
					t.Fatalf("got error %v, want usage error %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestFlagIsNoValue: an empty variable leaves nothing between two flags.
func TestFlagIsNoValue(t *testing.T) {
	for line, want := range map[string]string{
		"--token --join h1":   "flag --token needs a value: text; --join follows",
		"-token --join=h1":    "flag --token needs a value: text; --join=h1 follows",
		"--token -1 --join x": "",
		"--token=x --join y":  "",
		"--all --join y":      "",
	} {
		fs, text, all := &Set{Settings: true}, "", false
		fs.String(&text, "token", "text", "u")
		fs.String(&text, "join", "text", "u")
		fs.Bool(&all, "all", "u")
		err := fs.ParseAll(strings.Fields(line), func(string) string { return "" })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestMisspeltVariablesAreNamed: but for those of tests, and of other programs.
func TestMisspeltVariablesAreNamed(t *testing.T) {
	fs, text := &Set{Prefix: "CONTIV_X_"}, ""
	fs.String(&text, "vtep-ip", "ip", "u")
	got := fs.UnknownEnv([]string{"CONTIV_X_VTEP_IP=1", "CONTIV_X_VTEPIP=1", "CONTIV_X_TEST_KILL=1", "CONTIV_Y_Z=1", "PATH=/"})
	if !slices.Equal(got, []string{"CONTIV_X_VTEPIP"}) {
		t.Errorf("unknown: %v", got)
	}
}

// TestHelpListsSpellingsVariablesAndDefaults: help and version are distinguished, and the help text names all spellings,
// variables and defaults.
func TestHelpListsSpellingsVariablesAndDefaults(t *testing.T) {
	none := func(string) string { return "" }
	for arg, want := range map[string]error{"--help": ErrHelp, "-h": ErrHelp, "help": ErrHelp, "--version": ErrVersion, "-v": ErrVersion} {
		if err := newSet(new(settings)).ParseAll([]string{arg}, none); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", arg, err, want)
		}
	}
	v := settings{Port: 7}
	fs := newSet(&v)
	for _, want := range []string{"-n, --name, --plugin-name name", "[$P_PORT]", "(default 7)", "a switch"} {
		if !strings.Contains(fs.Help(), want) {
			t.Errorf("help text lacks %q:\n%s", want, fs.Help())
		}
	}
	if err := fs.ParseAll([]string{"-n", "x"}, none); err != nil || fs.Given("name") != "--name" || fs.Given("port") != "" {
		t.Errorf("Given: name %q, port %q, error %v", fs.Given("name"), fs.Given("port"), err)
	}
}

// TestEarlierNamesAreDeprecated: they go on working, and the warning names those of today.
func TestEarlierNamesAreDeprecated(t *testing.T) {
	var v settings
	fs := newSet(&v)
	if err := fs.ParseAll([]string{"--plugin-name", "x", "--on"}, func(string) string { return "" }); err != nil || v.Name != "x" {
		t.Fatalf("%+v, %v", v, err)
	}
	if got := fs.Deprecated(); !slices.Equal(got, []string{"--plugin-name: now --name"}) {
		t.Errorf("%q", got)
	}
}
