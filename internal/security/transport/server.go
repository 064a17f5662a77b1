package transport

import (
	"log/slog"
	"net/http"
	"time"
)

// headerTimeout is how long a client may take until a request's header is there: others wait for
// its connection.
const headerTimeout = 10 * time.Second

// NewServer returns an HTTP server with bounds on what a client may take: time for a header,
// a request and between requests, and the size of headers. It logs nothing of what clients do.
// Who needs other bounds changes them before it serves.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
}
