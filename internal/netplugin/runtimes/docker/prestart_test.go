package docker

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestEngineHearsWhatThePluginIsBeforeTheStart: an engine that asks what the plugin is while
// netplugin starts, after Listen and before there is a plugin, is answered at once, as it takes
// who does not answer soon for no network driver; what else it asks is answered after the start.
func TestEngineHearsWhatThePluginIsBeforeTheStart(t *testing.T) {
	b := newBed(t)
	b.stop()
	listening, err := Listen(t.Context(), ListenConfig{Name: b.cfg.Name, SocketDir: b.cfg.SocketDir, StateDir: filepath.Join(b.cfg.StateDir, "first-start"), Global: true, Log: b.cfg.Log})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(call string) (string, error) {
		resp, err := b.http.Post("http://x/"+call, "", nil) //nolint:noctx // it ends with the socket
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return string(text), err
	}
	for call, want := range map[string]string{
		"Plugin.Activate": `"NetworkDriver"`, "NetworkDriver.GetCapabilities": `"Scope":"global"`, "IpamDriver.GetCapabilities": "RequiresMACAddress", "IpamDriver.GetDefaultAddressSpaces": "GlobalDefaultAddressSpace",
	} {
		if got, err := ask(call); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v", call, got, err)
		}
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := ask("NetworkDriver.DiscoverNew")
		answered <- answer{text, err}
	}()
	b.cfg.Socket, b.cfg.Global = listening, true
	b.start()
	if got := <-answered; got.err != nil || got.text != "{}\n" {
		t.Errorf("after the start: %+v", got)
	}
}

// TestSocketIsFreeWithoutAPlugin: what waits for a plugin that does not come fails, and the
// socket is free again.
func TestSocketIsFreeWithoutAPlugin(t *testing.T) {
	b := newBed(t)
	b.stop()
	cfg := ListenConfig{Name: b.cfg.Name, SocketDir: b.cfg.SocketDir, StateDir: b.cfg.StateDir, Log: b.cfg.Log}
	for range 2 {
		listening, err := Listen(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			resp, err := b.http.Post("http://x/NetworkDriver.DiscoverNew", "", nil) //nolint:noctx // it ends with the socket
			if err == nil {
				_ = resp.Body.Close()
			}
			failed <- err
		}()
		if err := listening.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil {
			t.Error("a call was answered without a plugin")
		}
	}
}
