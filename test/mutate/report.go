package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// verdict is what the tests said of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	broken   verdict = "does not compile"
	hung     verdict = "hung" // until the tests' time was over
	survived verdict = "survived"
)

// verdictOf tells what output of tests that failed says of their mutant.
func verdictOf(out []byte) verdict {
	if bytes.Contains(out, []byte("panic: test timed out after")) {
		return hung
	}
	return killed
}

// report has the verdicts of former parts, by keyOf their mutants.
type report struct {
	path     string // empty = it is not written
	verdicts map[string]verdict
}

// keyOf names a mutant of one content of its file, so that no verdict outlives it.
func keyOf(m mutant, src []byte) string {
	return fmt.Sprintf("%s\tfile %x", m.name(src), sha256.Sum256(src))[:len(m.name(src))+len("\tfile ")+12]
}

func readReport(path string) (*report, error) {
	r := &report{path: path, verdicts: map[string]verdict{}}
	if path == "" {
		return r, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	for l := range strings.Lines(string(text)) {
		if v, key, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "\t"); ok {
			r.verdicts[key] = verdict(v)
		}
	}
	return r, err
}

// put enters a verdict of mutants, and drops those of other contents of their files.
func (r *report) put(v verdict, keys ...string) error {
	for _, key := range keys {
		file, _, _ := strings.Cut(key, "\t")
		content := key[strings.LastIndexByte(key, '\t'):]
		maps.DeleteFunc(r.verdicts, func(k string, _ verdict) bool {
			return strings.HasPrefix(k, file+"\t") && !strings.HasSuffix(k, content)
		})
		r.verdicts[key] = v
	}
	if r.path == "" {
		return nil
	}
	lines := make([]string, 0, len(r.verdicts))
	for key, v := range r.verdicts {
		lines = append(lines, string(v)+"\t"+key+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(r.path, []byte(strings.Join(lines, "")), 0o644)
}

// decisions lists the files that decide what may pass and who may do what: file, packages
// whose tests judge, and flags of go test, with tabs between.
//
//go:embed decisions.txt
var decisions string

// judgesOfDecisions returns judges of the files of decisions.txt: one for all files of a package
// that have the same tests.
func judgesOfDecisions(tree string) (all []*judge, err error) {
	for l := range strings.Lines(decisions) {
		l = strings.TrimSuffix(l, "\n")
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		parts := strings.Split(l, "\t")
		if len(parts) != 3 {
			return nil, fmt.Errorf("decisions.txt: %q is not file, packages and flags", l)
		}
		if _, err := os.Stat(filepath.Join(tree, parts[0])); err != nil {
			return nil, fmt.Errorf("decisions.txt: %w", err)
		}
		dir := filepath.Dir(parts[0])
		if !strings.HasSuffix(parts[0], ".go") { // the package has its programs below it
			dir = filepath.Dir(dir)
		}
		j := &judge{dir: dir, tests: strings.Fields(parts[1]), flags: strings.Fields(parts[2])}
		if at := slices.IndexFunc(all, j.alike); at >= 0 {
			j = all[at]
		} else {
			all = append(all, j)
		}
		j.files = append(j.files, parts[0])
	}
	return all, nil
}

// alike reports whether a judge builds and runs the same tests.
func (j *judge) alike(o *judge) bool {
	return j.dir == o.dir && slices.Equal(j.tests, o.tests) && slices.Equal(j.flags, o.flags)
}
