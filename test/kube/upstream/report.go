package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Results of a spec.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped" // by itself: the cluster is none that it is for
	Left    = "left"    // not run, since it cannot pass on this machine
)

// Result is what came of a spec.
type Result struct {
	Spec    string  `json:"spec"`
	Result  string  `json:"result"`
	Seconds float64 `json:"seconds,omitempty"`
	Detail  string  `json:"detail,omitempty"` // of a failure
}

// Report is what came of a suite on a driver.
type Report struct {
	Suite      string    `json:"suite"`
	Driver     string    `json:"driver"`
	Kubernetes string    `json:"kubernetes"`
	Commit     string    `json:"commit"` // that was checked out when the last run began; "+" if covered code differed from it
	Date       time.Time `json:"date"`   // of the last spec
	Code       string    `json:"code"`   // Sum of the code that was tried
	Specs      int       `json:"specs"`  // of the suite: with fewer results it is to go on
	Results    []Result  `json:"results"`
}

// file is where the report of a suite on a driver is.
func file(root, suite, driver string) string {
	return filepath.Join(root, "test/kube/reports", suite+"-"+driver+".json")
}

// read returns the report at a path; an empty one if there is none.
func read(path string) (r Report, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// write writes the report, each result in a line, sorted.
func (r *Report) write(path string) error {
	slices.SortFunc(r.Results, func(a, b Result) int { return strings.Compare(a.Spec, b.Spec) })
	head := *r
	head.Results = nil
	b, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(b, []byte("null\n}")))
	out.WriteString("[")
	for i, result := range r.Results {
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n    ")
		out.Write(line)
	}
	out.WriteString("\n  ]\n}\n")
	if err := os.WriteFile(path+".new", out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// set takes a result in, in the place of an older one.
func (r *Report) set(result Result) {
	i := slices.IndexFunc(r.Results, func(old Result) bool { return old.Spec == result.Spec })
	if i < 0 {
		r.Results = append(r.Results, result)
		return
	}
	r.Results[i] = result
}

// has reports whether the report has a result for a spec.
func (r *Report) has(spec string) bool {
	return slices.ContainsFunc(r.Results, func(old Result) bool { return old.Spec == spec })
}

// covered is the code that decides what a pod's packets may: a report is of it.
var covered = []string{
	"api", "cmd/contivk8s", "cmd/netmaster", "cmd/netplugin", "internal", "test/kube/cluster", "test/kube/kubernetes",
}

// foreign is below covered, and no part of what a cluster of the tests runs; aci
// is asked with infrastructure type aci alone, which no such cluster has.
var foreign = []string{
	"internal/netmaster/aci", "internal/archtest", "internal/netctl", "internal/datapath/conformance", "internal/netplugin/runtimes/docker", "internal/testcluster", "internal/testcluster/testenv", "internal/datapath/reference",
}

// Sum is one over all covered code below a root: programs of Go and C, not their tests.
func Sum(root string) (string, error) {
	sum := sha256.New()
	for _, top := range covered {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "testdata" || slices.Contains(foreign, filepath.ToSlash(rel)) {
					return filepath.SkipDir
				}
				return nil
			}
			if e := filepath.Ext(rel); e != ".go" && e != ".c" && e != ".h" && e != ".sh" && d.Name() != "go.mod" || strings.HasSuffix(rel, "_test.go") {
				return nil
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(rel), len(b))
			sum.Write(b)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:12]), nil
}

// commit names what is checked out at root.
func commit(ctx context.Context, root string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	head, err := git("rev-parse", "--short=12", "HEAD")
	changed, changedErr := git(append([]string{"status", "--porcelain", "--"}, covered...)...)
	switch {
	case errors.Join(err, changedErr) != nil:
		return "unknown" // not from a checkout
	case changed != "":
		return head + "+"
	}
	return head
}
