//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/mesos"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestMesosAndNomadContainersJoinTheirGroups attaches containers as Mesos' containerizer, 1.x's plugin for Mesos and
// Nomad do, with what examples have them say, and by a second interface: each is in the
// group that it names, and Mesos' executor reaches its agent.
func TestMesosAndNomadContainersJoinTheirGroups(t *testing.T) {
	shared(t)
	onOne(t, both, runtimes)
}

// runtime calls plugins on a host as container runtimes do.
type runtime struct {
	*cluster
	h   *testcluster.Host
	dir string // of CNI plugins: netcontiv, contivk8s
}

// fresh makes a container's namespace that serves tcp/80.
func (r *runtime) fresh(name string) *testcluster.Namespace {
	r.t.Helper()
	ns, err := r.AddNamespace(name)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Serve(name, "tcp/80"); err != nil {
		r.t.Fatal(err)
	}
	return ns
}

// call starts a plugin; conf's keys for the lab's own paths are filled in.
func (r *runtime) call(verb, plugin, container, netns, ifName, args, conf string) (*current.Result, error) {
	r.t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(conf), &all); err != nil {
		r.t.Fatal(err)
	}
	all["socket"], all["stateDir"] = r.h.CNISocket(), r.h.StateDir()
	data, err := json.Marshal(all)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := testcluster.NewNSExec(r.h.NS).ExecPlugin(r.t.Context(), filepath.Join(r.dir, plugin), data, append((&invoke.Args{
		Command: verb, ContainerID: container, NetNS: netns, IfName: ifName, Path: r.dir, PluginArgsStr: args,
	}).AsEnv(), "MESOS_AGENT_ENDPOINT="+r.h.Control.String()+":5051"))
	if err != nil || verb != "ADD" {
		return nil, err
	}
	return r.result(all["cniVersion"], out), nil
}

func (r *runtime) result(version any, out []byte) *current.Result {
	r.t.Helper()
	res, err := create.Create(fmt.Sprint(version), out)
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	got, err := current.NewResultFromResult(res)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// protected wants that c reaches a server at an address and s does not, as the policy
// of the group servers has it.
func (r *runtime) protected(what string, addr netip.Addr) {
	r.t.Helper()
	for from, want := range map[string]testcluster.Verdict{"c": testcluster.OK, "s": testcluster.Denied} {
		to := testcluster.Target{Proto: "tcp", Addr: addr, Port: 80}
		if a := r.space(from).Probe(r.t.Context(), to, time.Second); a.Verdict != want {
			r.t.Errorf("%s at %s, from %s: %s, want %s", what, addr, from, a, want)
		}
	}
}

func firstAddr(res *current.Result) netip.Addr {
	addr, _ := netip.AddrFromSlice(res.IPs[0].Address.IP)
	return addr.Unmap()
}

// mesosLabels are those of 1.x, in what Mesos adds to a configuration.
const mesosLabels = `"args":{"org.apache.mesos":{"network_info":{"name":"netcontiv","labels":{"labels":[
	{"key":"io.contiv.tenant","value":"blue"},{"key":"io.contiv.network","value":"net"},{"key":"io.contiv.net-group","value":"servers"}]}}}}`

func runtimes(t *testing.T, driver string) {
	c := pairUp(t, driver, "rt")
	r := &runtime{cluster: c, h: c.host("h1"), dir: t.TempDir()}
	for _, name := range []string{"netcontiv", "contivk8s"} {
		if err := os.Symlink(filepath.Join(c.Config().BinDir, "contivk8s"), filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []struct {
		name string
		run  func()
	}{{"Mesos", r.mesos}, {"MesosOf1x", r.mesosOf1x}, {"Nomad", r.nomad}, {"SecondInterface", r.second}} {
		t.Run(part.name, func(sub *testing.T) {
			r.t = sub
			part.run()
		})
	}
	r.t = t
	c.hasEndpoints("blue:net", 3)
}

// mesos: the configuration of examples/mesos with Mesos' labels, from its standard input
// and from the file that Mesos keeps beside the namespace's handle.
func (r *runtime) mesos() {
	t := r.t
	example, err := os.ReadFile("../../examples/mesos/netcontiv.conf")
	if err != nil {
		t.Fatal(err)
	}
	bare := string(example)
	whole := strings.Replace(bare, "{", "{"+mesosLabels+",", 1)
	const executor = "b5a5d1c6-6f3c-4a52-8a5b-0c5b1a3d9e10"
	ns := r.fresh("executor")
	dir := filepath.Join(t.TempDir(), executor)
	if err := os.MkdirAll(filepath.Join(dir, "netcontiv"), 0o700); err != nil {
		t.Fatal(err)
	}
	handle := filepath.Join(dir, "ns")
	if err := os.Symlink(ns.Path(), handle); err != nil { // Mesos mounts it there
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(r.h.Control, 5051).String()
	var agent net.Listener
	if err := r.h.NS.Do(func() (err error) {
		agent, err = new(net.ListenConfig).Listen(t.Context(), "tcp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }() // the test is over
	for _, conf := range []string{whole, bare} {
		if conf == bare {
			if err := os.WriteFile(filepath.Join(dir, "netcontiv", "network.conf"), []byte(whole), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		res, err := r.call("ADD", "netcontiv", executor, handle, "eth0", "", conf)
		if err != nil {
			t.Fatal(err)
		}
		r.protected("the executor", firstAddr(res))
		if conn, err := ns.Dial(t.Context(), "tcp", at); err != nil {
			t.Errorf("the executor to its Mesos agent: %v", err)
		} else {
			_ = conn.Close() // nothing was sent
		}
		if _, err := r.call("DEL", "netcontiv", executor, handle, "eth0", "", bare); err != nil {
			t.Error(err)
		}
	}
	for _, label := range []string{"blue", "net", "servers"} { // tenant, network and group that are not there
		nobody := strings.Replace(whole, `"value":"`+label+`"`, `"value":"nobody"`, 1)
		if _, err := r.call("ADD", "netcontiv", executor, handle, "eth0", "", nobody); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("nobody in place of %s: %v", label, err)
		}
	}
	if links, err := ns.Links(); err != nil || len(links) != 1 {
		t.Errorf("the namespace has the interfaces %v %v", links, err)
	}
}

// mesosOf1x: the calls of 1.x's plugin, on its socket.
func (r *runtime) mesosOf1x() {
	t := r.t
	ns := r.fresh("task")
	path := filepath.Join(filepath.Dir(r.h.CNISocket()), mesos.SocketFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the socket: %v %v", st, err)
	}
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }}}
	defer client.CloseIdleConnections()
	call := func(call, group string) (int, []byte) {
		t.Helper()
		body := fmt.Sprintf(`{"cni_ifname":"eth0","cni_netns":%q,"cni_containerid":"task","labels":{"io.contiv.tenant":"blue","io.contiv.network":"net","io.contiv.net-group":%q}}`, ns.Path(), group)
		resp, err := client.Post("http://x"+call, "application/json", strings.NewReader(body)) //nolint:noctx // the dialer has it
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, out
	}
	if status, out := call(mesos.PathAdd, "nobody"); status != http.StatusInternalServerError || !strings.Contains(string(out), `"code": 2`) {
		t.Errorf("a group that does not exist: %d %s", status, out)
	}
	status, out := call(mesos.PathAdd, "servers")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, out)
	}
	r.protected("the task", firstAddr(r.result(mesos.Version, out)))
	if status, out := call(mesos.PathDel, "servers"); status != http.StatusOK || len(out) > 0 {
		t.Errorf("DEL: %d %s", status, out)
	}
}

// nomad: what Nomad's client sends for a job whose network is of Contiv; tenant and group
// come in its CNI_ARGS beside its own.
func (r *runtime) nomad() {
	t := r.t
	const conf = `{"cniVersion":"1.0.0","name":"contiv","type":"contivk8s","capabilities":{"portMappings":true},` +
		`"runtimeConfig":{"portMappings":[{"hostPort":23456,"containerPort":80,"protocol":"tcp","hostIP":""},{"hostPort":23456,"containerPort":80,"protocol":"udp","hostIP":""}]}}`
	const args = "IgnoreUnknown=true;TENANT=blue;GROUP=servers;NOMAD_REGION=global;NOMAD_NAMESPACE=default;NOMAD_JOB_ID=web;NOMAD_GROUP_NAME=web;NOMAD_ALLOC_ID=6f1e2a9c"
	ns := r.fresh("alloc")
	res, err := r.call("ADD", "contivk8s", "6f1e2a9c", ns.Path(), "eth0", args, conf)
	if err != nil {
		t.Fatal(err)
	}
	r.protected("the allocation", firstAddr(res))
	if _, err := r.call("DEL", "contivk8s", "6f1e2a9c", ns.Path(), "eth0", args, conf); err != nil {
		t.Error(err)
	}
}

// elsewhere is how long a connection between two hosts may take whose one end has just been
// attached: the other host knows it some milliseconds later, and a first packet that was
// dropped until then is sent again after a second.
const elsewhere = 3 * time.Second

// second: a container on two networks, under the policy of its group on each, which
// answers who comes in from another subnet by the interface that it came in by.
func (r *runtime) second() {
	t := r.t
	r.netctl("global set --fwd-mode routing", "network create -t blue -e vxlan -s 10.1.9.0/24 -g 10.1.9.254 other", "group create -t blue -p p other inner")
	ns := r.fresh("two")
	const one, two = `{"cniVersion":"1.0.0","name":"contiv","type":"contivk8s","tenant":"blue","group":"clients"}`,
		`{"cniVersion":"1.0.0","name":"other","type":"contivk8s","tenant":"blue","group":"inner"}`
	first, err := r.call("ADD", "contivk8s", "two", ns.Path(), "eth0", "", one)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.call("ADD", "contivk8s", "two", ns.Path(), "net1", "", two)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.space("s").Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: firstAddr(first), Port: 80}, elsewhere); a.Verdict != testcluster.OK {
		t.Errorf("the first interface, of a group that lets everybody in: %s", a)
	}
	r.add(spec("peer", "h2", "blue/other"))
	to := testcluster.Target{Proto: "tcp", Addr: firstAddr(res), Port: 80}
	if a := r.space("peer").Probe(t.Context(), to, time.Second); a.Verdict != testcluster.Denied {
		t.Errorf("the second interface, of a group that lets clients in: %s", a)
	}
	if a := ns.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: r.addr("peer", "4"), Port: 80}, elsewhere); a.Verdict != testcluster.OK {
		t.Errorf("from the second interface to its network: %s", a)
	}
	r.protected("the second interface", firstAddr(res)) // by clients of another subnet
	for _, i := range []struct{ conf, ifName string }{{two, "net1"}, {one, "eth0"}} {
		if _, err := r.call("DEL", "contivk8s", "two", ns.Path(), i.ifName, "", i.conf); err != nil {
			t.Error(err)
		}
		if out, err := ns.Command(t.Context(), "ip", "rule").Output(); err != nil || strings.Contains(string(out), "30000:") {
			t.Errorf("rules of %s are left: %s %v", i.ifName, out, err)
		}
	}
	if links, err := ns.Links(); err != nil || len(links) != 1 {
		t.Errorf("the namespace has the interfaces %v %v", links, err)
	}
	r.hasEndpoints("blue:other", 1)
}
