package upstream

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestExpectedIsReadable(t *testing.T) {
	if _, err := Expected(); err != nil {
		t.Error(err)
	}
}

// A run is right when what is listed fails and nothing else does.
func TestOnlyExpectedFailuresAreRight(t *testing.T) {
	list := []Expectation{
		{Suite: "s", Drivers: []string{"ebpf"}, Spec: "known", Reason: "why"},
		{Suite: "s", Drivers: []string{"ebpf"}, Spec: "never", Left: true, Reason: "why"},
		{Suite: "s", Drivers: []string{"ovs"}, Spec: "good", Reason: "why"},
		{Suite: "s", Drivers: []string{"ebpf"}, Spec: "for us", Reason: "why"},
		{Suite: "other", Drivers: []string{"ebpf"}, Spec: "good", Reason: "why"},
		{Suite: "s", Drivers: []string{"ebpf"}, Spec: "by step", Steps: []string{": sctp ", "^nodes:"}, Reason: "why"},
	}
	const steps = "part: sctp to port 9003 (a.go:1)\nother: sctp to port 9005 (a.go:2)\nnodes: tcp to port 80 (a.go:3)"
	right := []Result{{Spec: "a good one", Result: Passed}, {Spec: "a known one", Result: Failed}, {Spec: "never run", Result: Left}, {Spec: "none for us", Result: Skipped}, {Spec: "one by step", Result: Failed, Detail: steps}}
	with := func(change Result) []Result {
		out := append([]Result{}, right...)
		r := Report{Results: out}
		r.set(change)
		return r.Results
	}
	for name, c := range map[string]struct {
		results []Result
		want    string // in the error; empty = none
	}{
		"as expected":             {right, ""},
		"another fails":           {with(Result{Spec: "a good one", Result: Failed}), "failed: a good one"},
		"a new one fails":         {with(Result{Spec: "a new one", Result: Failed}), "failed: a new one"},
		"a listed one passes":     {with(Result{Spec: "a known one", Result: Passed}), "take it out"},
		"one that is left ran":    {with(Result{Spec: "never run", Result: Failed}), "never run"},
		"a good one skips itself": {with(Result{Spec: "a good one", Result: Skipped}), "skipped: a good one"},
		"a good one is not run":   {with(Result{Spec: "a good one", Result: Left}), "left: a good one"},
		"a listed one is no more": {right[:1], `names "known"`},
		"another step fails":      {with(Result{Spec: "one by step", Result: Failed, Detail: steps + "\npart: udp to port 53 (a.go:4)"}), "does not list: part: udp to port 53"},
		"a listed step passes":    {with(Result{Spec: "one by step", Result: Failed, Detail: "part: sctp to port 9003 (a.go:1)"}), `matches "^nodes:"`},
		"it failed in no step":    {with(Result{Spec: "one by step", Result: Failed}), `matches ": sctp "`},
	} {
		err := judge(Report{Suite: "s", Driver: "ebpf", Results: c.results}, list)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The steps of a test that failed are known by protocol, port and place, each once.
func TestFailedStepsAreNamedOnce(t *testing.T) {
	const out = `=== RUN   TestClusterNetworkPolicy/CNPGress/Should_support_'allow'
    helper.go:69: FAILED Command was [/agnhost connect --timeout=3s --protocol=tcp 10.1.0.4:80]
    helper.go:69: Expected connection to succeed from gryffindor/harry-potter-0 to 10.1.0.4, but instead it miserably failed. stderr: TIMEOUT
    helper.go:69: FAILED Command was [/agnhost connect --timeout=3s --protocol=sctp [fd00::4]:9003]
    helper.go:69: 
        	Error Trace:	sigs.k8s.io/network-policy-api@v0.3.0/conformance/utils/kubernetes/helper.go:69
        	            				sigs.k8s.io/network-policy-api@v0.3.0/conformance/tests/gress-rules.go:58
        	Error:      	Condition never satisfied
        	Test:       	TestClusterNetworkPolicy/CNPGress/Should_support_'allow'
    helper.go:72: FAILED Command was [/agnhost connect --timeout=3s --protocol=sctp [fd00::4]:9003]
    helper.go:73: 
        	Error Trace:	sigs.k8s.io/network-policy-api@v0.3.0/conformance/utils/kubernetes/helper.go:73
        	            				sigs.k8s.io/network-policy-api@v0.3.0/conformance/tests/gress-rules.go:58
        	Error:      	Should be true
        	Test:       	TestClusterNetworkPolicy/CNPGress/Should_support_'allow'
    helper.go:69: FAILED Command was [/agnhost connect --timeout=3s --protocol=udp 10.1.0.4:53]
    helper.go:69: 
        	Error Trace:	sigs.k8s.io/network-policy-api@v0.3.0/conformance/utils/kubernetes/helper.go:69
        	            				sigs.k8s.io/network-policy-api@v0.3.0/conformance/tests/gress-rules.go:61
        	Error:      	Condition never satisfied
        	Test:       	TestClusterNetworkPolicy/CNPGress/Should_support_'allow'
    helper.go:120: 
        	Error Trace:	sigs.k8s.io/network-policy-api@v0.3.0/conformance/tests/gress-rules.go:70
        	Error:      	unable to patch
        	Test:       	TestClusterNetworkPolicy/CNPGress/Should_support_'deny'
--- FAIL: TestClusterNetworkPolicy (3.00s)
    --- FAIL: TestClusterNetworkPolicy/CNPGress (2.50s)
        --- FAIL: TestClusterNetworkPolicy/CNPGress/Should_support_'allow' (1.00s)
        --- FAIL: TestClusterNetworkPolicy/CNPGress/Should_support_'deny' (1.00s)
        --- FAIL: TestClusterNetworkPolicy/CNPGress/Should_support_'pass' (0.50s)
    --- PASS: TestClusterNetworkPolicy/CNPIngress (0.50s)
`
	want := []Result{{Spec: "CNPGress", Result: Failed, Seconds: 2.5, Detail: `Should_support_'allow': sctp to port 9003 (gress-rules.go:58)
Should_support_'allow': udp to port 53 (gress-rules.go:61)
Should_support_'deny': unable to patch (gress-rules.go:70)
Should_support_'pass': failed`}, {Spec: "CNPIngress", Result: Passed, Seconds: 0.5}}
	if got := policyAPIResults(out); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestWrittenReportIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if r, err := read(path); err != nil || r.Suite != "" {
		t.Errorf("a report that is not there: %v %v", r, err)
	}
	for _, results := range [][]Result{nil, {{Spec: "b", Result: Passed, Seconds: 1.5}, {Spec: "a", Result: Failed, Detail: "\"x\"\n"}}} {
		want := Report{Suite: "s", Driver: "d", Kubernetes: "v1", Commit: "c", Date: time.Unix(1e9, 0).UTC(), Code: "e", Results: results}
		if err := want.write(path); err != nil {
			t.Fatal(err)
		}
		got, err := read(path)
		if err != nil || len(got.Results) != len(results) {
			text, _ := os.ReadFile(path)
			t.Errorf("read %v, %v from\n%s", got, err, text)
		}
		if got.Results = want.Results; !reflect.DeepEqual(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	}
}

// The sum is another one when a program's file is, and the same when a test or a page is.
func TestSumChangesWithProgramsOnly(t *testing.T) {
	root := t.TempDir()
	for _, top := range covered {
		if err := os.MkdirAll(filepath.Join(root, top), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, content string) string {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := Sum(root)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := put("internal/netmaster/kubernetes/translate/a.go", "package kube")
	for _, name := range []string{"internal/netmaster/kubernetes/translate/a_test.go", "internal/datapath/reference/a.go", "api/README.md", "docs/a.go"} {
		if put(name, "x") != first {
			t.Errorf("%s counts", name)
		}
	}
	for _, name := range []string{"internal/netmaster/kubernetes/translate/a.go", "internal/datapath/ebpf/bpf/a.c", "cmd/netmaster/a.go"} {
		before, err := Sum(root)
		if err != nil {
			t.Fatal(err)
		}
		if put(name, "x") == before {
			t.Errorf("%s does not count", name)
		}
	}
}
