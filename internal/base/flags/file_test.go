package flags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommandLineAndEnvironmentWinOverTheFile: the file sets what neither the command line nor the environment does, and
// what it cannot set is refused.
func TestCommandLineAndEnvironmentWinOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog.yaml")
	for _, tt := range []struct {
		text, args string
		env        map[string]string
		want       settings
		err        string // FILE is the file
	}{
		{text: "# comments only\n", want: settings{Port: 1}},
		{text: "name: x\nport: 9\non: true\nmode: Docker\nlist: [a, b]\n", want: settings{Name: "x", Port: 9, On: true, Mode: "docker", List: []string{"a", "b"}}},
		{text: "list: a,b\n", want: settings{Port: 1, List: []string{"a", "b"}}},
		{text: "name: file\nport: 9\n", args: "--name args", env: map[string]string{"P_PORT": "8"}, want: settings{Name: "args", Port: 8}},
		{text: "name: ''\n", want: settings{Port: 1}},
		{text: "nane: x\n", err: `FILE:1: unknown key "nane"; did you mean name?`},
		{text: "on: true\nplugin-name: x\n", err: `FILE:2: unknown key "plugin-name"; its name is name`},
		{text: "once: true\n", err: `FILE:1: unknown key "once": only the command line sets it`},
		{text: "config: /x\n", err: `FILE:1: unknown key "config": a file names no other file`},
		{text: "name: x\n---\nport: 7\n", err: "FILE:2: a second YAML document begins here; write all settings into one"},
		{text: "name: x\n...\n: : :\n", err: "FILE: after the first YAML document: yaml: line 2: did not find expected <document start>"},
		{text: "zzzzzz: x\n", err: `FILE:1: unknown key "zzzzzz"; see prog --help`},
		{text: "on: true\nport: 0\n", err: `port in FILE:2 "0": must be a whole number between 1 and 65535`},
		{text: "name: x\nname: y\n", err: `FILE:2: key "name" is there twice`},
		{text: "name:\n", err: `name in FILE:1: must have a value, or a list of values`},
		{text: "name: {a: b}\n", err: `name in FILE:1: must have a value, or a list of values`},
		{text: "on: [true]\n", err: `on in FILE:1: must have one value`},
		{text: "list: {a: b}\n", err: `list in FILE:1: must have a value, or a list of values`},
		{text: "list: [[a]]\n", err: `list in FILE:1: each item must be one value`},
		{text: "--name x\n", err: `FILE: must have lines such as log-level: debug`},
		{text: "name: [\n", err: `FILE: yaml: `},
		{text: "nane: x\n", args: "--config none", want: settings{Port: 1}},
		{args: "--config /there/is/none", err: "read the file of --config: open /there/is/none: no such file or directory"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, once := settings{Port: 1}, false
		fs := newSet(&got)
		fs.Bool(&once, "once", "a deed")
		fs.Config(file)
		err := fs.ParseAll(strings.Fields(tt.args), func(k string) string { return tt.env[k] })
		if err == nil {
			err = fs.FromFile()
		}
		if want := strings.ReplaceAll(tt.err, "FILE", file); want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q %s: %v, want %s", tt.text, tt.args, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q %s: %v", tt.text, tt.args, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q %s: %s", tt.text, tt.args, d)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fs := newSet(new(settings))
	fs.Config(file)
	if err := fs.FromFile(); err != nil {
		t.Errorf("no file at the default: %v", err)
	}
}
