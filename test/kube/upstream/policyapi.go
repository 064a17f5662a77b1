package upstream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// policyAPITests returns the names of network-policy-api's tests.
func (r *Runner) policyAPITests(ctx context.Context) ([]string, error) {
	out, err := r.policyAPI(ctx, "list", "-list")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if _, name, ok := strings.Cut(line, " test "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("network-policy-api has no tests:\n%s", out)
	}
	return names, nil
}

// policyAPIAtOnce is how many tests a run has: each run starts its pods itself.
const policyAPIAtOnce = 6

// ended is a line in which package testing tells of a test below the one of all.
var ended = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): TestClusterNetworkPolicy/([^ /]+)(/[^ ]+)? \(([0-9.]+)s\)`)

// runPolicyAPI runs tests of network-policy-api. A test has failed when one of its own has;
// the detail names those.
func (r *Runner) runPolicyAPI(ctx context.Context, specs []string, done func([]Result) error) error {
	for len(specs) > 0 {
		some := specs[:min(policyAPIAtOnce, len(specs))]
		specs = specs[len(some):]
		out, err := r.policyAPI(ctx, "run", "-test.run=^TestClusterNetworkPolicy$/^("+strings.Join(some, "|")+")$")
		results := policyAPIResults(out)
		if len(results) != len(some) {
			return fmt.Errorf("network-policy-api told of %d tests, and %d were to run: %w", len(results), len(some), err)
		}
		if err := done(results); err != nil {
			return err
		}
	}
	return nil
}

// policyAPIResults reads what `-test.v` prints.
func policyAPIResults(out string) (results []Result) {
	failed := map[string]string{}
	for line := range strings.Lines(out) {
		m := ended.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[3] != "" && m[1] == "FAIL":
			failed[m[2]] += m[3] + "\n"
		case m[3] == "":
			seconds, _ := strconv.ParseFloat(m[4], 64) // the pattern has digits
			results = append(results, Result{Spec: m[2], Seconds: seconds, Result: map[string]string{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped}[m[1]]})
		}
	}
	for i := range results {
		results[i].Detail = strings.TrimSpace(failed[results[i].Spec])
	}
	return results
}

// policyAPI runs the program of network-policy-api's tests and returns what it prints.
func (r *Runner) policyAPI(ctx context.Context, what string, flags ...string) (string, error) {
	program := filepath.Join(filepath.Dir(os.Getenv(cluster.Program)), "policyapi.test")
	c := r.Nodes.Lab.Master.Command(ctx, program, append([]string{"-test.v", "-test.timeout=30m"}, flags...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+r.Nodes.Control.Kubeconfig)
	out, err := c.CombinedOutput()
	if werr := os.WriteFile(filepath.Join(r.Dir, what+".log"), out, 0o644); werr != nil {
		return "", werr
	}
	if what == "run" {
		return string(out), nil // that tests fail is no error
	}
	return string(out), err
}
