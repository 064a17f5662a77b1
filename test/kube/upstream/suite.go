package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// Suite is a part of e2e.test: the specs whose names match Focus, and Skip not. Without
// Focus it is network-policy-api's.
type Suite struct {
	Focus, Skip string
	Zones       int // that the nodes are in, two in each; 0 = two nodes, which are in none
}

const (
	netpol    = `Netpol|NetworkPolicy`
	services  = `\[sig-network\] (Services|Service endpoints|Service CIDRs|LoadBalancers|Conntrack|KubeProxy)`
	zones     = `\[sig-network\] (Traffic Distribution|Topology Hints)|HealthCheckNodePort correctly when ExternalTrafficPolicy changes` // they ask for more nodes
	dualstack = `Feature:IPv6DualStack`
)

// Suites are all of them.
var Suites = map[string]Suite{
	"netpol":               {Focus: netpol},
	"services":             {Focus: services, Skip: zones},
	"zones":                {Focus: zones, Zones: 3},
	"dualstack":            {Focus: dualstack},
	"network":              {Focus: `\[sig-network\]`, Skip: strings.Join([]string{netpol, services, zones, dualstack}, "|")}, // DNS, EndpointSlices, HostPort, ...
	"clusternetworkpolicy": {},
}

// together is how many specs a run of e2e.test has at most, for each that runs at a time:
// so many that its start does not count, nor its end, when few still run, and so few that
// its half hour is enough where some fail.
const together = 6

// Runner runs specs of a suite on a cluster.
type Runner struct {
	Nodes *cluster.Nodes
	Dir   string // for files of the runs; it must exist
	Suite Suite
	Procs int // how many specs run at a time
	Log   func(format string, args ...any)
}

// specReport is what ginkgo's report in JSON has of a spec, as far as it is read.
type specReport struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeType             string
	LeafNodeText             string
	State                    string
	RunTime                  time.Duration
	Failure                  struct{ Message string }
}

func (s specReport) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// Specs returns the names of all specs of the suite, sorted.
func (r *Runner) Specs(ctx context.Context) ([]string, error) {
	if r.Suite.Focus == "" {
		return r.policyAPITests(ctx)
	}
	all, err := r.ginkgo(ctx, "list", r.Suite, 1, "--ginkgo.dry-run")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.LeafNodeType == "It" && s.State != "skipped" {
			names = append(names, s.name())
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("e2e.test has no specs named %q", r.Suite.Focus)
	}
	return slices.Compact(names), nil
}

// Run runs specs, and hands over what came of some of them whenever it is known.
func (r *Runner) Run(ctx context.Context, specs []string, done func([]Result) error) error {
	if r.Suite.Focus == "" {
		return r.runPolicyAPI(ctx, specs, done)
	}
	for some := range slices.Chunk(specs, together*r.Procs) {
		var focus []string
		for _, s := range some {
			focus = append(focus, regexp.QuoteMeta(s)+"$")
		}
		start := time.Now()
		all, err := r.ginkgo(ctx, "run", Suite{Focus: strings.Join(focus, "|")}, r.Procs)
		if err != nil {
			return err
		}
		var results []Result
		for _, s := range all {
			if s.LeafNodeType != "It" || !slices.Contains(some, s.name()) {
				continue
			}
			result := Result{Spec: s.name(), Result: Failed, Seconds: s.RunTime.Round(time.Second / 10).Seconds()}
			switch s.State {
			case "passed":
				result.Result = Passed
			case "skipped":
				result.Result, result.Detail = Skipped, first(s.Failure.Message, 200)
			default:
				result.Detail = s.State + ": " + first(s.Failure.Message, 2000)
			}
			results = append(results, result)
		}
		if len(results) != len(some) {
			return fmt.Errorf("e2e.test told of %d specs, and %d were to run", len(results), len(some))
		}
		r.Log("%d specs took %v", len(some), time.Since(start).Round(time.Second))
		if err := done(results); err != nil {
			return err
		}
	}
	return nil
}

func first(s string, n int) string { return s[:min(n, len(s))] }

// ginkgo runs e2e.test in the namespace of the control plane and returns its report.
// That specs fail is no error.
func (r *Runner) ginkgo(ctx context.Context, what string, which Suite, procs int, flags ...string) ([]specReport, error) {
	bin := filepath.Dir(os.Getenv(cluster.Program))
	report := filepath.Join(r.Dir, what+".json")
	if err := os.Remove(report); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	argv := []string{filepath.Join(bin, "e2e.test")}
	prefix := "--ginkgo."
	if procs > 1 {
		argv = []string{filepath.Join(bin, "ginkgo"), "--procs=" + strconv.Itoa(procs)}
		prefix = "--"
	}
	argv = append(argv, prefix+"no-color", prefix+"focus="+which.Focus, prefix+"skip="+which.Skip, prefix+"timeout=30m", prefix+"flake-attempts=1")
	if procs > 1 {
		argv = append(argv, "--output-dir="+r.Dir, "--json-report="+filepath.Base(report), filepath.Join(bin, "e2e.test"), "--")
	} else {
		argv = append(argv, prefix+"json-report="+report)
	}
	argv = append(argv, flags...)
	argv = append(argv, "--kubeconfig="+r.Nodes.Control.Kubeconfig, "--provider=skeleton", "--disable-log-dump", "--dump-logs-on-failure=false",
		"--minStartupPods=0", "--allowed-not-ready-nodes=0", "--node-schedulable-timeout=2m",
		"--num-nodes="+strconv.Itoa(len(r.Nodes.Lab.Hosts())))
	err := r.run(ctx, what, argv)
	text, rerr := os.ReadFile(report)
	if rerr != nil {
		return nil, fmt.Errorf("e2e.test makes no report: %w", errors.Join(err, rerr))
	}
	var suites []struct{ SpecReports []specReport }
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", report, err)
	}
	var all []specReport
	for _, s := range suites {
		all = append(all, s.SpecReports...)
	}
	return all, nil
}

// run runs a command in the namespace of the control plane; what it prints is in a file
// while it runs.
func (r *Runner) run(ctx context.Context, what string, argv []string) error {
	log, err := os.Create(filepath.Join(r.Dir, what+".log"))
	if err != nil {
		return err
	}
	c := r.Nodes.Lab.Master.Command(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = log, log
	return errors.Join(c.Run(), log.Close())
}
