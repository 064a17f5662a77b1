package upstream

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// What `-test.v` prints: that a test below the one of all has ended; a connection that was
// not as it is to be; and the place, the reason and the test of a failure.
var (
	ended     = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): TestClusterNetworkPolicy/([^ /]+)(/[^ ]+)? \(([0-9.]+)s\)`)
	connected = regexp.MustCompile(`Command was \[/agnhost connect .*--protocol=(\w+) .*:(\d+)\]`)
	traced    = regexp.MustCompile(`([^/\s]+\.go:\d+)\s*$`)
	reason    = regexp.MustCompile(`^\s+Error:\s+(.*\S)`)
	failedIn  = regexp.MustCompile(`^\s+Test:\s+TestClusterNetworkPolicy/([^ /]+)(/\S+)?`)
)

// runPolicyAPI runs tests of network-policy-api. A test has failed when a step of it has; the
// detail names these, one a line.
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
	steps := map[string][]string{} // that failed, by test
	var connection, place, why string
	for line := range strings.Lines(out) {
		if m := ended.FindStringSubmatch(line); m != nil {
			part := strings.TrimPrefix(m[3], "/")
			known := slices.ContainsFunc(steps[m[2]], func(s string) bool { return strings.HasPrefix(s, part+": ") })
			if m[1] == "FAIL" && part != "" && !known { // it failed, and not by an assertion
				steps[m[2]] = append(steps[m[2]], part+": failed")
			}
			if part == "" {
				seconds, _ := strconv.ParseFloat(m[4], 64) // the pattern has digits
				results = append(results, Result{Spec: m[2], Seconds: seconds, Result: map[string]string{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped}[m[1]]})
			}
		} else if m := connected.FindStringSubmatch(line); m != nil {
			connection = m[1] + " to port " + m[2]
		} else if m := failedIn.FindStringSubmatch(line); m != nil {
			if why != "Condition never satisfied" && why != "Should be true" { // else it is PokeServer's
				connection = ""
			}
			step := fmt.Sprintf("%s: %s (%s)", strings.TrimPrefix(m[2], "/"), cmp.Or(connection, why), place)
			if !slices.Contains(steps[m[1]], step) { // each connection is looked at twice
				steps[m[1]] = append(steps[m[1]], step)
			}
			connection, why = "", ""
		} else if m := reason.FindStringSubmatch(line); m != nil {
			why = m[1]
		} else if m := traced.FindStringSubmatch(line); m != nil {
			place = m[1] // the last one is the test's own
		}
	}
	for i := range results {
		results[i].Detail = strings.Join(steps[results[i].Spec], "\n")
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
