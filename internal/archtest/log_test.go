package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// A log line names an error by the one key "error", so that one search finds all.
func TestLogLinesHaveOneKeyForErrors(t *testing.T) {
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() {
			continue
		}
		for _, bad := range wrongErrorKeys(t, f) {
			t.Error(bad)
		}
	}
}

// The checker itself finds what it is there for.
func TestLogKeyCheckerFindsViolations(t *testing.T) {
	const text = `package p
func _() {
	log.Warn("a", "err", x)
	a.log.Error("a", "object", o, "why", err)
	log.With("cause", s.Err).Info("a")
	log.Info("a", slog.Any("failure", ctx.Err()))
	log.Info("a", "error", err, "reason", reason)
	log.Debug("a", "why", err.Error())
	fmt.Errorf("a", "err", err)
}`
	got := wrongErrorKeys(t, file{"p.go", text})
	if len(got) != 5 {
		t.Errorf("found %d, want 5:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// logMethods are slog's, with the number of arguments before keys and values.
var logMethods = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Log": 3,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2,
}

// wrongErrorKeys says where an error is logged by another key than "error".
func wrongErrorKeys(t *testing.T, f file) (bad []string) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, f.name, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s: %v", f.name, err)
		return nil
	}
	pair := func(key, value ast.Expr) {
		lit, ok := key.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		name, _ := strconv.Unquote(lit.Value) // it was parsed
		if name != "error" && (name == "err" || isError(value)) {
			bad = append(bad, fset.Position(key.Pos()).String()+": an error is logged as "+lit.Value+": the key is \"error\"")
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "slog" && len(call.Args) == 2 {
			pair(call.Args[0], call.Args[1])
			return true
		}
		before, ok := logMethods[sel.Sel.Name]
		for i := before; ok && i+1 < len(call.Args); {
			if _, key := call.Args[i].(*ast.BasicLit); !key { // a slog.Attr
				i++
				continue
			}
			pair(call.Args[i], call.Args[i+1])
			i += 2
		}
		return true
	})
	return bad
}

// isError tells by its name whether an expression is an error or its text.
func isError(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok {
			return s.Sel.Name == "Err" || s.Sel.Name == "Error" && isError(s.X)
		}
	}
	return name == "err" || strings.HasSuffix(name, "Err")
}
