package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one change of a file.
type mutant struct {
	file       string // relative to the repository
	line       int
	begin, end int    // the bytes that are replaced
	text       string // by what
	was        string // the original line, trimmed, with its number among equal ones
	joined     bool   // it can be built with others, in a copy of its function
}

// name tells mutants apart for as long as their line stays as it is.
func (m mutant) name(src []byte) string {
	column := m.begin - strings.LastIndexByte(string(src[:m.begin]), '\n')
	return fmt.Sprintf("%s\t%s\tcolumn %d: %s -> %s", m.file, m.was, column, oneLine(string(src[m.begin:m.end])), oneLine(m.text))
}

// inC reports whether it is of a program for the kernel.
func (m mutant) inC() bool { return !strings.HasSuffix(m.file, ".go") }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// swaps are the operators that are easily confused.
var swaps = map[string]string{
	"&&": "||", "||": "&&", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "&": "|", "|": "&",
}

// goMutants returns the mutants of a Go file.
func goMutants(file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	var out []mutant
	add := func(begin, end token.Pos, text string) {
		at := fset.Position(begin)
		joined := slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := joinable(d)
			return ok && fn.Body.Lbrace < begin && end <= fn.Body.Rbrace
		})
		out = append(out, mutant{file: file, line: at.Line, begin: at.Offset, end: fset.Position(end).Offset, text: text, was: lineAt(src, at.Offset), joined: joined})
	}
	source := func(n ast.Node) string {
		return string(src[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset])
	}
	always := func(cond ast.Expr) { // what it uses stays in use
		add(cond.Pos(), cond.End(), "("+source(cond)+") || true")
		add(cond.Pos(), cond.End(), "("+source(cond)+") && false")
	}
	drop := func(list []ast.Expr) { // each but the only one
		for i, e := range list[:max(len(list)-1, 0)] {
			add(e.Pos(), list[i+1].Pos(), "")
		}
		if n := len(list); n > 1 {
			add(list[n-2].End(), list[n-1].End(), "")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if to := swaps[n.Op.String()]; to != "" && !isText(n.X) && !isText(n.Y) {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
			}
			if n.Op == token.LAND || n.Op == token.LOR {
				add(n.X.Pos(), n.Y.Pos(), "")
				add(n.X.End(), n.Y.End(), "")
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				add(n.OpPos, n.OpPos+1, "")
			}
		case *ast.IfStmt:
			add(n.Cond.Pos(), n.Cond.End(), "!("+source(n.Cond)+")")
			always(n.Cond)
		case *ast.CaseClause:
			if n.List != nil {
				add(n.Pos(), n.End(), "")
			}
			drop(n.List)
		case *ast.CompositeLit:
			if isList(n.Type) {
				drop(n.Elts)
			}
		case *ast.Ident:
			if to := map[string]string{"true": "false", "false": "true"}[n.Name]; to != "" {
				add(n.Pos(), n.End(), to)
			}
		case *ast.ExprStmt:
			add(n.Pos(), n.End(), "_ = 0")
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN && len(n.Lhs) == 1 && len(n.Rhs) == 1 && source(n.Lhs[0]) != "_" {
				add(n.Pos(), n.End(), "_ = "+source(n.Rhs[0]))
			}
		case *ast.BranchStmt:
			if n.Label == nil && n.Tok == token.CONTINUE {
				add(n.Pos(), n.End(), "break")
			}
		case *ast.ReturnStmt: // an error that is lost
			if k := len(n.Results); k > 0 {
				if isCondition(n.Results[k-1]) {
					always(n.Results[k-1])
				}
				if last := source(n.Results[k-1]); last == "err" || strings.HasPrefix(last, "fmt.Errorf(") || strings.HasPrefix(last, "model.Errorf(") {
					add(n.Results[k-1].Pos(), n.Results[k-1].End(), "nil")
				}
			}
		}
		return true
	})
	return out, nil
}

// isCondition reports whether an expression is one by its operator.
func isCondition(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && slices.Contains([]token.Token{token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, b.Op)
}

// isList reports whether literals of a type are lists or sets.
func isList(e ast.Expr) bool {
	switch e.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

func isText(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}

func lineAt(src []byte, offset int) string {
	begin := strings.LastIndexByte(string(src[:offset]), '\n') + 1
	line, _, _ := strings.Cut(string(src[begin:]), "\n")
	line = strings.TrimSpace(line)
	alike := 1
	for before := range strings.Lines(string(src[:begin])) {
		if strings.TrimSpace(before) == line {
			alike++
		}
	}
	if alike > 1 {
		line += fmt.Sprintf(" (%d)", alike)
	}
	return line
}

var (
	cComment  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	cOperator = regexp.MustCompile(` (&&|\|\||==|!=|<=|>=|<|>|\+|-|&|\|) `)
	cNot      = regexp.MustCompile(`[( ]!(\w|\()`)
	cIf       = regexp.MustCompile(`\bif \(`)
	cCall     = regexp.MustCompile(`(?m)^\t+\w+(\([^;{}]*\)| = [^;{}]*|->\w+ = [^;{}]*);$`)
)

// cMutants returns the mutants of a C file, which is written as clang-format writes it.
func cMutants(file string, src []byte) (out []mutant) {
	code := cComment.ReplaceAllStringFunc(string(src), func(s string) string {
		return regexp.MustCompile(`[^\n]`).ReplaceAllString(s, " ")
	})
	add := func(begin, end int, text string) {
		was := lineAt(src, begin)
		if strings.HasPrefix(was, "#") {
			return
		}
		out = append(out, mutant{file: file, line: 1 + strings.Count(code[:begin], "\n"), begin: begin, end: end, text: text, was: was})
	}
	for _, m := range cOperator.FindAllStringSubmatchIndex(code, -1) {
		add(m[2], m[3], swaps[code[m[2]:m[3]]])
	}
	for _, m := range cNot.FindAllStringIndex(code, -1) {
		add(m[0]+1, m[0]+2, "")
	}
	for _, m := range cIf.FindAllStringIndex(code, -1) {
		if end := closing(code, m[1]-1); end > 0 {
			cond := code[m[1]:end]
			add(m[1]-1, end+1, "(!("+cond+"))")
			for _, part := range operands(cond) {
				add(m[1]+part[0], m[1]+part[1], "")
			}
		}
	}
	for _, m := range cCall.FindAllStringIndex(code, -1) {
		add(m[0], m[1], ";")
	}
	return out
}

// operands returns where the operands of a condition's own && or || are, each with one of
// the operators beside it; none if it has both.
func operands(cond string) (parts [][2]int) {
	var at []int
	op, depth := "", 0
	for i := 0; i+1 < len(cond); i++ {
		switch two := cond[i : i+2]; {
		case cond[i] == '(':
			depth++
		case cond[i] == ')':
			depth--
		case depth == 0 && (two == "&&" || two == "||"):
			if op != "" && op != two {
				return nil
			}
			op, at = two, append(at, i)
		}
	}
	for i, n := range at {
		begin := 0
		if i > 0 {
			begin = at[i-1] + 2
		}
		parts = append(parts, [2]int{begin, n + 2})
	}
	if n := len(at); n > 0 {
		parts = append(parts, [2]int{at[n-1], len(cond)})
	}
	return parts
}

// closing returns where the parenthesis at open ends, -1 if nowhere.
func closing(code string, open int) int {
	depth := 0
	for i := open; i < len(code); i++ {
		switch code[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// isThere returns an error if a line of equivalent.txt fits no mutant, or gives no reason.
func isThere(root, line string) error {
	parts := strings.Split(line, "\t")
	if len(parts) != 4 || parts[3] == "" {
		return fmt.Errorf("%q is not file, line, change and reason", line)
	}
	src, err := os.ReadFile(filepath.Join(root, parts[0]))
	if err != nil {
		return err
	}
	mutants, err := mutantsOf(parts[0], src)
	if err == nil && !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name(src) == strings.Join(parts[:3], "\t") }) {
		err = fmt.Errorf("%q fits no mutant", line)
	}
	return err
}

// mutantsOf returns the mutants of a file, by its name Go or C.
func mutantsOf(file string, src []byte) ([]mutant, error) {
	if strings.HasSuffix(file, ".go") {
		return goMutants(file, src)
	}
	return cMutants(file, src), nil
}
