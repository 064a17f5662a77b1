package netctl

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// login saves the token, readable by its user only; later commands show it only to the
// proxy that issued it.
func TestLoginSavesTheTokenForItsUserOnly(t *testing.T) {
	var tokens []string
	proxy := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("read: %v", err)
			}
			tokens = append(tokens, r.Header.Get("X-Auth-Token"))
			switch {
			case r.URL.Path != pathLogin:
				_, _ = io.WriteString(w, `[]`)
			case string(body) == `{"password":"se cret","username":"ann"}`:
				_, _ = io.WriteString(w, `{"token":"t0k"}`)
			default:
				http.Error(w, "wrong password", http.StatusUnauthorized)
			}
		}))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	mine, other := proxy(), proxy()
	home := t.TempDir()
	run := func(stdin, url string, args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		env := map[string]string{"HOME": home, "NETMASTER": url, "INSECURE": "1"}
		code := Run(t.Context(), Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Getenv: func(n string) string { return env[n] }}, args)
		return result{code, out.String(), errOut.String()}
	}
	for _, tc := range []struct {
		stdin, url string
		want       result
	}{
		{"", "http://127.0.0.1:1", result{ExitUsage, "", "netctl: --netmaster \"http://127.0.0.1:1\": must be the https:// address of an auth_proxy; netmaster itself takes tokens: --token\nSee 'netctl login --help'.\n"}},
		{"", mine.URL, result{ExitUsage, "", "netctl: Username: is missing: it is read from standard input\nSee 'netctl login --help'.\n"}},
		{"ann\nbad\n", mine.URL, result{ExitFailure, "", "netctl: log in: wrong password\n"}},
		{"ann\nse cret\n", mine.URL, result{ExitOK, "Logged in as ann\n", ""}},
	} {
		got := run(tc.stdin, tc.url, "login")
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	info, err := os.Stat(filepath.Join(home, ".netctl", "config.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file %v, error %v", info, err)
	}
	tokens = nil
	for _, url := range []string{mine.URL, other.URL} {
		if got := run("", url, "tenant", "ls", "-q"); got.code != ExitOK {
			t.Errorf("tenant ls: %+v", got)
		}
	}
	// 1.x did not keep who gave the token.
	if err := writeLogin(filepath.Join(home, ".netctl", "config.json"), savedLogin{Token: "t0k"}); err != nil {
		t.Fatal(err)
	}
	if got := run("", other.URL, "tenant", "ls", "-q"); got.code != ExitOK {
		t.Errorf("tenant ls: %+v", got)
	}
	if diff := cmp.Diff([]string{"t0k", "", ""}, tokens); diff != "" {
		t.Errorf("tokens shown (-want +got):\n%s", diff)
	}
}

// TestPromptIsForTerminals: who types is asked; a pipe reads no prompt.
func TestPromptIsForTerminals(t *testing.T) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ptmx.Close()
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	pipe, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer typed.Close()
	for _, x := range []struct {
		in, typist *os.File
		want       string
	}{{tty, ptmx, "Token: "}, {pipe, typed, ""}} {
		if _, err := x.typist.WriteString("t0k\n"); err != nil {
			t.Fatal(err)
		}
		var prompt bytes.Buffer
		o := &loginOptions{common: common{terminal: terminal{stdin: x.in, stderr: &prompt}}}
		if got, err := o.prompt(bufio.NewReader(x.in), "Token: ", true); err != nil || got != "t0k" || prompt.String() != x.want {
			t.Errorf("%q, %v after the prompt %q, want %q", got, err, prompt.String(), x.want)
		}
	}
}
