package cni

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// netplugin answers on a unix socket as h says, and returns its path.
func netplugin(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n-cni-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return socket
}

// outcome is what a runtime sees of the plugin.
type outcome struct {
	code           int
	stdout, stderr string
}

// run starts the plugin as a runtime does.
func run(t *testing.T, verb, conf string, env ...string) outcome {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append([]string{
		asPlugin + "=1", "CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_NETNS=/run/netns/a b", "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=ä&b", "CNI_PATH=/opt/cni/bin",
	}, env...)
	c.Stdin = strings.NewReader(conf)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// config is a configuration that names where netplugin is and its state.
func config(socket, stateDir string) string {
	return `{"cniVersion":"1.1.0","name":"n","type":"contivk8s","socket":"` + socket + `","stateDir":"` + stateDir + `","labels":{"a":"b"}}`
}

// TestPluginPassesRequestsUnchanged: netplugin gets what the runtime gave, byte for byte, and the
// runtime what netplugin answers.
func TestPluginPassesRequestsUnchanged(t *testing.T) {
	for _, verb := range []string{Add, Del, Check, GC, Status} {
		t.Run(verb, func(t *testing.T) {
			arrived := make(chan Invocation, 1)
			socket := netplugin(t, func(w http.ResponseWriter, r *http.Request) {
				conf, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if r.Method != http.MethodPost || r.URL.Path != Path {
					t.Errorf("%s %s, want POST %s", r.Method, r.URL.Path, Path)
				}
				arrived <- ParseInvocation(r.URL.Query(), conf)
				_, _ = io.WriteString(w, "{\n    \"any\": \"thing\"\n}")
			})
			conf := config(socket, t.TempDir()) + "\n"
			if diff := cmp.Diff(outcome{0, "{\n    \"any\": \"thing\"\n}", ""}, run(t, verb, conf), cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			want := Invocation{
				Verb: verb, Container: "c1", Netns: "/run/netns/a b", IfName: "eth0",
				Args: "IgnoreUnknown=1;K8S_POD_NAME=ä&b", Conf: []byte(conf),
			}
			if diff := cmp.Diff(want, <-arrived); diff != "" {
				t.Errorf("invocation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLongConfigurationArrivesWhole: one that is longer than a pipe holds arrives whole.
func TestLongConfigurationArrivesWhole(t *testing.T) {
	var long atomic.Int64
	socket := netplugin(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		long.Store(n)
		w.WriteHeader(StatusDone)
	})
	conf := config(socket, t.TempDir()) + strings.Repeat(" ", 500_000)
	if got := run(t, GC, conf); got != (outcome{}) || long.Load() != int64(len(conf)) {
		t.Errorf("outcome %+v, %d bytes arrived of %d", got, long.Load(), len(conf))
	}
}

// TestErrorObjectIsPassedToTheRuntime: the error object that netplugin made is the runtime's.
func TestErrorObjectIsPassedToTheRuntime(t *testing.T) {
	object := string(ErrorObject([]byte(`{"cniVersion":"0.4.0"}`), types.NewError(7, "no", "because")))
	socket := netplugin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(StatusRefused)
		_, _ = io.WriteString(w, object)
	})
	for _, verb := range []string{Add, Del, Status} {
		if got := run(t, verb, config(socket, "/proc/none")); got != (outcome{1, object, ""}) {
			t.Errorf("%s: %+v, want %s and code 1", verb, got, object)
		}
	}
}

// TestDeletionsAreSpooledWhenNotServed: netplugin away, of an older version, or not able to serve a
// deletion: DEL is spooled and succeeds, the other verbs say what is wrong.
func TestDeletionsAreSpooledWhenNotServed(t *testing.T) {
	older := func(w http.ResponseWriter, r *http.Request) { http.NewServeMux().ServeHTTP(w, r) }
	unable := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"kind":"unavailable","message":"the disk is full"}`)
	}
	for _, tt := range []struct {
		name, socket, text string
	}{
		{"away", filepath.Join(t.TempDir(), "none"), "netplugin does not answer at "},
		{"older", netplugin(t, older), "upgrade netplugin"},
		{"unable", netplugin(t, unable), "the disk is full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			conf := config(tt.socket, dir)
			for verb, code := range map[string]uint{Add: 11, Check: 11, GC: 11, Status: 50} {
				got := run(t, verb, conf)
				var e struct {
					CNIVersion string `json:"cniVersion"`
					types.Error
				}
				if err := json.Unmarshal([]byte(got.stdout), &e); err != nil {
					t.Fatalf("%s: %v: %+v", verb, err, got)
				}
				if got.code != 1 || e.Code != code || e.CNIVersion != "1.1.0" || !strings.Contains(e.Details, tt.text) {
					t.Errorf("%s: %+v, want code %d and a text with %q", verb, got, code, tt.text)
				}
			}
			got := run(t, Del, conf)
			if got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, tt.text) {
				t.Errorf("DEL: %+v, want success and on stderr %q", got, tt.text)
			}
			spooled, err := attach.Spool{Dir: filepath.Join(dir, attach.SpoolDir)}.List()
			if err != nil {
				t.Fatal(err)
			}
			want := []attach.DetachRequest{{Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: "/run/netns/a b"}}
			if diff := cmp.Diff(want, spooled); diff != "" {
				t.Errorf("spool (-want +got):\n%s", diff)
			}
			if got := run(t, Del, config(tt.socket, "/proc/none")); got.code != 1 || !strings.Contains(got.stdout, "neither done nor spooled") {
				t.Errorf("DEL without a spool: %+v", got)
			}
		})
	}
}

// TestPluginErrorsHaveTheSpecifiedForm: what skel and the plugin themselves refuse has the
// specification's form too, with the version of the configuration.
func TestPluginErrorsHaveTheSpecifiedForm(t *testing.T) {
	for _, tt := range []struct {
		name, verb, conf string
		env              []string
		code             uint
		text             string
	}{
		{"no JSON", Add, "{", nil, 6, "unexpected end"},
		{"socket is no text", Add, `{"cniVersion":"1.0.0","name":"n","socket":1}`, nil, 6, "socket: must be a string, not a number"},
		{"state directory is no text", Del, `{"cniVersion":"1.0.0","name":"n","stateDir":{}}`, nil, 6, "stateDir: must be a string, not a object"},
		{"no name", Add, `{"cniVersion":"1.0.0"}`, nil, 7, "name"},
		{"bad container", Add, `{"cniVersion":"1.0.0","name":"n"}`, []string{"CNI_CONTAINERID=-"}, 4, "containerID"},
		{"unknown version", Add, `{"cniVersion":"7.0.0","name":"n"}`, nil, 1, "7.0.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, tt.verb, tt.conf, tt.env...)
			var conf, answer struct {
				CNIVersion string `json:"cniVersion"`
				types.Error
			}
			_ = json.Unmarshal([]byte(tt.conf), &conf) // one case has none
			if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil {
				t.Fatalf("%v: %+v", err, got)
			}
			if got.code != 1 || answer.Code != tt.code || answer.CNIVersion != conf.CNIVersion ||
				!strings.Contains(answer.Msg+answer.Details, tt.text) {
				t.Errorf("outcome %+v, want code %d, version %q and a text with %q", got, tt.code, conf.CNIVersion, tt.text)
			}
		})
	}
}

// TestEnvironmentReplacesKeys: the variables stand in for the keys.
func TestEnvironmentReplacesKeys(t *testing.T) {
	var asked atomic.Bool
	socket := netplugin(t, func(w http.ResponseWriter, _ *http.Request) { asked.Store(true); w.WriteHeader(http.StatusTeapot) })
	dir := t.TempDir()
	got := run(t, Del, `{"cniVersion":"1.1.0","name":"n"}`, EnvSocket+"="+socket, EnvStateDir+"="+dir)
	spooled := attach.Spool{Dir: filepath.Join(dir, attach.SpoolDir)}.Has(attach.Key{Container: "c1", IfName: "eth0"})
	if got.code != 0 || !asked.Load() || !spooled {
		t.Errorf("outcome %+v, asked %t, spooled %t", got, asked.Load(), spooled)
	}
}

// TestVersionNeedsNoConfiguration: VERSION needs neither configuration nor netplugin.
func TestVersionNeedsNoConfiguration(t *testing.T) {
	got := run(t, "VERSION", "")
	var v struct{ SupportedVersions []string }
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || got.code != 0 || len(v.SupportedVersions) < 7 {
		t.Errorf("outcome %+v, %v", got, err)
	}
}
