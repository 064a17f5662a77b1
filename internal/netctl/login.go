package netctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

const (
	pathLogin   = "/api/v1/auth_proxy/login/"
	tokenHeader = "X-Auth-Token"
)

// savedLogin is what login leaves in ~/.netctl/config.json; 1.x wrote the token only.
type savedLogin struct {
	Token     string `json:"token"`
	Netmaster string `json:"netmaster,omitempty"` // the proxy that gave the token
}

type loginOptions struct {
	common
	token  bool   // one of netmaster's, or of its issuer
	caFile string // of the authorities to trust with it; empty = the machine's
}

func newLogin(base common) *command {
	o := &loginOptions{common: base}
	c := &command{
		name:  "login",
		short: "Save a token for the cluster of --netmaster (--token), or log in at an auth_proxy, in ~/.netctl; this cluster becomes the default for --netmaster",
		examples: []string{
			"netctl --netmaster https://10.0.0.1:9999 login --token --ca-file ca.crt",
			"netctl --netmaster https://proxy:10000 login",
			"printf '%s\\n' \"$USER\" \"$PASSWORD\" | netctl --netmaster https://proxy:10000 login",
		},
	}
	c.flags.Bool(&o.token, "token, t", "take a token from standard input, one of netmaster's (netctl token create) or an ID token of its issuer; it is tried first, and shown from then on to this cluster's netmasters")
	c.flags.String(&o.caFile, "ca-file", "FILE", "with --token: the authorities of netmaster's certificate, saved too (default: the machine's)")
	c.flags.Bool(&o.json, "json, j", "print where the token is stored, as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing")
	c.run = bindRun(o, runLogin, nil)
	return c
}

func runLogin(ctx context.Context, o *loginOptions) error {
	if o.token {
		return runLoginToken(ctx, o)
	}
	if o.caFile != "" {
		return flags.Usagef("--ca-file: is for --token")
	}
	if !strings.HasPrefix(o.globals.netmaster, "https://") {
		return flags.Usagef("--netmaster %q: must be the https:// address of an auth_proxy; netmaster itself takes tokens: --token", o.globals.netmaster)
	}
	if o.loginPath == "" {
		return errors.New("the token cannot be saved: the environment variable HOME is not set")
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	in := bufio.NewReader(o.stdin)
	user, err := o.prompt(in, "Username: ", false)
	if err != nil {
		return err
	}
	password, err := o.prompt(in, "Password: ", true)
	if err != nil {
		return err
	}
	var answer savedLogin
	request := map[string]string{"username": user, "password": password}
	if err := client.Do(ctx, http.MethodPost, pathLogin, request, &answer); err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	if answer.Token == "" {
		return errors.New("log in: the answer has no token; is this URL an auth_proxy?")
	}
	if err := writeLogin(o.loginPath, savedLogin{answer.Token, o.globals.netmaster}); err != nil {
		return err
	}
	if all, err := readTokens(o.loginPath); err == nil && all.Current != "" {
		all.Current = "" // the proxy is the last login
		if err := all.write(o.loginPath); err != nil {
			return err
		}
	}
	return o.result(map[string]string{"username": user, "config": o.loginPath}, "", "Logged in as %s", user)
}

// prompt reads a line; a secret one is not echoed by a terminal.
func (o *loginOptions) prompt(in *bufio.Reader, prompt string, secret bool) (string, error) {
	if f, ok := o.stdin.(*os.File); ok && isTerminal(f) {
		if _, err := io.WriteString(o.stderr, prompt); err != nil {
			return "", err
		}
		if secret {
			restore := disableEcho(f)
			defer restore()
		}
	}
	line, err := in.ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	switch {
	case line == "" && (err == nil || errors.Is(err, io.EOF)):
		return "", flags.Usagef("%sis missing: it is read from standard input", prompt)
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read standard input: %w", err)
	}
	return line, nil
}

// isTerminal reports whether somebody may be there to read a prompt.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// disableEcho stops a terminal from showing what is typed; on anything else it does
// nothing.
func disableEcho(f *os.File) (restore func()) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	silent := *old
	silent.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &silent); err != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) } // nothing can be done about a failure
}

// writeLogin keeps a login where only its user can read it.
func writeLogin(path string, l savedLogin) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Chmod(path, 0o600) // a file that was there keeps its mode otherwise
	}
	if err != nil {
		return fmt.Errorf("save the token: %w", err)
	}
	return nil
}

// readLogin reads the login at an auth_proxy; zero = there is none.
func readLogin(path string) (l savedLogin, err error) {
	if path == "" {
		return l, nil
	}
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if errors.Is(err, errExposed) {
		return l, err
	}
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil {
		return savedLogin{}, fmt.Errorf("read the saved login %s: %w; log in again or delete the file", path, err)
	}
	return l, nil
}

// loginHeader returns the option that shows a saved token: over https only, and only
// to the proxy that gave it: a file of 1.x names none, so its token is not shown.
func loginHeader(path, netmaster string) ([]api.Option, error) {
	if !strings.HasPrefix(netmaster, "https://") {
		return nil, nil
	}
	l, err := readLogin(path)
	if err != nil || l.Token == "" || l.Netmaster == "" {
		return nil, err
	}
	asked, err := normalized(netmaster)
	if err != nil {
		return nil, err
	}
	if gave, err := normalized(l.Netmaster); err != nil || !slices.Equal(gave, asked) {
		return nil, nil //nolint:nilerr // who gave it is unknown then
	}
	return []api.Option{api.WithHeader(tokenHeader, l.Token)}, nil
}
