package httpguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// OriginConfig is what a listener differs by; all of it may be zero.
type OriginConfig struct {
	// IsOurs reports whether a DNS name with a dot, in small letters and without a dot at
	// its end, is this server's. Addresses and names without a dot always are: an outsider
	// cannot have such a name resolve to this server.
	IsOurs func(name string) bool
	// Remedy follows the refusal of another name: "start netmaster with --allowed-hosts %s".
	// %s is the name. Empty = to ask by address is all there is.
	Remedy string
	// Refuse answers 403 with a sentence; nil = as text.
	Refuse func(w http.ResponseWriter, r *http.Request, sentence string)
	// IsStream reports whether a request's body is a stream that its connection ends with;
	// nil = none is.
	IsStream func(r *http.Request) bool
}

// CheckOrigin puts the checks before next.
func CheckOrigin(cfg OriginConfig, next http.Handler) http.Handler {
	refuse := cfg.Refuse
	if refuse == nil {
		refuse = func(w http.ResponseWriter, _ *http.Request, sentence string) {
			http.Error(w, sentence, http.StatusForbidden)
		}
	}
	browsers := http.NewCrossOriginProtection()
	browsers.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, fmt.Sprintf("a page of another origin (%.40q) may not change anything here", r.Header.Get("Origin")))
	}))
	protected := browsers.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Where a request has a length and is chunked, net/http drops the length:
		// what follows on the connection could be taken for another request.
		if len(r.TransferEncoding) > 0 && (cfg.IsStream == nil || !cfg.IsStream(r)) {
			w.Header().Set("Connection", "close")
		}
		if name := hostOf(r.Host); !cfg.allowsHost(name) {
			remedy := ""
			if cfg.Remedy != "" {
				remedy = ", or " + fmt.Sprintf(cfg.Remedy, fmt.Sprintf("%.40s", name))
			}
			refuse(w, r, fmt.Sprintf("the name %.40q is not known to be this server's: a web page could have made it lead here; ask by address%s", name, remedy))
			return
		}
		protected.ServeHTTP(w, r)
	})
}

func (cfg OriginConfig) allowsHost(header string) bool {
	name := strings.ToLower(strings.TrimSuffix(header, "."))
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") {
		return true
	}
	return cfg.IsOurs != nil && cfg.IsOurs(name)
}

// hostOf is a Host header without its port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		header = host
	}
	return strings.Trim(header, "[]")
}
