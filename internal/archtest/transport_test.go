package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// ownTransport are files that may make connections by themselves, and why.
var ownTransport = map[string]string{
	"api/client.go":                                "imports the standard library only; takes its TLS by WithTLS",
	"internal/netplugin/dns/server.go":             "DNS of containers, over TCP",
	"internal/netmaster/membership/tls.go":         "who joins is shown the authority too, which it knows by its fingerprint",
	"internal/netmaster/membership/listen.go":      "looks whether an address is free, and asks what has it",
	"internal/security/jointoken/tls.go":           "who joins has no certificate yet, and knows an authority by its fingerprint",
	"internal/netplugin/runtimes/docker/engine.go": "Docker's unix socket",
}

// Every client and listener of store, REST interface and inspection takes its TLS
// from internal/security/transport: no other package makes a TLS configuration, an HTTP server or
// transport, or listens on TCP. Labs, suites and benchmarks stand outside.
func TestOnlyTransportConfiguresTLS(t *testing.T) {
	used := map[string]bool{}
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() || strings.HasPrefix(f.name, "internal/security/transport/") {
			continue
		}
		if !strings.HasPrefix(f.name, "internal/") && !strings.HasPrefix(f.name, "cmd/") && !strings.HasPrefix(f.name, "api/") {
			continue
		}
		if strings.HasPrefix(f.name, "internal/testcluster/") || strings.HasPrefix(f.name, "internal/datapath/conformance/") || strings.Contains(f.name, "test/") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.name, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.CompositeLit:
				if s, ok := n.Type.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && slices.Contains([]string{"tls.Config", "http.Transport", "http.Server"}, x.Name+"."+s.Sel.Name) {
						what = "makes a " + x.Name + "." + s.Sel.Name
					}
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Listen" {
					for _, arg := range n.Args {
						if l, ok := arg.(*ast.BasicLit); ok && strings.HasPrefix(l.Value, `"tcp`) {
							what = "listens on TCP"
						}
					}
				}
			}
			switch {
			case what == "":
			case ownTransport[f.name] != "":
				used[f.name] = true
			default:
				t.Errorf("%s %s: take it from internal/security/transport", f.name, what)
			}
			return true
		})
	}
	for name := range ownTransport {
		if !used[name] {
			t.Errorf("%s makes no connection by itself: take it off the list", name)
		}
	}
}
