package archtest

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Effect is how an entry of an interface is known to do something, or not to.
type Effect struct {
	Test string // a test of this module that fails when the entry does nothing
	None string // or the sentence that says that it does nothing
	// Given is a test that gives the entry, and fails when that sets nothing, where Test
	// sets by another way what the entry sets; "" = Test gives it.
	Given string
}

// By is the effect that a test shows.
func By(test string) Effect { return Effect{Test: test} }

// GivenBy says which test gives an entry that the effect's own does not give.
func (e Effect) GivenBy(test string) Effect {
	e.Given = test
	return e
}

// None says that an entry does nothing, in the words that users read.
func None(sentence string) Effect { return Effect{None: sentence} }

// CheckEffects compares what an interface accepts with a table of effects. Failures name the
// table's location, table. said reports whether the users' text about an entry has its
// sentence; it is called for entries without effect.
//
// spellings returns how users write an entry, such as --flag: the file of its test, or the
// testdata that the file names, must have one of them. nil = unknown, or shown otherwise.
func CheckEffects(t *testing.T, table string, accepted []string, effects map[string]Effect, said func(entry, sentence string) bool, spellings func(entry string) []string) {
	t.Helper()
	known, err := allTests()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(slices.Values(accepted)) {
		e, ok := effects[name]
		switch {
		case !ok:
			t.Errorf("%q is accepted, and nothing says what it does. Add to %s either\n"+
				"\t%q: archtest.By(\"TestThatFailsWhenItDoesNothing\"),\n"+
				"or, if it does nothing in this version,\n"+
				"\t%q: archtest.None(\"the sentence that says so\"),\n"+
				"and that sentence to the help or document that users read; a field of an object that does nothing gets a row in its kind's file in internal/model instead, "+
				"so that answers warn of it and hosts show it", name, table, name, name)
		case (e.Test == "") == (e.None == ""):
			t.Errorf("%q in %s must have either a test or a sentence", name, table)
		case e.Test != "" && known[e.Test] == nil:
			t.Errorf("%q in %s names test %s, which does not exist: name one that fails when it does nothing", name, table, e.Test)
		case e.Given != "" && known[e.Given] == nil:
			t.Errorf("%q in %s names test %s, which does not exist: name one that gives it", name, table, e.Given)
		case e.Test != "" && spellings != nil && spellings(name) != nil && !given(known[cmp.Or(e.Given, e.Test)], spellings(name)):
			t.Errorf("%q in %s: the file of test %s never gives it (%s): name a test that does, or add one by GivenBy", name, table, cmp.Or(e.Given, e.Test), strings.Join(spellings(name), ", "))
		case e.None != "" && !said(name, e.None):
			t.Errorf("%q does nothing, and what users read about it does not say %q: write it there", name, e.None)
		}
	}
	for name := range effects {
		if !slices.Contains(accepted, name) {
			t.Errorf("%q is in %s, but is not accepted any more: remove it there", name, table)
		}
	}
}

var testData = regexp.MustCompile(`testdata/[\w-]+\.txt`)

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// given reports whether one of some files has one of some words.
func given(files, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		alone := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(word) + `($|[^\w-])`)
		return slices.ContainsFunc(files, alone.MatchString)
	})
}

// allTests returns the texts of the files that each test of the module is in.
var allTests = sync.OnceValues(func() (map[string][]string, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != top {
				return filepath.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range testData.FindAll(text, -1) { // command lines that a test runs
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), string(name)))
			if err == nil {
				text = slices.Concat(text, data)
			}
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names[string(m[1])] = append(names[string(m[1])], string(text))
		}
		return err
	})
	return names, err
})

// root is the directory of go.mod, upwards of the working directory, which
// is the tested package's.
func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fs.ErrNotExist
		}
		dir = up
	}
	return "", err
}
