package httpguard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestForeignPagesAreRefused: by the name that was asked, and by the page's origin.
func TestForeignPagesAreRefused(t *testing.T) {
	h := CheckOrigin(OriginConfig{IsOurs: func(name string) bool { return name == "h1.rack.example" }, Remedy: "use --allowed-hosts %s"},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, tt := range []struct {
		method, host, header string
		want                 int
	}{
		{"POST", "127.0.0.1:9090", "", 204},
		{"POST", "[::1]", "", 204},
		{"POST", "localhost:9090", "", 204},
		{"POST", "app.localhost:9090", "", 204},
		{"POST", "H1.rack.example.:9090", "", 204},
		{"POST", "h2.rack.example", "", 403},
		{"GET", "evil.example:9090", "", 403},
		{"GET", "127.0.0.1.evil.example", "", 403},
		{"POST", "127.0.0.1:9090", "Origin: http://evil.example", 403},
		{"POST", "127.0.0.1:9090", "Sec-Fetch-Site: cross-site", 403},
		{"GET", "127.0.0.1:9090", "Sec-Fetch-Site: cross-site", 204}, // the page cannot read the answer
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "http://x/", nil)
		r.Host = tt.host
		if name, value, ok := strings.Cut(tt.header, ": "); ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		why := "--allowed-hosts"
		if tt.header != "" {
			why = "a page of another origin"
		}
		if w.Code != tt.want || tt.want == 403 && !strings.Contains(w.Body.String(), why) {
			t.Errorf("%s %s %s: %d %s, want %d", tt.method, tt.host, tt.header, w.Code, w.Body, tt.want)
		}
	}
}

// TestConnectionClosesAfterAChunkedRequest: but for streams, which end with their connection.
func TestConnectionClosesAfterAChunkedRequest(t *testing.T) {
	h := CheckOrigin(OriginConfig{IsStream: func(r *http.Request) bool { return r.URL.Path == "/stream" }}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for path, want := range map[string]string{"/": "close", "/stream": "", "/whole": ""} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("x"))
		if path != "/whole" {
			r.TransferEncoding = []string{"chunked"}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("%s: Connection %q, want %q", path, got, want)
		}
	}
}

// A listener without names of its own is reached by address, and refuses in its own way.
func TestOriginsOfListenersWithoutNames(t *testing.T) {
	none := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://h1.example/", strings.NewReader("x"))
	r.TransferEncoding = []string{"chunked"}
	w := httptest.NewRecorder()
	CheckOrigin(OriginConfig{}, none).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.HasSuffix(w.Body.String(), "; ask by address\n") || w.Header().Get("Connection") != "close" {
		t.Errorf("a name: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	CheckOrigin(OriginConfig{Refuse: func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusTeapot) }}, none).ServeHTTP(w, r)
	if w.Code != http.StatusTeapot {
		t.Errorf("a refusal of its own: %d %s", w.Code, w.Body)
	}
}
