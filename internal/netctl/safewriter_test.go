package netctl

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNothingSteersTheTerminal: escape sequences in what a host tells of itself, and in what
// a server answers, are shown by every command, and sent to no terminal.
func TestNothingSteersTheTerminal(t *testing.T) {
	const steer = `\u001b]0;owned\u0007\u009b31m\u202e`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/status":
			_, _ = w.Write([]byte(`{"hosts":[{"name":"h1` + steer + `","state":"alive","error":"x` + steer + `"}],"wrong":["host h1: ` + steer + `"],"notices":["` + steer + `"]}`))
		case "/api/v1/hosts/h1":
			_, _ = w.Write([]byte(`{"name":"h1","error":"` + steer + `"}`))
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"kind":"conflict","message":"` + steer + `"}`))
		}
	}))
	defer server.Close()
	for _, args := range [][]string{{"status"}, {"host", "inspect", "h1"}, {"host", "ls"}, {"doctor"}, {"tenant", "rm", "x"}} {
		r := netctl(t, server.URL, args...)
		all := r.out + r.errOut
		if all == "" || strings.ContainsAny(all, "\x1b\x07\u009b\u202e") {
			t.Errorf("netctl %s prints %q", strings.Join(args, " "), all)
		}
	}
}

// TestSafeWriterKeepsText: text arrives as it is, however it is cut into writes.
func TestSafeWriterKeepsText(t *testing.T) {
	const text = "Zürich\t日本 😀\nend"
	var b strings.Builder
	w := &safeWriter{to: &b}
	for i := range len(text) {
		if _, err := w.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if b.String() != text {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	if _, err := w.Write([]byte("a\x9b1mb\r")); err != nil || b.String() != `a\x9b1mb\u000d` {
		t.Errorf("%q, %v", b.String(), err)
	}
}
