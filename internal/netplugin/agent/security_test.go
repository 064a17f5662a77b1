package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// watchfulDriver fails the test when it is applied before it may be.
type watchfulDriver struct {
	driver.Driver
	allowed func() bool
	t       *testing.T
}

func (d watchfulDriver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	if !d.allowed() {
		d.t.Error("Apply before the first complete snapshot")
	}
	return d.Driver.Apply(ctx, want)
}

// TestNoWriteBeforeSnapshot: a restarted agent whose store is away touches
// nothing, and still detaches.
func TestNoWriteBeforeSnapshot(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	r2 := request("c2", newSandbox(t))
	for _, r := range []attach.Request{r, r2} {
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	b.agentS.Unavailable(true)
	b.fake = b.fake.Restart()
	b.cfg.Driver = watchfulDriver{b.fake, func() bool {
		_, err := b.agentS.Get(context.Background(), "x")
		return err == nil
	}, t}
	b.startWith(b.cfg.Driver)
	b.eventually("the socket answers", func() error {
		if err := b.client().Ready(t.Context()); err == nil || errors.Is(err, attach.ErrUnreachable) {
			return fmt.Errorf("ready: %w", err)
		}
		return nil
	})
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r2.Key}); err != nil {
		t.Errorf("Detach with the store away: %v", err)
	}
	b.agentS.Unavailable(false)
	b.ready()
	if st := b.agent.Observer.State(); len(st.Ports) != 1 {
		t.Errorf("ports %v, want c1's", st.Ports)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestAttachWaitsForAPausedMirror: what the host knows stands still while its mirror is
// paused, and an Attach waits for its own endpoint to be known.
func TestAttachWaitsForAPausedMirror(t *testing.T) {
	b := newBed(t, func(c *Config) { c.DebugHooks = true })
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	post := func(path string) {
		t.Helper()
		if status, body := do(t, http.DefaultClient, http.MethodPost, "http://"+b.agent.RESTAddr().String()+path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	post("/debug/mirror/pause")
	before := b.agent.Observer.State().Revision
	b.network("blue", "net3", 3)
	done := make(chan error, 1)
	r2 := request("c2", newSandbox(t))
	go func() {
		_, err := b.client().Attach(context.Background(), r2)
		done <- err
	}()
	b.eventually("netmaster has the second endpoint", func() error {
		if n := len(b.endpoints()); n != 2 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Errorf("Attach answered although its endpoint cannot be known: %v", err)
	default:
	}
	if st := b.agent.Observer.State(); st.Revision != before || !st.Paused || len(st.Ports) != 1 {
		t.Errorf("state of a paused host: %+v, want revision %d and one port", st, before)
	}
	post("/debug/mirror/resume")
	if err := <-done; err != nil {
		t.Errorf("Attach after the mirror goes on: %v", err)
	}
	for _, c := range []string{"c1", "c2"} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: c, IfName: "eth0"}}); err != nil {
			t.Error(err)
		}
	}
	b.nothingLeft()
}

// TestOnlyOwnOrphansAreReleased: endpoints that this agent made and its journal has lost are released;
// endpoints that others created on this host stay.
func TestOnlyOwnOrphansAreReleased(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.stop()
	nk := model.NetworkKey{Tenant: "blue", Name: "net1"}
	for i, id := range []model.EndpointID{"cni:n-host1:lost:eth0", "somebody-elses", "cni:n-host2:lost:eth0"} {
		ip := netip.AddrFrom4([4]byte{10, 1, 1, byte(200 + i)})
		ep := model.Endpoint{
			Key: model.EndpointKey{Network: nk, ID: id}, Host: testHost, IPv4: ip,
			MAC: model.EndpointMAC(nk, ip, netip.Addr{}), Identity: model.IdentityFirst,
		}
		b.put(func(tx store.Tx) error { return tables.Endpoints.Create(tx, ep) })
	}
	b.fake = b.fake.Restart()
	b.start()
	b.eventually("the orphan is gone", func() error {
		var ids []string
		for _, ep := range b.endpoints() {
			ids = append(ids, string(ep.Key.ID))
		}
		if diff := cmp.Diff([]string{"cni:n-host2:lost:eth0", "somebody-elses"}, ids); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestUnknownVethsAreRemovedAtStart: veths of ours that no entry knows are removed at the next
// start, also those whose maker died before setting the alias; with a journal
// that is new they are adopted.
func TestUnknownVethsAreRemovedAtStart(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	key := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: attachment.EndpointID(testHost, attach.Key{Container: "old", IfName: "eth0"})}
	if _, err := vethpair.Create(vethpair.Pair{HostIf: compile.IfName(key), Alias: vethpair.AliasPrefix + key.String(), Netns: s.path, IfName: "eth0", MTU: 1450}); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.ready()
	b.noVeths()

	res, err := b.client().Attach(t.Context(), request("c1", s))
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := os.RemoveAll(attachment.JournalDir(b.cfg.StateDir)); err != nil {
		t.Fatal(err)
	}
	b.put(func(tx store.Tx) error { // a pod's
		e := b.endpoints()[0]
		e.Namespace, e.Pod = "shop", model.Pod{Name: "one", UID: "u1"}
		return tables.Endpoints.Put(tx, e)
	})
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	b.eventually("the port is still programmed", func() error {
		if p := b.agent.Observer.State().Ports[res.HostIf]; !p.Programmed {
			return fmt.Errorf("port: %+v", p)
		}
		return nil
	})
	// The journal learns from the store what was lost with it, so that the endpoint
	// can be put back, also when it is deleted while netplugin is not there.
	before := b.endpoints()
	b.eventually("the journal has the addresses again", func() error {
		for _, e := range b.agent.Attachments.Entries() {
			if text, err := json.Marshal(e); err != nil || !strings.Contains(string(text), res.Addresses[0].Prefix.Addr().String()) {
				return fmt.Errorf("entry %s: %v", text, err) //nolint:errorlint // nil as a rule
			}
		}
		return nil
	})
	b.stop()
	b.put(func(tx store.Tx) error {
		tables.Endpoints.Delete(tx, before[0].Key)
		return nil
	})
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	b.eventually("the endpoint is put back", func() error {
		after := b.endpoints()
		if len(after) != 1 || after[0].MAC != before[0].MAC || after[0].IPv4 != before[0].IPv4 || after[0].Group != before[0].Group || after[0].Container != before[0].Container {
			return fmt.Errorf("endpoints %+v, before %+v", after, before)
		}
		return nil
	})
	b.master.mu.Lock()
	again := b.master.created[string(before[0].Key.ID)].ConfigEP.Pod
	b.master.mu.Unlock()
	if again == nil || *again != (api.Pod{Namespace: "shop", Name: "one", UID: "u1"}) { // policies of Kubernetes would select it no more
		t.Errorf("it is put back as pod %v", again)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestSweepSparesOtherHosts: veths of an agent with another host name, started
// on this machine by mistake or on purpose, stay, with a new journal and with
// an old one.
func TestSweepSparesOtherHosts(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	key := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: attachment.EndpointID("another-host", attach.Key{Container: "theirs", IfName: "eth0"})}
	hostIf := compile.IfName(key)
	if _, err := vethpair.Create(vethpair.Pair{HostIf: hostIf, Alias: vethpair.AliasPrefix + key.String(), Netns: s.path, IfName: "eth0", MTU: 1450}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vethpair.Delete(hostIf, vethpair.AliasPrefix+key.String()); err != nil {
			t.Error(err)
		}
	})
	for _, fresh := range []bool{false, true} {
		b.stop()
		if fresh {
			if err := os.RemoveAll(attachment.JournalDir(b.cfg.StateDir)); err != nil {
				t.Fatal(err)
			}
		}
		b.fake = b.fake.Restart()
		b.start()
		b.ready()
		if there, err := vethpair.Exists(hostIf); !there || err != nil {
			t.Errorf("journal new: %v: their veth is there: %v, %v", fresh, there, err)
		}
	}
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// TestLegacySocketServesTwoCalls speaks 1.x' two calls: a pod whose without its labels is
// told in the log, and as a problem of the host.
func TestLegacySocketServesTwoCalls(t *testing.T) {
	var log testenv.Log
	b := newBed(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b.ready()
	s := newSandbox(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.cfg.Socket)
	}}}
	post := func(call, body string) (int, legacyAnswer) {
		t.Helper()
		status, answer := do(t, client, http.MethodPost, "http://x/ContivCNI."+call, body)
		var a legacyAnswer
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			t.Fatal(err)
		}
		return status, a
	}
	pod := fmt.Sprintf(`{"K8S_POD_NAME":"web","K8S_POD_NAMESPACE":"ns","K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_NETNS":%q,"CNI_IFNAME":"eth0"}`, s.path)
	want := legacyAnswer{EndpointID: "default:default-net:cni:n-host1:c1:eth0", IPAddress: "10.1.2.1/24", IPv6: "fd00:2::a01:201/64"}
	b.put(func(tx store.Tx) error {
		return tables.Groups.Put(tx, model.Group{
			Key: model.GroupKey{Tenant: "default", Name: "default-group"}, Network: "default-net", ID: model.IdentityFirst,
		})
	})
	status, got := post("AddPod", pod)
	if diff := cmp.Diff(want, got); status != 200 || diff != "" {
		t.Errorf("AddPod: %d (-want +got):\n%s", status, diff)
	}
	// Again, by whichever path leads to the namespace.
	index := func() int {
		l, err := net.InterfaceByName(compile.IfName(model.EndpointKey{Network: model.NetworkKey{Tenant: "default", Name: "default-net"}, ID: "cni:n-host1:c1:eth0"}))
		if err != nil {
			t.Fatal(err)
		}
		return l.Index
	}
	first := index()
	inside := exec.CommandContext(t.Context(), "nsenter", "--net="+s.path, "sleep", "1000") // ended with the test
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = inside.Process.Kill()
		_ = inside.Wait() // it was killed
	}()
	path := fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid)
	b.eventually("a process is in the namespace", func() error {
		if !sameFile(path, s.path) {
			return errors.New("it is not")
		}
		return nil
	})
	for _, netns := range []string{path, path, s.path} {
		status, got := post("AddPod", strings.Replace(pod, s.path, netns, 1))
		if diff := cmp.Diff(want, got); status != 200 || diff != "" {
			t.Errorf("AddPod again by %s: %d (-want +got):\n%s", netns, status, diff)
		}
		if index() != first {
			t.Errorf("AddPod again by %s makes the interface again", netns)
		}
	}
	if eps := b.endpoints(); len(eps) != 1 || eps[0].Group != "default-group" {
		t.Errorf("endpoints %+v, want one in default-group", eps)
	}
	for _, want := range []string{"level=WARN", "1.x", "pod=ns/web", "tenant=default", "group=default-group", "give netmaster --kubeconfig"} {
		if line := log.Line("without its labels"); !strings.Contains(line, want) {
			t.Errorf("the log says %q, without %q", line, want)
		}
	}
	b.eventually("the problem is told", func() error {
		kv, err := b.st.Get(t.Context(), tables.HostStatuses.Key(testHost))
		if err != nil {
			return err
		}
		row, err := tables.HostStatuses.Decode(kv)
		if err == nil {
			const of = "contivk8s of 1.x"
			if text := row.Value.Problems[of]; text != b.agent.Observer.State().Problems[of] || !strings.HasPrefix(text, model.NoEffectPrefix+"1 pods") {
				err = fmt.Errorf("the status has the problem %q", text)
			}
		}
		return err
	})
	if status, got := post("DelPod", pod); status != 200 || got.Result != 0 {
		t.Errorf("DelPod: %d %+v", status, got)
	}
	if status, got := post("AddPod", `{"K8S_POD_NAME":"web"}`); status != 500 || got.Result == 0 || got.ErrInfo == "" {
		t.Errorf("AddPod without container: %d %+v", status, got)
	}

	// Where Kubernetes is followed its labels choose, in the place of a group that 1.x had.
	b.master.mu.Lock()
	b.master.places[api.Pod{Namespace: "ns", Name: "web"}] = api.PodPlacement{Followed: true, UID: "u1", TenantName: "blue", NetworkName: "net1"}
	b.master.places[api.Pod{Namespace: "ns", Name: "web", UID: "u1"}] = api.PodPlacement{Followed: true, UID: "u1", TenantName: "blue", NetworkName: "net1"}
	b.master.mu.Unlock()
	if status, got := post("AddPod", pod); status != 200 || !strings.HasPrefix(got.EndpointID, "blue:net1:") {
		t.Errorf("AddPod where Kubernetes is followed: %d %+v", status, got)
	}
	if _, pod := b.master.askedFor("c1"); pod == nil || pod.UID != "u1" {
		t.Errorf("the endpoint was asked for pod %+v", pod)
	}
	if text := b.agent.Observer.State().Problems["contivk8s of 1.x"]; !strings.HasPrefix(text, model.NoEffectPrefix+"1 pods") {
		t.Errorf("the host's problem is %q", text)
	}
	if _, body := do(t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", ""); !strings.Contains(body, `contiv_netplugin_problems{kind="no effect"} 1`) {
		t.Error("metrics count no problem of the kind no effect")
	}
	if status, got := post("DelPod", pod); status != 200 || got.Result != 0 {
		t.Errorf("DelPod: %d %+v", status, got)
	}
	b.nothingLeft()
}

// do makes an HTTP request and returns status and body of the answer.
func do(t *testing.T, c *http.Client, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestInspectionShowsTheHost reads the inspection interface.
func TestInspectionShowsTheHost(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	base := "http://" + b.agent.RESTAddr().String()
	for path, want := range map[string]string{
		"/svcstats?": `"tables":{"conns"`, "/inspect/driver?": `"tables":{"conns"`, "/metrics?": `contiv_netplugin_table_evictions_total{table="conns"} 0`,
		"/svcstats": `"ports"`, "/svcstats?&": `"services":[]`, "/inspect/driver": "blue:net1", "/inspect/bgp": "not configured", "/inspect/nameserver": `"names":{}`,
		"/debug/state": `"programmed":true`, "/debug/state?": `"networks":{"blue:net1":0}`, "/healthz": "ok", "/livez": "ok\n", "/metrics": "contiv_netplugin_ports 1\n",
	} {
		status, body := do(t, http.DefaultClient, http.MethodGet, base+path, "")
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d: %.300s lacks %q", path, status, body, want)
		}
	}
	for id, want := range map[string]int{"nobody": http.StatusNotFound, "c1": http.StatusOK} {
		if status, body := do(t, http.DefaultClient, http.MethodPost, base+"/debug/reclaimEndpoint/"+id, ""); status != want {
			t.Errorf("reclaim %s: %d %s, want %d", id, status, body, want)
		}
	}
	if status, _ := do(t, http.DefaultClient, http.MethodPost, base+"/debug/mirror/pause", ""); status != http.StatusNotFound {
		t.Errorf("pausing the mirror without --debug-hooks: %d, want 404", status)
	}
	stranger := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/state", nil)
	stranger.TLS = &tls.ConnectionState{}
	w := httptest.NewRecorder()
	b.agent.Observer.Handler(b.agent.Observer.More()).ServeHTTP(w, stranger)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("who shows no certificate by TLS reads the state: %d %s", w.Code, w.Body)
	}
	b.nothingLeft()
}

// TestContradictingFlagsStopTheAgent: an agent whose flags contradict the cluster stops with a
// sentence that names flag and values, and its host is not made known.
func TestContradictingFlagsStopTheAgent(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.stop()
	for _, tt := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.FwdMode = model.FwdRouting }, []string{"--fwdmode routing", "bridge"}},
		{func(c *Config) { c.PvtSubnet = netip.MustParsePrefix("172.30.0.0/16") }, []string{"--private-subnet 172.30.0.0/16", "172.19.0.0/16"}},
	} {
		cfg := b.cfg
		cfg.Host, cfg.StateDir = "n-host2", filepath.Join(b.dir, "state2")
		tt.change(&cfg)
		a, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(t.Context())
		if kv, err := b.st.Get(t.Context(), tables.Hosts.Key(cfg.Host)); err != nil || kv.Exists() {
			t.Errorf("the host is known: %v, %v", kv.Exists(), err)
		}
		if !errors.Is(err, model.ErrConflict) {
			t.Errorf("Run: %v, want a conflict", err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("sentence %q lacks %q", err, w)
			}
		}
	}
}
