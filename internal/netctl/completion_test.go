package netctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Commands, flags, fixed values and the names of the server's objects are
// completed; with no server there are no names and no error.
func TestCompletionOffersObjectsOfTheServer(t *testing.T) {
	m := newFakeMaster(t)
	furnish(m)
	for _, tc := range []struct {
		words []string
		want  string
	}{
		{[]string{"n"}, "netprofile network network-policy"},
		{[]string{"net", ""}, "create inspect ls rm"},
		{[]string{"network", "rm", "-t", "b"}, "blue"},
		{[]string{"network", "rm", "--tenant=b"}, "--tenant=blue"},
		{[]string{"network", "rm", "-t", "blue", ""}, "backend office"},
		{[]string{"network", "rm", ""}, "default-net"},
		{[]string{"network", "rm", "--tenant=blue", "o"}, "office"},
		{[]string{"network", "create", "--enc"}, "--encap"},
		{[]string{"network", "create", "--encap", ""}, "vlan vxlan"},
		{[]string{"network", "create", "-e=vl"}, "-e=vlan"},
		{[]string{"group", "create", "-t", "blue", "-p", ""}, "audit web-in"},
		{[]string{"group", "create", "-t", "blue", "backend", ""}, "app web"},
		{[]string{"group", "create", "-t", "blue", "backend", "web", ""}, ""},
		{[]string{"group", "create", "-t", "blue", "-n", ""}, "gold"},
		{[]string{"policy", "rule-rm", "-t", "blue", "web-in", ""}, "http out rest some"},
		{[]string{"policy", "rule-add", "-d", ""}, "in out"},
		{[]string{"service", "inspect", "-t", "blue", ""}, "shop"},
		{[]string{"app-profile", "rm", "-t", "blue", ""}, "store"},
		{[]string{"bgp", "rm", ""}, "host1"},
		{[]string{"get", "endp"}, "endpointGroup endpoint"},
		{[]string{"get", "group", "-t", "blue", "w"}, "web"},
		{[]string{"get", "-o", ""}, "table wide json yaml name"},
		{[]string{"global", "set", "-b", ""}, "bridge routing"},
		{[]string{"global", "set", "-a", ""}, "flood proxy"},
		{[]string{"completion", ""}, "bash zsh fish"},
		{[]string{"nosuch", ""}, ""},
		{[]string{"apply", "-f", ""}, ""},
		{[]string{"network", "ls", "--nosuch", "-"}, "--tenant --all --output --json --quiet --netmaster --insecure --token-file --tls-dir --timeout --help"},
	} {
		got := netctl(t, m.url, append([]string{completeCommand}, tc.words...)...)
		want := strings.ReplaceAll(tc.want, " ", "\n") + "\n"
		if tc.want == "" {
			want = ""
		}
		if diff := cmp.Diff(result{ExitOK, want, ""}, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.words, diff)
		}
	}
	check(t, result{ExitOK, "", ""}, netctl(t, "http://127.0.0.1:1", completeCommand, "network", "rm", ""))
	if got := netctl(t, m.url, completeCommand); !strings.Contains(got.out, "network\n") || strings.Contains(got.out, completeCommand) {
		t.Errorf("an empty line: %+v", got)
	}
}

// The scripts are valid in their shells, as far as these are installed, and
// bash's one completes a line.
func TestCompletionScriptsAreValid(t *testing.T) {
	dir := t.TempDir()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := netctl(t, "", "completion", shell)
		if got.code != ExitOK || !strings.Contains(got.out, "netctl "+completeCommand) {
			t.Fatalf("%s: %+v", shell, got)
		}
		file := filepath.Join(dir, shell)
		if err := os.WriteFile(file, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: its script is not parsed", shell)
			continue
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	check(t, result{ExitUsage, "", "netctl: unknown shell \"csh\"; there are bash, zsh and fish\nSee 'netctl completion --help'.\n"}, netctl(t, "", "completion", "csh"))
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	// netctl itself is a function that shows its arguments and some candidates.
	const script = `source "$1"
log=$2
netctl() { printf '<%s>' "$@" >>"$log"; printf '%s\n' office other backend --tenant=blue; }
for COMP_LINE in 'netctl network rm o' 'netctl network rm ' 'netctl network rm --tenant=b'; do
    COMP_POINT=${#COMP_LINE}
    _netctl
    echo "${COMPREPLY[@]}"
done
cat "$log"`
	out, err := exec.CommandContext(t.Context(), bash, "-c", script, "-", filepath.Join(dir, "bash"), filepath.Join(dir, "log")).Output()
	want := "office other\noffice other backend --tenant=blue\nblue\n" +
		"<__complete><network><rm><o><__complete><network><rm><><__complete><network><rm><--tenant=b>"
	if diff := cmp.Diff(want, string(out)); err != nil || diff != "" {
		t.Errorf("error %v, candidates and calls (-want +got):\n%s", err, diff)
	}
}
