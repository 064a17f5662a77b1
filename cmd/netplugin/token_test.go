package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestNetpluginShowsItsToken: netplugin shows its token, whether it finds netmaster by the registry or
// a flag; with another one its health says what is wrong; a token that is exchanged
// in both files counts without a restart.
func TestNetpluginShowsItsToken(t *testing.T) {
	const first, second = "0123456789abcdef", "fedcba9876543210"
	dir := t.TempDir()
	masters, agents := filepath.Join(dir, "masters"), filepath.Join(dir, "agents")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(masters, first)
	write(agents, first)
	shown := first
	c := newClusterWith(t, []api.Option{api.WithToken(func() string { return shown })}, "--token-file", masters)
	c.startPlugin("CONTIV_NETPLUGIN_TOKEN_FILE=" + agents)
	ns := newNetns(t)
	if code, out := c.cni("ADD", "c1", ns); code != 0 {
		t.Fatalf("ADD: %d %s", code, out)
	}
	// A new token first lets in beside the old one, then is shown, then is the only one.
	write(masters, first+"\n"+second)
	write(agents, second+"\n"+first)
	shown = second
	c.eventually("netmaster accepts the new token", func() error { return c.client.Do(t.Context(), "GET", "/version", nil, nil) })
	write(masters, second)
	c.eventually("netmaster accepts the old token no more", func() error {
		shown = first
		defer func() { shown = second }()
		if err := c.client.Do(t.Context(), "GET", "/version", nil, nil); api.KindOf(err) != api.KindUnauthorized {
			return fmt.Errorf("asked with the old token: %w", errors.Join(errors.New("it answers"), err))
		}
		return nil
	})
	c.eventually("DEL and its release", func() error {
		if code, out := c.cni("DEL", "c1", ns); code != 0 {
			return fmt.Errorf("DEL: %d %s", code, out)
		}
		return c.left()
	})
	// An agent with another one says so, and attaches nothing.
	write(agents, first)
	c.eventually("netplugin is not ready and says why", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9006/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "the token is not accepted") {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})
	if code, out := c.cni("ADD", "c2", ns); code == 0 || !strings.Contains(out, "the token is not accepted") {
		t.Errorf("ADD: %d %s", code, out)
	}
}
