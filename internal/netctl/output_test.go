package netctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// Labels and names come from containers' images and runtimes. What steers a terminal
// in them, or turns what it shows around, is written so that it does not, and JSON
// means the same.
func TestTerminalControlCharactersAreRemoved(t *testing.T) {
	const evil = "\x1b[2J \u009b2J \u009d0;title\u009c a\u202eb \x7f \U000e0041 é"
	const told = "a\u200bb \U000e0041 é" // what a netmaster takes of it; earlier ones took all
	url := startNetmaster(t)
	netctl(t, url, strings.Fields("tenant create blue")...)
	netctl(t, url, strings.Fields("network create -t blue -s 10.1.1.0/24 n")...)
	netctl(t, url, strings.Fields("service create -t blue -s n -l app=web -p 80:80:TCP s")...)
	body := fmt.Sprintf(`{"TenantName":"blue","NetworkName":"n","EndpointID":"e1","ConfigEP":{"Host":"h","Labels":{"app":"web","evil":%s}}}`, quoted(t, told))
	r, err := http.Post(url+"/plugin/createEndpoint", "application/json", strings.NewReader(body)) //nolint:noctx // the server ends with the test
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err)
	}
	http.DefaultClient.CloseIdleConnections()
	for _, line := range []string{"endpoint inspect e1", "endpoint ls", "service inspect -t blue s", "network inspect -t blue n", "export --in-use", "export --in-use --json"} {
		got := netctl(t, url, strings.Fields(line)...)
		if got.code != ExitOK || got.out == "" {
			t.Errorf("%s: %+v", line, got)
		}
		if strings.ContainsAny(got.out+got.errOut, "\u200b\U000e0041") {
			t.Errorf("%s writes what steers a terminal: %+q", line, got.out)
		}
	}
	// What is exported is applied elsewhere with the same labels.
	other := startNetmaster(t)
	if got := netctlIn(t, netctl(t, url, "export", "--in-use").out, other, "apply", "-q", "-f", "-"); got.code != ExitOK {
		t.Fatalf("apply what was exported: %+v", got)
	}
	if got, want := netctl(t, other, "endpoint", "inspect", "e1"), netctl(t, url, "endpoint", "inspect", "e1"); !strings.Contains(got.out, `\u200b`) || labelLine(got.out) != labelLine(want.out) {
		t.Errorf("labels after export and apply: %q, want %q", labelLine(got.out), labelLine(want.out))
	}
	if got := visible(evil); strings.ContainsFunc(got, hidden) || !strings.Contains(got, `a\u202eb`) {
		t.Errorf("in a table: %+q", got)
	}
	var b bytes.Buffer
	if err := printJSON(&b, evil); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(evil, back); diff != "" || !strings.Contains(b.String(), "é") {
		t.Errorf("JSON means something else (-want +got):\n%s%s", diff, b.String())
	}
}

func labelLine(s string) string {
	_, labels, _ := strings.Cut(s, `"labelMap"`)
	labels, _, _ = strings.Cut(labels, "}")
	return labels
}

func quoted(t *testing.T, s string) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestContainerIDIsNoName: the id of a container, which stands in for a name that is not known, is no name.
func TestContainerIDIsNoName(t *testing.T) {
	for name, want := range map[string]string{"web1": "web1", "c1": ""} {
		row := endpoints.row(api.EndpointOper{Key: "blue:net:e1", ContainerName: name, ContainerID: "c1"})
		if got := row[slices.Index(endpoints.header, "Name")]; got != want {
			t.Errorf("container c1 of the name %q is shown as %q, want %q", name, got, want)
		}
	}
}
