package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type settings struct {
	Name string
	List []string
	Port int
	On   bool
	Mode string
}

func newSet(v *settings) *FlagSet {
	fs := NewFlagSet("prog", "does things")
	fs.String(&v.Name, Flag{Name: "name", Aliases: []string{"plugin-name", "n"}, Env: "P_NAME", Usage: "a name", Check: func(s string) error {
		if s == "bad" {
			return errors.New("must not be bad")
		}
		return nil
	}})
	fs.Strings(&v.List, Flag{Name: "list", Env: "P_LIST", Usage: "a list"})
	fs.Int(&v.Port, Flag{Name: "port", Env: "P_PORT", Usage: "a port"}, 1, 65535)
	fs.Bool(&v.On, Flag{Name: "on", Env: "P_ON", Usage: "a switch"})
	fs.Enum(&v.Mode, Flag{Name: "mode", Env: "P_MODE", Usage: "a mode"}, "docker", "none")
	return fs
}

// TestFlags covers spellings, precedence, and the sentences of refusals.
func TestFlags(t *testing.T) {
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
		{args: []string{"--port", "0"}, err: `--port "0": must be a whole number between 1 and 65535`},
		{args: []string{"-plugin-name", "bad"}, err: `--plugin-name "bad": must not be bad`},
		{args: []string{"--mode", "x"}, err: `--mode "x": must be one of docker, none`},
		{args: []string{"--on=maybe"}, err: `--on "maybe": must be true or false`},
		{env: map[string]string{"P_PORT": "x"}, err: `$P_PORT "x": must be a whole number between 1 and 65535`},
		{args: []string{"--nope"}, err: `flag provided but not defined: --nope; see prog --help`},
		{args: []string{"--name"}, err: `flag needs an argument: --name; see prog --help`},
		{args: []string{"start"}, err: `unexpected argument "start": prog takes flags only; see prog --help`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := settings{Port: 1}
			err := newSet(&got).Parse(tt.args, func(k string) (string, bool) { v, ok := tt.env[k]; return v, ok })
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

// TestFlagsHelp: help and version are distinguished, and the help text names all spellings,
// variables and defaults. TestFlagIsNoValue: an empty variable leaves nothing between two
// flags.
func TestFlagIsNoValue(t *testing.T) {
	for line, want := range map[string]string{
		"--token --join h1":   "--token needs a value, and --join follows",
		"-token --join=h1":    "--token needs a value, and --join=h1 follows",
		"--token -1 --join x": "",
		"--token=x --join y":  "",
		"--all --join y":      "",
	} {
		fs, text, all := NewFlagSet("x", "tests."), "", false
		fs.String(&text, Flag{Name: "token", Usage: "u"})
		fs.String(&text, Flag{Name: "join", Usage: "u"})
		fs.Bool(&all, Flag{Name: "all", Usage: "u"})
		err := fs.Parse(strings.Fields(line), func(string) (string, bool) { return "", false })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestMisspeltVariablesAreNamed: but for those of tests, and of other programs.
func TestMisspeltVariablesAreNamed(t *testing.T) {
	fs, text := NewFlagSet("x", "tests."), ""
	fs.String(&text, Flag{Name: "vtep-ip", Env: "CONTIV_X_VTEP_IP", Usage: "u"})
	got := fs.UnknownEnv("CONTIV_X_", []string{"CONTIV_X_VTEP_IP=1", "CONTIV_X_VTEPIP=1", "CONTIV_X_TEST_KILL=1", "CONTIV_Y_Z=1", "PATH=/"})
	if !slices.Equal(got, []string{"CONTIV_X_VTEPIP"}) {
		t.Errorf("unknown: %v", got)
	}
}

func TestFlagsHelp(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for arg, want := range map[string]error{"--help": ErrHelp, "-h": ErrHelp, "help": ErrHelp, "--version": ErrVersion, "-v": ErrVersion} {
		if err := newSet(new(settings)).Parse([]string{arg}, none); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", arg, err, want)
		}
	}
	v := settings{Port: 7}
	fs := newSet(&v)
	for _, want := range []string{"--name, --plugin-name, --n", "[$P_PORT]", "(default 7)", "a switch"} {
		if !strings.Contains(fs.Usage(), want) {
			t.Errorf("help text lacks %q:\n%s", want, fs.Usage())
		}
	}
	if err := fs.Parse([]string{"-n", "x"}, none); err != nil || fs.Given("name") != "--n" || fs.Given("port") != "" {
		t.Errorf("Given: name %q, port %q, error %v", fs.Given("name"), fs.Given("port"), err)
	}
}

// TestRun: the exit code is 0 for success, 2 for usage errors, 1 otherwise.
func TestRun(t *testing.T) {
	for want, err := range map[int]error{ExitOK: nil, ExitUsage: Usagef("bad"), ExitFailure: errors.New("worse")} {
		var out strings.Builder
		if got := Run("prog", &out, func(context.Context) error { return err }); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
		if err != nil && out.String() != "prog: "+err.Error()+"\n" {
			t.Errorf("printed %q", out.String())
		}
	}
}

// TestSyslog: messages arrive in the form of the RFCs over each transport.
func TestSyslog(t *testing.T) {
	const text = `msg="hello there" k=v`
	tests := []struct{ network, format, want string }{
		{"udp", "auto", `^<28>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d) \S+ prog \d+ - - ` + text + `$`},
		{"udp", "rfc3164", `^<28>\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ prog\[\d+\]: ` + text + `$`},
		{"tcp", "rfc5424", `^\d+ <28>1 \S+ \S+ prog \d+ - - ` + text + `$`},
		{"tcp", "rfc3164", `^<28>\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ prog\[\d+\]: ` + text + "\n$"},
		{"unix", "auto", `^<28>\w{3} [ \d]\d \d\d:\d\d:\d\d prog\[\d+\]: ` + text + "\n$"},
		{"unixgram", "auto", `^<28>\w{3} [ \d]\d \d\d:\d\d:\d\d prog\[\d+\]: ` + text + `$`},
	}
	for _, tt := range tests {
		t.Run(tt.network+" "+tt.format, func(t *testing.T) {
			addr, url := "127.0.0.1:0", tt.network+"://"
			path := filepath.Join(t.TempDir(), "s")
			if strings.HasPrefix(tt.network, "unix") {
				addr, url = path, "unix://"
			}
			got := make(chan string, 1)
			var at net.Addr
			if tt.network == "udp" || tt.network == "unixgram" {
				c, err := new(net.ListenConfig).ListenPacket(t.Context(), tt.network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				at = c.LocalAddr()
				go func() {
					buf := make([]byte, 9000)
					n, _, _ := c.ReadFrom(buf)
					got <- string(buf[:n])
				}()
			} else {
				l, err := new(net.ListenConfig).Listen(t.Context(), tt.network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				at = l.Addr()
				go func() {
					c, err := l.Accept()
					if err != nil {
						got <- err.Error()
						return
					}
					defer c.Close()
					b, _ := io.ReadAll(c)
					got <- string(b)
				}()
			}
			cfg := LogConfig{Level: "INFO", Syslog: true, SyslogURL: url + at.String(), SyslogFormat: tt.format}
			var stderr strings.Builder
			log, done, err := cfg.Open("prog", &stderr)
			if err != nil {
				t.Fatal(err)
			}
			log.Debug("not this")
			log.With("k", "v").Warn("hello there")
			if err := done(); err != nil {
				t.Fatal(err)
			}
			select {
			case msg := <-got:
				if !regexp.MustCompile(tt.want).MatchString(msg) {
					t.Errorf("got %q, want %s", msg, tt.want)
				}
			case <-time.After(time.Minute):
				t.Fatal("nothing arrived")
			}
			if !strings.Contains(stderr.String(), `level=WARN msg="hello there" k=v`) {
				t.Errorf("stderr got %q", stderr.String())
			}
		})
	}
}

// TestSyslogDead: a syslog server that does not answer never blocks the
// program, neither while logging nor at the end.
func TestSyslogDead(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "tcp://" + l.Addr().String()
	l.Close()
	log, done, err := LogConfig{Level: "INFO", JSON: true, Syslog: true, SyslogURL: url}.Open("prog", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * syslogQueue {
		log.Info("x")
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
}

// TestSyslogURL refuses what is not an address of a syslog server.
func TestSyslogURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"udp://127.0.0.1:514": true, "udp://127.0.0.1": true, "tcp://[::1]:6514": true, "unix:///dev/log": true,
		"127.0.0.1:514": false, "http://127.0.0.1": false, "udp://": false, "udp://:514": false,
		"udp://127.0.0.1:99999": false, "unix://dev/log": false, "udp://127.0.0.1:514/x": false, "": false,
	} {
		if _, err := parseSyslogURL(url); (err == nil) != ok {
			t.Errorf("%q: error %v", url, err)
		}
	}
}

// TestLogJSON: --use-json-log writes one JSON object a line.
func TestLogJSON(t *testing.T) {
	var out strings.Builder
	cfg := DefaultLog()
	cfg.JSON = true
	log, done, err := cfg.Open("prog", &out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done() }()
	log.Info("hi", "n", 1)
	var rec map[string]any
	if err := json.Unmarshal([]byte(out.String()), &rec); err != nil || rec["msg"] != "hi" || rec["level"] != "INFO" {
		t.Errorf("got %q (%v)", out.String(), err)
	}
}

// TestServe: a request that runs when the program is stopped gets its answer, and Serve
// returns nil.
func TestServe(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-ctx.Done()
		if r.Context().Err() != nil {
			t.Error("the request's context ended with the server's")
		}
		_, _ = io.WriteString(w, "done")
	})
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, h, slog.New(slog.DiscardHandler)) }()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	<-started
	cancel()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if string(body) != "done" {
		t.Errorf("body %q", body)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestBuild: a binary always says something about its build.
func TestBuild(t *testing.T) {
	if b := Build(); b.Version == "" || b.Go == "" || !strings.Contains(b.String(), "GitCommit: ") {
		t.Errorf("%+v", b)
	}
}
