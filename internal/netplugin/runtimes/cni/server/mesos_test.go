package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// mesosConf is a configuration as Mesos hands it over, with labels "k=v".
func mesosConf(keys string, labels ...string) string {
	var list []string
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		list = append(list, `{"key":"`+k+`","value":"`+v+`"}`)
	}
	return `{"cniVersion":"0.2.0","name":"contiv"` + keys + `,"args":{"org.apache.mesos":{"network_info":{"name":"contiv","labels":{"labels":[` +
		strings.Join(list, ",") + `]}}}}}`
}

// TestMesosLabelsOverrideTheConfiguration: Mesos' labels for Contiv say where a container belongs and override the
// configuration. The others become the endpoint's labels. An unknown label of Contiv's is
// refused.
func TestMesosLabelsOverrideTheConfiguration(t *testing.T) {
	base := attach.Request{Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: "/ns", Source: attach.SourceCNI, Config: "contiv"}
	with := func(tenant, network, group string, labels map[string]string) attach.Request {
		r := base
		r.Tenant, r.Network, r.Group, r.Labels = tenant, network, group, labels
		return r
	}
	for _, tt := range []struct {
		name, conf string
		want       attach.Request
		refused    string
	}{
		{name: "none", conf: mesosConf(""), want: base},
		{
			name: "all of ours over the configuration", conf: mesosConf(`,"tenant":"t","network":"n","group":"g"`, LabelTenant+"=blue", LabelNetwork+"=net1", LabelGroup+"=web"),
			want: with("blue", "net1", "web", nil),
		},
		{
			name: "one of ours, and others", conf: mesosConf(`,"tenant":"t","labels":{"a":"b","tier":"x"}`, LabelGroup+"=web", "tier=front"),
			want: with("t", "", "web", map[string]string{"a": "b", "tier": "front"}),
		},
		{
			name: "without values", conf: mesosConf(`,"tenant":"t","network":"n","group":"closed"`, LabelTenant+"=", LabelNetwork+"=", LabelGroup+"="),
			want: with("t", "n", "closed", nil),
		},
		{name: "in other letters", conf: mesosConf("", "IO.Contiv.net-group=web"), refused: `unknown label \"IO.Contiv.net-group\"`},
		{name: "with a space", conf: mesosConf("", " io.contiv.net-group=web"), refused: `unknown label \" io.contiv.net-group\"`},
		{name: "of ours with a space behind", conf: mesosConf("", "io.contiv.net-group =web"), refused: `unknown label \"io.contiv.net-group \"`},
		{name: "misspelt", conf: mesosConf("", "io.contiv.netgroup=web"), refused: `unknown label \"io.contiv.netgroup\"`},
		{name: "twice", conf: mesosConf("", LabelGroup+"=web", LabelGroup+"=db"), refused: "is there twice"},
		{name: "no list", conf: `{"name":"n","args":{"org.apache.mesos":{"network_info":{"labels":[]}}}}`, refused: "must be a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &service{res: attached}
			r, err := request(tt.conf, "")
			if tt.refused != "" {
				if status, body := post(t, s, cni.Add, tt.conf); status != cni.StatusRefused || !strings.Contains(body, tt.refused) || s.asked != nil {
					t.Errorf("%d %s, want %q", status, body, tt.refused)
				}
				return
			}
			if diff := cmp.Diff(tt.want, r, compareAddrs); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestLegacyMesosLabelsComeFromTheConfiguration: for 1.x's plugin type the labels are also read from the configuration that
// Mesos has written. Labels in the request come first. For other configurations that file
// is not read.
func TestLegacyMesosLabelsComeFromTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	keep := func(network, conf string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, network), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, network, "network.conf"), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group := func(conf string) (string, error) {
		c, err := loadConf([]byte(conf))
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.request(cni.Invocation{Container: "c1", Netns: filepath.Join(dir, "ns"), IfName: "eth0"})
		return r.Group, err
	}
	is := func(when, conf, want string) {
		t.Helper()
		if got, err := group(conf); err != nil || got != want {
			t.Errorf("%s: group %q, %v; want %q", when, got, err, want)
		}
	}
	const bare = `{"name":"other","type":"netcontiv"}`
	is("no file", bare, "")
	keep("netcontiv", mesosConf("", LabelGroup+"=web"))
	is("1.x's directory", bare, "web")
	is("another type", `{"name":"other","type":"contivk8s"}`, "")
	is("labels handed over", mesosConf(`,"type":"netcontiv"`, LabelGroup+"=db"), "db")
	keep("other", mesosConf("", LabelGroup+"=own"))
	is("the network's own directory", bare, "own")
	is("a name that leaves the directory", `{"name":"netcontiv/../other","type":"netcontiv"}`, "web")
	keep("..", mesosConf("", LabelGroup+"=above"))
	is("the directory above", `{"name":"..","type":"netcontiv"}`, "web")
	keep("other", "{")
	if _, err := group(bare); err == nil || !strings.Contains(err.Error(), "network.conf") {
		t.Errorf("a broken file: %v", err)
	}
	keep("other", strings.Repeat(" ", maxMesosFile+1))
	if _, err := group(bare); err == nil || !strings.Contains(err.Error(), "is not a file of at most") {
		t.Errorf("a large file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "blocked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := group(`{"name":"blocked","type":"netcontiv"}`); err == nil || !strings.Contains(err.Error(), "network.conf") {
		t.Errorf("where the file cannot be looked for: %v", err)
	}
	keep("none/network.conf", "{}") // like a pipe without writer, a directory is not read
	if _, err := group(`{"name":"none","type":"netcontiv"}`); err == nil || !strings.Contains(err.Error(), "is not a file of at most") {
		t.Errorf("what is no file: %v", err)
	}
}
