package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFollowersShowTheirTokenToTheLeader: a netmaster shows its token to the one that leads.
func TestFollowersShowTheirTokenToTheLeader(t *testing.T) {
	shown := ""
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		_, _ = w.Write([]byte("{}"))
	}))
	defer leader.Close()
	m := &member{scheme: "http", token: func() string { return "0123456789abcdef" }}
	if err := m.sendHeartbeats(t.Context(), leader.Listener.Addr().String(), []model.HostName{"h1"}); err != nil || shown != "Bearer 0123456789abcdef" {
		t.Errorf("it showed %q, error %v", shown, err)
	}
}

// TestTokenFileWithoutTokenIsRefused: a file without a token is refused at start. With a token there is no
// warning about an API without authentication, on any address.
func TestTokenFileWithoutTokenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := parse(t, nil, "--token-file", path); err == nil || !strings.Contains(err.Error(), "--token-file: tokens of "+path) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args  []string
		warns bool
	}{
		{[]string{"--external-address", "127.0.0.1:9999", "--internal-address", "127.0.0.1:9999"}, false},
		{[]string{"--external-address", "0.0.0.0:9999", "--internal-address", "127.0.0.1:9999"}, true},
		{[]string{"--external-address", "127.0.0.1:9999", "--internal-address", "10.1.2.3:9999"}, true},
		{[]string{"--external-address", "127.0.0.1:9999", "--internal-address", "127.0.0.1:9999", "--agent-address", "10.1.2.3:9001"}, true},
		{[]string{"--external-address", "0.0.0.0:9999", "--internal-address", "10.1.2.3:9999", "--token-file", path}, false},
	} {
		o, err := parse(t, nil, tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		o.explain(slog.New(slog.NewTextHandler(&said, nil)))
		if warned := strings.Contains(said.String(), "no authentication"); warned != tc.warns {
			t.Errorf("%v: %q", tc.args, said.String())
		}
	}
}
