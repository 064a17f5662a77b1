package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chooser is the file that lets the environment choose a mutant of a package, 0 for none.
const chooser = "package %s\n\nimport (\n\tos__ \"os\"\n\tstrconv__ \"strconv\"\n)\n\nvar mutant__, _ = strconv__.Atoi(os__.Getenv(\"MUTANT\"))\n"

// joinable returns a declaration if it is a function whose calls a copy can answer: init has
// no callers, and recover works in the deferred function itself only.
func joinable(d ast.Decl) (*ast.FuncDecl, bool) {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Body == nil || f.Name.Name == "init" || f.Name.Name == "_" {
		return nil, false
	}
	recovers := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		recovers = recovers || ok && id.Name == "recover"
		return !recovers
	})
	return f, !recovers
}

// join returns a file whose functions call a copy of themselves for each of their mutants,
// by its number in the list; the compiler reports errors of a copy as mutantNUMBER.go's.
func join(src []byte, mutants map[int]mutant) (pkg string, joined []byte, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return "", nil, err
	}
	var out, copies bytes.Buffer
	at := 0
	text := func(begin, end token.Pos) []byte { return src[begin-f.FileStart : end-f.FileStart] }
	put := func(begin, end token.Pos, with string) { // with replaces a part
		out.Write(src[at : begin-f.FileStart])
		out.WriteString(with)
		at = int(end - f.FileStart)
	}
	for _, d := range f.Decls {
		fn, ok := joinable(d)
		if !ok {
			continue
		}
		var mine []int
		for n, m := range mutants {
			if m.begin > int(fn.Body.Lbrace-f.FileStart) && m.end <= int(fn.Body.Rbrace-f.FileStart) {
				mine = append(mine, n)
			}
		}
		if len(mine) == 0 {
			continue
		}
		slices.Sort(mine)
		receiver, types := "", ""
		if fn.Recv != nil {
			receiver = nameParameters(fn.Recv, "receiver", put)[0] + "."
		}
		if fn.Type.TypeParams != nil {
			types = "[" + strings.Join(nameParameters(fn.Type.TypeParams, "type", put), ", ") + "]"
		}
		arguments := strings.Join(nameParameters(fn.Type.Params, "argument", put), ", ")
		choice := []string{" switch mutant__ {"}
		for _, n := range mine {
			call := fmt.Sprintf("%s%s__%d%s(%s)", receiver, fn.Name.Name, n, types, arguments)
			if fn.Type.Results != nil {
				choice = append(choice, fmt.Sprintf("case %d: return %s;", n, call))
			} else {
				choice = append(choice, fmt.Sprintf("case %d: %s; return;", n, call))
			}
			m := mutants[n]
			fmt.Fprintf(&copies, "\n//line mutant%d.go:1\n%s%s__%d%s%s%s\n", n, text(fn.Pos(), fn.Name.Pos()), fn.Name.Name, n, text(fn.Name.End(), f.FileStart+token.Pos(m.begin)), m.text, text(f.FileStart+token.Pos(m.end), fn.End()))
		}
		put(fn.Body.Lbrace+1, fn.Body.Lbrace+1, strings.Join(choice, " ")+" };")
	}
	put(f.FileEnd, f.FileEnd, "\n")
	return f.Name.Name, append(out.Bytes(), copies.Bytes()...), nil
}

// nameParameters returns the names of parameters as a call has them, and gives one to each
// that has none.
func nameParameters(list *ast.FieldList, kind string, put func(begin, end token.Pos, with string)) (names []string) {
	for _, field := range list.List {
		dots := ""
		if _, ok := field.Type.(*ast.Ellipsis); ok {
			dots = "..."
		}
		if len(field.Names) == 0 {
			name := fmt.Sprintf("%s%d__", kind, len(names))
			put(field.Type.Pos(), field.Type.Pos(), name+" ")
			names = append(names, name+dots)
		}
		for _, id := range field.Names {
			name := id.Name
			if name == "_" {
				name = fmt.Sprintf("%s%d__", kind, len(names))
				put(id.Pos(), id.End(), name)
			}
			names = append(names, name+dots)
		}
	}
	return names
}

var errorOfMutant = regexp.MustCompile(`(?m)^\S*\bmutant(\d+)\.go:\d+`)

// blamed returns the numbers of the mutants that a compiler complains of.
func blamed(out []byte) (all []int) {
	for _, m := range errorOfMutant.FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[1])) // the expression allows digits alone
		all = append(all, n)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
