//go:build integration

package upstream

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

var (
	suite = flag.String("suite", "", "the suites of Kubernetes' own to run, with commas between, on one cluster; empty = none")
	only  = flag.String("specs", "", "a pattern of the specs to run, again where the report has them; the report is written, and not judged")
	procs = flag.Int("procs", 3, "how many specs run at a time")
	spend = flag.Duration("spend", 50*time.Minute, "begin no further specs after this time: the next run goes on with the report")
)

// TestSuite runs the specs that the suites' reports lack, on the present code and the
// driver that DRIVER names, and judges each report when it is complete. A report of other
// code is started over.
func TestSuite(t *testing.T) {
	if *suite == "" {
		t.Skip("-suite names none: make test-kube")
	}
	names := strings.Split(*suite, ",")
	for _, name := range names {
		if which, ok := Suites[name]; !ok || which.Zones != Suites[names[0]].Zones {
			t.Fatalf("there is no suite %q, or it is for other nodes than %s", name, names[0])
		}
	}
	zones := Suites[names[0]].Zones
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	driver := cmp.Or(os.Getenv("DRIVER"), testcluster.DriverEBPF)
	code, err := Sum(root)
	if err != nil {
		t.Fatal(err)
	}
	fresh := Report{Driver: driver, Code: code, Commit: commit(t.Context(), root)}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := testcluster.Build(t.Context(), root, bin); err != nil {
		t.Fatal(err)
	}
	name := driver + names[0] // so that several may run at once
	n, err := cluster.StartNodes(t.Context(), cluster.NodesConfig{
		Name: name[:min(12, len(name))], Dir: dir, BinDir: bin, Nodes: 2 * max(1, zones), Zones: zones, Driver: driver, Proxy: true, Native: true, Dual: true, DNS: true, Internet: true, Gates: "RelaxedServiceNameValidation=true",
		Masters: []string{"--load-balancer-pool", cluster.Balanced, "--external-ip-ranges", cluster.External},
	})
	if errors.Is(err, cluster.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	version, err := n.Client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	fresh.Kubernetes = version.GitVersion
	end := time.Now().Add(*spend)
	for _, name := range names {
		fresh.Suite = name
		t.Run(name, func(t *testing.T) { runSuite(t, root, n, dir, fresh, end) })
	}
}

// runSuite runs the specs of the suite that the report is to be of, until end.
func runSuite(t *testing.T, root string, n *cluster.Nodes, dir string, fresh Report, end time.Time) {
	t.Helper()
	which := Suites[fresh.Suite]
	expected, err := Expected()
	if err != nil {
		t.Fatal(err)
	}
	path := file(root, fresh.Suite, fresh.Driver)
	report, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	if report.Code != fresh.Code && *only == "" || report.Suite == "" {
		report = fresh
	}
	report.Commit, report.Kubernetes = fresh.Commit, fresh.Kubernetes
	if which.Focus == "" {
		api, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
		if err != nil {
			t.Fatal(err)
		}
		crd := filepath.Join(strings.TrimSpace(string(api)), "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml")
		if out, err := n.Kubectl(t.Context(), "apply", "-f", crd); err != nil {
			t.Fatal(err, out)
		}
	}
	runner := &Runner{Nodes: n, Dir: dir, Suite: which, Procs: *procs, Log: t.Logf}
	specs, err := runner.Specs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report.Specs = len(specs)
	var run []string
	for _, s := range specs {
		e := of(expected, report.Suite, report.Driver, s)
		switch {
		case *only != "" && !regexp.MustCompile(*only).MatchString(s), *only == "" && report.has(s):
		case e != nil && e.Left:
			report.set(Result{Spec: s, Result: Left, Detail: e.Reason})
		default:
			run = append(run, s)
		}
	}
	t.Logf("%d of %d specs are to run", len(run), len(specs))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("there is no more time: run it again to go on")
	err = runner.Run(ctx, run, func(results []Result) error {
		for _, r := range results {
			t.Logf("%s after %vs: %s\n%s", r.Result, r.Seconds, r.Spec, r.Detail)
			report.set(r)
		}
		report.Date = time.Now().UTC().Truncate(time.Second)
		if err := report.write(path); err != nil {
			return err
		}
		if time.Now().After(end) {
			return enough
		}
		return nil
	})
	if whole := len(report.Results) == len(specs); err != nil && (!whole || !errors.Is(err, enough)) {
		t.Fatal(err)
	}
	if *only != "" {
		return
	}
	if err := judge(report, expected); err != nil {
		t.Error(err)
	}
}
