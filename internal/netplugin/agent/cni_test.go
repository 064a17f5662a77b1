package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// contivk8s builds the plugin once and returns the directory that holds it.
func contivk8s(t *testing.T) string {
	t.Helper()
	dir, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var pluginDir = filepath.Join(os.TempDir(), fmt.Sprintf("n-contivk8s-%d", os.Getpid()))

var buildPlugin = sync.OnceValues(func() (string, error) {
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(pluginDir, "contivk8s"), "github.com/contiv/netplugin/v2/cmd/contivk8s")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build contivk8s: %w: %s", err, out)
	}
	return pluginDir, err
})

// cniRuntime is a container runtime with the real CNI library.
type cniRuntime struct {
	*libcni.CNIConfig
	b    *bed
	path string
}

func newRuntime(t *testing.T, b *bed) *cniRuntime {
	t.Helper()
	path := contivk8s(t)
	return &cniRuntime{libcni.NewCNIConfigWithCacheDir([]string{path}, t.TempDir(), nil), b, path}
}

func (r *cniRuntime) list(t *testing.T, cniVersion, extra string) *libcni.NetworkConfigList {
	t.Helper()
	conf := fmt.Sprintf(`{"cniVersion":%q,"name":"conf1","plugins":[{"type":"contivk8s","socket":%q,"stateDir":%q,"tenant":"blue"%s}]}`,
		cniVersion, r.b.cfg.Socket, r.b.cfg.StateDir, extra)
	l, err := libcni.NetworkConfFromBytes([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rt(container string, s *sandbox, args ...[2]string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: container, NetNS: s.path, IfName: "eth0", Args: args}
}

// TestCNIVersions runs ADD, CHECK and DEL of every version of the specification
// that libcni knows, through libcni and the contivk8s binary.
func TestCNIVersions(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	for _, v := range version.All.SupportedVersions() {
		t.Run(v, func(t *testing.T) {
			s := newSandbox(t)
			list := r.list(t, v, "")
			res, err := r.AddNetworkList(t.Context(), list, rt("c1", s))
			if err != nil {
				t.Fatal(err)
			}
			if res.Version() != v {
				t.Errorf("result of version %s, want %s", res.Version(), v)
			}
			got, err := types100.NewResultFromResult(res)
			if err != nil {
				t.Fatal(err)
			}
			var ips, gws []string
			for _, ip := range got.IPs {
				ips = append(ips, ip.Address.String())
				if ip.Gateway != nil {
					gws = append(gws, ip.Gateway.String())
				}
			}
			if diff := cmp.Diff([]string{"10.1.1.1/24", "fd00:1::a01:101/64"}, ips); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"10.1.1.254"}, gws); diff != "" {
				t.Errorf("gateways (-want +got):\n%s", diff)
			}
			if len(got.Routes) != 1 || got.Routes[0].Dst.String() != "0.0.0.0/0" {
				t.Errorf("routes %v, want the default route", got.Routes)
			}
			if since(v, "0.3.0") {
				checkInterfaces(t, got, v, s)
			}
			if again, err := r.AddNetworkList(t.Context(), list, rt("c1", s)); err != nil {
				t.Errorf("second ADD: %v", err)
			} else if diff := cmp.Diff(asJSON(t, res), asJSON(t, again)); diff != "" {
				t.Errorf("second ADD (-first +second):\n%s", diff)
			}
			if since(v, "0.4.0") {
				if err := r.CheckNetworkList(t.Context(), list, rt("c1", s)); err != nil {
					t.Errorf("CHECK: %v", err)
				}
			}
			for range 2 {
				if err := r.DelNetworkList(t.Context(), list, rt("c1", s)); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			b.nothingLeft()
		})
	}
}

func asJSON(t *testing.T, r types.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.PrintTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func since(v, least string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, least)
	return err == nil && ok
}

func checkInterfaces(t *testing.T, got *types100.Result, v string, s *sandbox) {
	t.Helper()
	if len(got.Interfaces) != 2 {
		t.Fatalf("%d interfaces, want 2", len(got.Interfaces))
	}
	mtu := 0
	if since(v, "1.1.0") {
		mtu = 1450
	}
	want := &types100.Interface{Name: "eth0", Mac: "02:02:0a:01:01:01", Sandbox: s.path, Mtu: mtu}
	if diff := cmp.Diff(want, got.Interfaces[1]); diff != "" {
		t.Errorf("container's interface (-want +got):\n%s", diff)
	}
	if got.Interfaces[0].Sandbox != "" || !strings.HasPrefix(got.Interfaces[0].Name, "cv") {
		t.Errorf("host's interface %v, want one outside a sandbox named cv...", got.Interfaces[0])
	}
	for _, ip := range got.IPs {
		if ip.Interface == nil || *ip.Interface != 1 {
			t.Errorf("address %s is on interface %v, want 1", ip.Address.String(), ip.Interface)
		}
	}
}

// TestCNIStatusAndGC runs STATUS and GC of version 1.1 through libcni.
func TestCNIStatusAndGC(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	list := r.list(t, "1.1.0", `,"network":"net1"`)
	if err := r.GetStatusNetworkList(t.Context(), list); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	keep, lost := newSandbox(t), newSandbox(t)
	for c, s := range map[string]*sandbox{"keep": keep, "lost": lost} {
		if _, err := r.AddNetworkList(t.Context(), list, rt(c, s)); err != nil {
			t.Fatal(err)
		}
	}
	err := r.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "keep", IfName: "eth0"}}})
	if err != nil {
		t.Errorf("GC: %v", err)
	}
	if n := len(b.endpoints()); n != 1 {
		t.Errorf("%d endpoints after GC, want 1", n)
	}
	if err := r.CheckNetworkList(t.Context(), list, rt("keep", keep)); err != nil {
		t.Errorf("CHECK of what was kept: %v", err)
	}
	if err := r.DelNetworkList(t.Context(), list, rt("keep", keep)); err != nil {
		t.Errorf("DEL: %v", err)
	}
	b.nothingLeft()
}

// TestCNICheckFinds makes CHECK fail for what somebody has changed.
func TestCNICheckFinds(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	list := r.list(t, "1.0.0", "")
	s := newSandbox(t)
	if _, err := r.AddNetworkList(t.Context(), list, rt("c1", s)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][]string{
		{"addr", "del", "10.1.1.1/24", "dev", "eth0"},
		{"link", "set", "eth0", "down"},
		{"link", "del", "eth0"},
	} {
		if out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=" + s.path, "ip"}, change...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", change, err, out)
		}
		err := r.CheckNetworkList(t.Context(), list, rt("c1", s))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != 103 {
			t.Errorf("CHECK after ip %v: %v, want code 103", change, err)
		}
	}
	if err := r.DelNetworkList(t.Context(), list, rt("c1", s)); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestDeletionsAreSpooledWithoutNetplugin: with netplugin down STATUS answers code 50, ADD 11, and DEL
// spools and succeeds; netplugin replays it.
func TestDeletionsAreSpooledWithoutNetplugin(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	list := r.list(t, "1.1.0", "")
	s := newSandbox(t)
	if _, err := r.AddNetworkList(t.Context(), list, rt("c1", s)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	for what, want := range map[string]struct {
		code uint
		err  error
	}{
		"STATUS": {50, r.GetStatusNetworkList(t.Context(), list)},
		"ADD":    {11, func() error { _, err := r.AddNetworkList(t.Context(), list, rt("c2", s)); return err }()},
	} {
		var e *types.Error
		if !errors.As(want.err, &e) || e.Code != want.code {
			t.Errorf("%s: %v, want code %d", what, want.err, want.code)
		}
	}
	if err := r.DelNetworkList(t.Context(), list, rt("c1", s)); err != nil {
		t.Errorf("DEL: %v", err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.nothingLeft()
}

// TestBadCNIInputGetsTheSpecifiedError answers nonsense with the specification's error.
func TestBadCNIInputGetsTheSpecifiedError(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	s := newSandbox(t)
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"conf1","type":"contivk8s","socket":%q,"stateDir":%q`, b.cfg.Socket, b.cfg.StateDir)
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": s.path, "CNI_IFNAME": "eth0", "CNI_PATH": r.path,
	}
	tests := []struct {
		name  string
		env   map[string]string
		stdin string
		code  uint
		text  string // in msg or details
	}{
		{"empty", nil, "", 6, ""},
		{"no JSON", nil, "hello", 6, ""},
		{"no name", nil, `{"cniVersion":"1.1.0"}`, 7, "name"},
		{"unknown version", nil, `{"cniVersion":"9.9.9","name":"x"}`, 1, ""},
		{"unknown command", map[string]string{"CNI_COMMAND": "FLY"}, conf + "}", 4, "FLY"},
		{"no container id", map[string]string{"CNI_CONTAINERID": ""}, conf + "}", 4, "CNI_CONTAINERID"},
		{"container id with a slash", map[string]string{"CNI_CONTAINERID": "a/b"}, conf + "}", 4, "a/b"},
		{"tenant of wrong type", nil, conf + `,"tenant":5}`, 6, "tenant"},
		{"mtu of wrong type", nil, conf + `,"mtu":"big"}`, 6, "mtu"},
		{"mtu too small", nil, conf + `,"mtu":10}`, 7, "mtu"},
		{"ip is nonsense", nil, conf + `,"ip":"ten"}`, 6, "ten"},
		{"two IPv4", nil, conf + `,"ip":["10.1.1.5","10.1.1.6"]}`, 7, "IPv4"},
		{"tenant with a slash", nil, conf + `,"tenant":"a/b"}`, 7, "a/b"},
		{"unknown network", nil, conf + `,"tenant":"blue","network":"nowhere"}`, 7, "nowhere"},
		{"bad args", map[string]string{"CNI_ARGS": "TENANT"}, conf + "}", 4, "TENANT"},
		{"unknown args", map[string]string{"CNI_ARGS": "COLOUR=red"}, conf + "}", 4, "COLOUR"},
		{"args with bad IP", map[string]string{"CNI_ARGS": "IP=x"}, conf + "}", 4, "x"},
		{"netns is gone", map[string]string{"CNI_NETNS": "/run/netns/n-none"}, conf + "}", 7, "n-none"},
		{"previous result on ADD", nil, conf + `,"prevResult":{"cniVersion":"1.1.0"}}`, 7, "first plugin"},
		{"CHECK without result", map[string]string{"CNI_COMMAND": "CHECK"}, conf + "}", 7, "prevResult"},
		{"CHECK of what is not there", map[string]string{"CNI_COMMAND": "CHECK"}, conf + `,"prevResult":{"cniVersion":"1.1.0"}}`, 103, "c1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), filepath.Join(r.path, "contivk8s"))
			for k, v := range env {
				if o, ok := tt.env[k]; ok {
					v = o
				}
				c.Env = append(c.Env, k+"="+v)
			}
			if a, ok := tt.env["CNI_ARGS"]; ok {
				c.Env = append(c.Env, "CNI_ARGS="+a)
			}
			c.Stdin = strings.NewReader(tt.stdin)
			var out bytes.Buffer
			c.Stdout = &out
			err := c.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("exit: %v, want code 1", err)
			}
			var e types.Error
			if err := json.Unmarshal(out.Bytes(), &e); err != nil {
				t.Fatalf("stdout is not the specification's JSON: %v: %s", err, out.String())
			}
			if e.Code != tt.code || e.Msg == "" || !strings.Contains(e.Msg+" "+e.Details, tt.text) {
				t.Errorf("answer %s, want code %d and a text with %q", out.String(), tt.code, tt.text)
			}
		})
	}
	b.nothingLeft()
}

// TestCNIArgsChooseNetworkAndAddress lets CNI_ARGS choose network and address.
func TestCNIArgsChooseNetworkAndAddress(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := newRuntime(t, b)
	list := r.list(t, "1.0.0", `,"network":"elsewhere"`)
	s := newSandbox(t)
	conf := rt("c1", s, [2]string{"TENANT", "default"}, [2]string{"NETWORK", "default-net"}, [2]string{"IP", "10.1.2.9"},
		[2]string{"K8S_POD_NAME", "web-0"}, [2]string{"IgnoreUnknown", "1"}, [2]string{"FOO", "bar"})
	if _, err := r.AddNetworkList(t.Context(), list, conf); err != nil {
		t.Fatal(err)
	}
	eps := b.endpoints()
	if len(eps) != 1 || eps[0].Key.Network.String() != "default:default-net" || eps[0].IPv4.String() != "10.1.2.9" {
		t.Errorf("endpoints %+v, want one at 10.1.2.9 on default:default-net", eps)
	}
	if err := r.DelNetworkList(t.Context(), list, conf); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestSpoolNeedsDirectory: a DEL that can be neither done nor spooled says so.
func TestSpoolNeedsDirectory(t *testing.T) {
	err := attach.Spool{Dir: "/proc/n-none"}.Put(attach.DetachRequest{Key: attach.Key{Container: "c", IfName: "eth0"}})
	if err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("Put into /proc: %v, want an error", err)
	}
}
