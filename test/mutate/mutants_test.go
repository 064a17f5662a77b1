package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOperatorsOfGoAreMutated(t *testing.T) {
	src := []byte("package p\n\nfunc f(a, b int) error {\n\tif a < b && !g() {\n\t\treturn err\n\t}\n\tx = a\n\treturn nil\n}\n")
	mutants, err := goMutants("p.go", src)
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, mutants, src, []string{
		"if a < b && !g() {\tcolumn 11: && -> ||", "if a < b && !g() {\tcolumn 7: < -> <=", "if a < b && !g() {\tcolumn 14: ! ->",
		"if a < b && !g() {\tcolumn 5: a < b && !g() -> !(a < b && !g())", "if a < b && !g() {\tcolumn 5: a < b && ->", "if a < b && !g() {\tcolumn 10: && !g() ->",
		"if a < b && !g() {\tcolumn 5: a < b && !g() -> (a < b && !g()) || true", "if a < b && !g() {\tcolumn 5: a < b && !g() -> (a < b && !g()) && false", "return err\tcolumn 10: err -> nil", "x = a\tcolumn 2: x = a -> _ = a",
	})
}

// TestListsAndCasesLoseAPart: elements of lists and values of cases go one by one, a case as
// a whole, and what a filter returns is always the same.
func TestListsAndCasesLoseAPart(t *testing.T) {
	src := []byte("package p\n\nvar l = []string{\"a\", \"b\"}\n\nfunc f(a int) bool {\n\tswitch a {\n\tcase 1, 2:\n\tdefault:\n\t}\n\treturn a > g()\n}\n")
	mutants, err := goMutants("p.go", src)
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, mutants, src, []string{
		`var l = []string{"a", "b"}` + "\tcolumn 18: \"a\", ->", `var l = []string{"a", "b"}` + "\tcolumn 21: , \"b\" ->",
		"case 1, 2:\tcolumn 2: case 1, 2: ->", "case 1, 2:\tcolumn 7: 1, ->", "case 1, 2:\tcolumn 8: , 2 ->",
		"return a > g()\tcolumn 9: a > g() -> (a > g()) || true", "return a > g()\tcolumn 9: a > g() -> (a > g()) && false", "return a > g()\tcolumn 11: > -> >=",
	})
}

func TestOperandsOfConditionsOfC(t *testing.T) {
	for cond, want := range map[string][]string{
		"a": nil, "(a || b)": nil, "!a || f(b, (c && d)) || e": {" f(b, (c && d)) || e", "!a || e", "!a || f(b, (c && d)) "}, "a && b || c": nil,
	} {
		var got []string
		for _, part := range operands(cond) {
			got = append(got, cond[:part[0]]+cond[part[1]:])
		}
		for i := range got {
			got[i] = oneLine(got[i])
		}
		for i := range want {
			want[i] = oneLine(want[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", cond, got, want)
		}
	}
}

func TestOperatorsOfCAreMutated(t *testing.T) {
	src := []byte("#define A 1 + 1\n/* if (a == b) */\nstatic int f(void)\n{\n\tif (a == (b & c))\n\t\tg(a);\n\treturn !x; // a + b\n}\n")
	expectNames(t, cMutants("p.h", src), src, []string{
		"if (a == (b & c))\tcolumn 8: == -> !=", "if (a == (b & c))\tcolumn 14: & -> |", "if (a == (b & c))\tcolumn 5: (a == (b & c)) -> (!(a == (b & c)))",
		"g(a);\tcolumn 1: g(a); -> ;", "return !x; // a + b\tcolumn 9: ! ->",
	})
}

func expectNames(t *testing.T, mutants []mutant, src []byte, want []string) {
	t.Helper()
	var got []string
	for _, m := range mutants {
		got = append(got, strings.TrimSpace(strings.TrimPrefix(m.name(src), m.file+"\t")))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("mutants:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A line of the list that fits no mutant any more would hide one that comes later.
func TestEquivalentMutantsAreThere(t *testing.T) {
	for line := range strings.Lines(equivalent) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		if err := isThere("../..", strings.TrimSuffix(line, "\n")); err != nil {
			t.Error(err)
		}
	}
}
