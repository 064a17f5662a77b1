package membership

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestForeignPagesAreRefusedWhereHostsJoin: before anything is read, in the words that members and
// hosts read; hosts may ask by any name.
func TestForeignPagesAreRefusedWhereHostsJoin(t *testing.T) {
	read := 0
	h := guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if read++; err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	for _, tt := range []struct {
		header, value string
		length        int
		status        int
		says          string
	}{
		{"", "", 10, 200, ""},
		{"Origin", "https://evil.example", 10, 400, `"error":`},
		{"Sec-Fetch-Site", "cross-site", 10, 400, "another origin"},
		{"", "", 2 << 20, 413, ""},
	} {
		before := read
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://netmaster.example:9005"+joinPath, strings.NewReader(strings.Repeat("x", tt.length)))
		if tt.header != "" {
			r.Header.Set(tt.header, tt.value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) || (read > before) != (tt.status == 200) {
			t.Errorf("%s %q, %d bytes: %d %s, read: %v", tt.header, tt.value, tt.length, w.Code, w.Body, read > before)
		}
	}
}
