package netctl

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// planFile writes documents that let group db in to group web by tcp/443.
func planFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("kind: rule\ntenantName: blue\npolicyName: p\nruleId: 2\ndirection: in\naction: allow\nprotocol: tcp\nport: 443\npriority: 3\nfromEndpointGroup: db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const plannedTable = `1 object changes, 0 flows close, 1 flow opens

Change   Kind  Object
------   ----  ------
created  rule  blue:p:2

Effect  From           To           Ports    Before                                              After
------  ----           --           -----    ------                                              -----
opens   group:blue/db  blue:n:web1  tcp/443  out: no rule matches; in: rule rest of policy blue:p  out: no rule matches; in: rule 2 of policy blue:p
`

// withoutRevision drops what differs from cluster to cluster.
func withoutRevision(text string) string {
	_, rest, _ := strings.Cut(text, ": ")
	return rest
}

func squeezed(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(lines, "\n")
}

func TestPlanShowsFlows(t *testing.T) {
	url, file := canCluster(t), planFile(t)
	r := netctl(t, url, "plan", "-f", file)
	if r.code != ExitDiffers || squeezed(withoutRevision(r.out)) != squeezed(plannedTable) || r.errOut != "" {
		t.Errorf("exit code %d\n%s%s\nwant\n%s", r.code, r.out, r.errOut, plannedTable)
	}
	r = netctl(t, url, "plan", "-f", file, "-o", "markdown")
	if r.code != ExitDiffers || !strings.HasPrefix(r.out, "### Plan for revision ") || !strings.Contains(r.out, "| opens | group:blue/db | blue:n:web1 | tcp/443 |") {
		t.Errorf("as Markdown: %+v", r)
	}
	if r := netctl(t, url, "plan", "-f", file, "-q"); r.code != ExitDiffers || r.out != "" {
		t.Errorf("quiet: %+v", r)
	}
	if r := netctl(t, url, "can", "db1", "web1", "tcp/443"); r.code != ExitDenied {
		t.Errorf("a plan has changed something: %+v", r)
	}
}

func TestSavedPlanIsAppliedUnlessItIsOutOfDate(t *testing.T) {
	url, file := canCluster(t), planFile(t)
	r := netctl(t, url, "plan", "-f", file, "-o", "json")
	saved := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(saved, []byte(r.out), 0o600); err != nil {
		t.Fatal(err)
	}
	var got savedPlan
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || len(got.Flows) != 1 || got.Flows[0].Effect != api.FlowOpens {
		t.Fatalf("as JSON: %s, %v", r.out, err)
	}
	rule := strings.Fields("policy rule-add -t blue --direction in --action deny --priority 9 p first")
	if r := netctl(t, url, rule...); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	if r := netctl(t, url, "apply", "--plan", saved); r.code != ExitConflict || !strings.Contains(r.errOut, "out of date") {
		t.Errorf("a plan of another state: %+v", r)
	}
	if r := netctl(t, url, strings.Fields("policy rule-rm -t blue p first")...); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	if r := netctl(t, url, "apply", "--plan", saved); r.code != ExitOK || r.out != "Created rule blue:p:2\n" {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "can", "db1", "web1", "tcp/443"); r.code != ExitOK {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "plan", "-f", file); r.code != ExitOK || !strings.HasPrefix(r.out, "Nothing would change") {
		t.Errorf("of what is there: %+v", r)
	}
	if r := netctl(t, url, "apply", "--plan", saved, "-f", file); r.code != ExitUsage {
		t.Errorf("with files: %+v", r)
	}
	if r := netctl(t, url, "apply", "--plan", file); r.code != ExitFailure || !strings.Contains(r.errOut, "is not a plan") {
		t.Errorf("of no plan: %+v", r)
	}
}

// TestPlanFlagSendsNoChange: with --plan, commands show what they would do and do nothing.
func TestPlanFlagSendsNoChange(t *testing.T) {
	url := canCluster(t)
	if r := netctl(t, url, strings.Fields("network-policy create --tenant blue --group web --default-in deny --mode enforce np")...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	state := func() string { return netctl(t, url, "export").out }
	before := state()
	for line, want := range map[string]string{
		"policy rule-add -t blue --direction in --protocol tcp --port 443 --action allow --priority 3 p 2": "created rule blue:p:2",
		"policy rule-rm -t blue p 1":                                               "closes group:blue/db blue:n:web1 tcp/80",
		"policy rule-rm -t blue p rest":                                            "deleted rule blue:p:rest",
		"group create -t blue n db --policy p":                                     "updated endpointGroup blue:db",
		"group create -t blue n db --replace --policy p":                           "updated endpointGroup blue:db",
		"network create -t blue -s 10.9.0.0/24 other":                              "created network blue:other",
		"tenant create red":                                                        "created tenant red",
		"global set --fwd-mode routing":                                            "updated global global",
		"network-policy rm -t blue np":                                             "deleted networkPolicy blue:np",
		"service create -t blue --network n --selector app=web --port 80:80:tcp s": "created serviceLB blue:s",
	} {
		r := netctl(t, url, append(strings.Fields(line), "--plan")...)
		if r.code != ExitDiffers || !strings.Contains(squeezed(r.out), want) {
			t.Errorf("netctl %s --plan: exit code %d\n%s%s\nwant %q", line, r.code, r.out, r.errOut, want)
		}
	}
	set := netctl(t, url, "network-policy", "rule-set", "-t", "blue", "np", "a", "in allow group=db tcp/80", "--plan", "--json")
	var p savedPlan
	if err := json.Unmarshal([]byte(set.out), &p); err != nil || set.code != ExitDiffers || p.Objects[0].Kind != "networkRule" || p.Objects[0].Action != api.ApplyCreated {
		t.Errorf("a rule of a network policy: %+v, %v", set, err)
	}
	for line, code := range map[string]int{
		"tenant create blue":                                ExitOK,
		"policy rule-rm -t blue p none":                     ExitNotFound,
		"tenant rm blue":                                    ExitConflict,
		"group create -t blue n db --confirm-within 1m":     ExitUsage,
		"policy rule-add -t blue --direction in --port 1 p": ExitUsage,
	} {
		if r := netctl(t, url, append(strings.Fields(line), "--plan")...); r.code != code {
			t.Errorf("netctl %s --plan: %+v, want exit code %d", line, r, code)
		}
	}
	if after := state(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestPlanRefusesBadFiles(t *testing.T) {
	url := canCluster(t)
	dir := t.TempDir()
	before := netctl(t, url, "export").out
	for name, c := range map[string]struct {
		text, want string
		code       int
	}{
		"syntax.yaml":     {"kind: [", "document 1", ExitFailure},
		"unknown.yaml":    {"kind: tenant\ntenantName: x\ncolour: red\n", "colour", ExitFailure},
		"kubernetes.yaml": {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\n", "follows no Kubernetes", ExitFailure},
		"missing.yaml":    {"kind: rule\ntenantName: blue\npolicyName: none\nruleId: x\ndirection: in\naction: allow\n", "document 1 (rule blue:none:x)", ExitNotFound},
		"empty.yaml":      {"\n", "no documents", ExitFailure},
		"large.yaml":      {"kind: tenant\ntenantName: " + strings.Repeat("x", 16<<20) + "\n", "", ExitFailure},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := netctl(t, url, "plan", "-f", file); r.code != c.code || r.out != "" || !strings.Contains(r.errOut, c.want) {
			t.Errorf("%s: exit code %d %s; want %d and %q", name, r.code, r.errOut[:min(len(r.errOut), 300)], c.code, c.want)
		}
	}
	if r := netctl(t, url, "plan"); r.code != ExitUsage {
		t.Errorf("without files: %+v", r)
	}
	if after := netctl(t, url, "export").out; after != before {
		t.Errorf("after plans that were refused: %s", after)
	}
}

func TestPlanCoversPruningAndDeletion(t *testing.T) {
	url := canCluster(t)
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy := "kind: policy\ntenantName: blue\npolicyName: q\n"
	write(policy + "---\nkind: rule\ntenantName: blue\npolicyName: q\nruleId: r\ndirection: in\naction: deny\n---\nkind: tenant\ntenantName: red\n")
	if r := netctl(t, url, "apply", "-f", dir, "--prune", "--set", "s"); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	if r := netctl(t, url, "get", "tenants", "-q"); !strings.Contains(r.out, "red") {
		t.Fatalf("%+v", r)
	}
	if r := netctl(t, url, "delete", "-f", dir, "--plan"); r.code != ExitDiffers || !strings.Contains(squeezed(r.out), "deleted policy blue:q") || !strings.Contains(squeezed(r.out), "deleted tenant red") {
		t.Errorf("delete --plan: %+v", r)
	}
	write(policy)
	r := netctl(t, url, "plan", "-f", dir, "--prune", "--set", "s")
	if r.code != ExitDiffers || !strings.Contains(squeezed(r.out), "deleted rule blue:q:r") || !strings.Contains(squeezed(r.out), "deleted tenant red") {
		t.Errorf("plan --prune: %+v", r)
	}
	saved := filepath.Join(t.TempDir(), "plan.json")
	write(policy + "---\nkind: policy\ntenantName: blue\npolicyName: another\n")
	if err := os.WriteFile(saved, []byte(netctl(t, url, "plan", "-f", dir, "--prune", "--set", "s", "-o", "json").out), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := netctl(t, url, "apply", "--plan", saved); r.code != ExitOK || !strings.Contains(r.out, "Deleted tenant red\n") || !strings.Contains(r.out, "Created policy blue:another\n") {
		t.Errorf("apply --plan: %+v", r)
	}
	write(policy)
	if r := netctl(t, url, "plan", "-f", dir, "--prune", "--set", "s"); !strings.Contains(squeezed(r.out), "deleted policy blue:another") {
		t.Errorf("what a plan has created is not in its set: %+v", r)
	}
	if r := netctl(t, url, "plan", "-f", dir, "--prune"); r.code != ExitUsage {
		t.Errorf("without --set: %+v", r)
	}
}

func TestDeletionOfWhatIsMissingIsPlannedAsNoChange(t *testing.T) {
	url, file := canCluster(t), planFile(t)
	if r := netctl(t, url, "delete", "-f", file, "--plan"); r.code != ExitOK || r.out != "Nothing would change\n" {
		t.Errorf("%+v", r)
	}
}

func TestPlanSummaryNamesServices(t *testing.T) {
	got := planSummary(api.Plan{Objects: []api.ApplyResult{{Action: api.ApplyUpdated}}, Services: []api.PlannedService{{Service: "blue:db", Effect: api.ApplyUpdated, Changes: []string{"ports"}}}})
	if got != "1 object changes, no connection opens or closes but by services, 1 service changes" {
		t.Errorf("got %q", got)
	}
}

func TestFlagThatEmptiesAFieldIsNotNoted(t *testing.T) {
	url := canCluster(t)
	for _, networks := range []string{"blue:n", "none"} {
		if r := netctl(t, url, "tenant", "create", "--shared-networks", networks, "red"); r.code != ExitOK || r.errOut != "" {
			t.Errorf("--shared-networks %s: %+v", networks, r)
		}
	}
}

// planRecorder answers plans that nothing would change, and remembers the latest request.
func planRecorder(t *testing.T) (url string, last *api.PlanRequest) {
	t.Helper()
	last = &api.PlanRequest{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == planPath {
			*last = api.PlanRequest{}
			if err := json.NewDecoder(r.Body).Decode(last); err != nil {
				t.Error(err)
			}
		}
		_, _ = io.WriteString(w, `{"objects":[{"kind":"NetworkPolicy","key":"shop/p","action":"unchanged","warnings":["spec.ingress[0]: it allows nothing"]}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL, last
}

func TestPlanSendsManifests(t *testing.T) {
	url, last := planRecorder(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "list.yaml")
	const policy = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s}}"
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(policy, "%s", "p") + "\n- " + strings.ReplaceAll(policy, "%s", "q, namespace: other") + "\n---\n{kind: tenant, tenantName: x}\n"
	config := filepath.Join(dir, "config")
	for name, text := range map[string]string{file: list, config: "current-context: here\ncontexts:\n- name: there\n  context: {namespace: no}\n- name: here\n  context: {namespace: shop}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"NETMASTER": url, "KUBECONFIG": filepath.Join(dir, "none") + ":" + config}
	for _, c := range []struct {
		program string
		args    []string
		want    string // the first manifest's namespace
	}{
		{"netctl", nil, ""},
		{"netctl", []string{"-n", "blue"}, `,"namespace":"blue"`},
		{KubectlPlugin, nil, `,"namespace":"shop"`},
		{KubectlPlugin, []string{"--namespace", "blue"}, `,"namespace":"blue"`},
	} {
		r := netctlAs(t, c.program, env, append([]string{"plan", "-f", file}, c.args...)...)
		if r.code != ExitOK || !strings.Contains(r.errOut, "warning: NetworkPolicy shop/p: spec.ingress[0]: it allows nothing") {
			t.Fatalf("%+v", r)
		}
		var got []string
		for _, change := range last.Changes {
			got = append(got, string(change.Manifest)+string(change.Set))
		}
		const begin = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":`
		want := []string{begin + `"p"` + c.want + `}}`, begin + `"q","namespace":"other"}}`, `{"kind":"tenant","tenantName":"x"}`}
		if !slices.Equal(got, want) {
			t.Errorf("%s %v: got %q, want %q", c.program, c.args, got, want)
		}
	}
	if r := netctl(t, url, "plan", "-f", file, "--prune", "--set", "s"); r.code != ExitFailure || !strings.Contains(r.errOut, "plan it without --prune") {
		t.Errorf("with --prune: %+v", r)
	}
}

func TestFaultsOnOneLineArePrintedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("[1, 2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := netctl(t, "http://127.0.0.1:1", "apply", "-f", file); r.code != ExitFailure || strings.Count(r.errOut, "must be an object with a kind") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestPlanSaysWhatItCuts(t *testing.T) {
	for want, c := range map[string]*api.PlannedCuts{
		"":                                       nil,
		"No established connection would be cut": {Hosts: []api.PlannedCut{{Host: "h1"}}},
		"1 established connection would be cut: 1 on h1":                                                 {Connections: 1, Hosts: []api.PlannedCut{{Host: "h1", Connections: 1}, {Host: "h2"}}},
		"7 established connections would be cut: at least 3 on h1, 4 on h2; not known of h3: it is away": {Connections: 7, Hosts: []api.PlannedCut{{Host: "h1", Connections: 3}, {Host: "h2", Connections: 4, More: true}, {Host: "h3", Error: "it is away"}}},
		"Established connections are not counted: why":                                                   {Error: "why"},
	} {
		if got := cutsText(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
