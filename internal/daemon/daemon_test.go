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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestExitCodeTellsUsageErrors: the exit code is 0 for success, 2 for usage errors, 1 otherwise.
func TestExitCodeTellsUsageErrors(t *testing.T) {
	for want, err := range map[int]error{ExitOK: nil, ExitUsage: flags.Usagef("bad"), ExitFailure: errors.New("worse")} {
		var out strings.Builder
		if got := Run("prog", &out, func(context.Context) error { return err }); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
		if err != nil && out.String() != "prog: "+err.Error()+"\n" {
			t.Errorf("printed %q", out.String())
		}
	}
}

// TestConfigFileIsReadUnlessHelpIsAsked: a daemon reads the file of --config, unless only its help is asked for.
func TestConfigFileIsReadUnlessHelpIsAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog.yaml")
	if err := os.WriteFile(file, []byte("P-NAME: file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	parse := func(args ...string) (name, printed string, done bool, err error) {
		fs, out := &flags.Set{Program: "prog", Prefix: "PROG_", Settings: true}, &strings.Builder{}
		fs.String(&name, "name", "name", "a name")
		fs.Config(file)
		done, err = ParseFlags(fs, args, func(string) string { return "" }, out)
		return name, out.String(), done, err
	}
	if name, _, done, err := parse(); name != "" || !done || err == nil {
		t.Errorf("an unknown key: %q, done %v, %v", name, done, err)
	}
	if _, printed, done, err := parse("--help"); !strings.Contains(printed, "--config file") || !done || err != nil {
		t.Errorf("help: %q, done %v, %v", printed, done, err)
	}
	if err := os.WriteFile(file, []byte("name: file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, _, done, err := parse(); name != "file" || done || err != nil {
		t.Errorf("the file: %q, done %v, %v", name, done, err)
	}
}

// TestSyslogMessagesFollowTheRFCs: messages arrive in the form of the RFCs over each transport.
func TestSyslogMessagesFollowTheRFCs(t *testing.T) {
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

// TestDeadSyslogNeverBlocks: a syslog server that does not answer never blocks the
// program, neither while logging nor at the end.
func TestDeadSyslogNeverBlocks(t *testing.T) {
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

// TestBadSyslogURLsAreRefused refuses what is not an address of a syslog server.
func TestBadSyslogURLsAreRefused(t *testing.T) {
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

// TestServeAnswersRunningRequestsOnStop: a request that runs when the program is stopped gets its answer, and Serve
// returns nil.
func TestServeAnswersRunningRequestsOnStop(t *testing.T) {
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

// TestBuildIsNeverEmpty: a binary always says something about its build.
func TestBuildIsNeverEmpty(t *testing.T) {
	if b := Build(); b.Version == "" || b.Go == "" || !strings.Contains(b.String(), "GitCommit: ") {
		t.Errorf("%+v", b)
	}
}
