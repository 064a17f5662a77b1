package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// plainPaths refuses writes of paths with a "." or ".." segment, escaped or not: routers and
// clients that follow their redirections would take them for another object (RFC 3986 section
// 5.2.4).
func (s *router) plainPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
				if name, err := url.PathUnescape(segment); err != nil || name == "." || name == ".." {
					s.refuse(w, r, model.Errorf(model.ErrInvalid, "%q cannot be the name of an object", clip([]byte(segment))))
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
