package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMutantsOfGo(t *testing.T) {
	src := []byte("package p\n\nfunc f(a, b int) error {\n\tif a < b && !g() {\n\t\treturn err\n\t}\n\tx = a\n\treturn nil\n}\n")
	mutants, err := goMutants("p.go", src)
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, mutants, src, []string{
		"if a < b && !g() {\tcolumn 11: && -> ||", "if a < b && !g() {\tcolumn 7: < -> <=", "if a < b && !g() {\tcolumn 14: ! ->",
		"if a < b && !g() {\tcolumn 5: a < b && !g() -> !(a < b && !g())", "return err\tcolumn 10: err -> nil", "x = a\tcolumn 2: x = a -> _ = a",
	})
}

func TestMutantsOfC(t *testing.T) {
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
