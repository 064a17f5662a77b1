package supportbundle

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
)

func cmpText(a, b string) int { return strings.Compare(a, b) }

func diskOf(use, path string) api.Disk {
	d := api.Disk{Use: use, Path: path}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		d.Error = err.Error()
		return d
	}
	block := uint64(st.Bsize) //nolint:gosec // a block's size is positive
	d.Free, d.Size = st.Bavail*block, st.Blocks*block
	return d
}

func goroutines(context.Context) ([]byte, error) {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return nil, fmt.Errorf("list goroutines: %w", err)
	}
	return b.Bytes(), nil
}

// Served is a part that is what a handler answers to GET path. An answer that is no success
// is kept too, and told as the part's error.
func Served(name string, h http.Handler, path string) Part {
	return Part{Name: name, Read: func(ctx context.Context) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("ask for %s: %w", path, err)
		}
		w := &responseRecorder{header: http.Header{}, status: http.StatusOK}
		h.ServeHTTP(w, r)
		if w.status >= http.StatusBadRequest {
			return w.body.Bytes(), fmt.Errorf("%s answered %d", path, w.status)
		}
		return w.body.Bytes(), nil
	}}
}

// responseRecorder keeps what a handler writes.
type responseRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *responseRecorder) Header() http.Header         { return a.header }
func (a *responseRecorder) WriteHeader(status int)      { a.status = status }
func (a *responseRecorder) Write(b []byte) (int, error) { return a.body.Write(b) }
