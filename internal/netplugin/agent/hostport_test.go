package agent

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestRuntimePublishesHostPorts: by the CNI library and contivk8s, a runtime publishes ports with ADD,
// once and again; one that is taken is refused and leaves nothing; DEL gives them up.
func TestRuntimePublishesHostPorts(t *testing.T) {
	b := newWayOutBed(t)
	r := newRuntime(t, b)
	list := r.list(t, "1.0.0", `,"capabilities":{"portMappings":true}`)
	with := func(container string, mappings ...map[string]any) *libcni.RuntimeConf {
		c := rt(container, newSandbox(t))
		c.CapabilityArgs = map[string]any{"portMappings": mappings}
		return c
	}
	port := func(host int, proto, ip string) map[string]any {
		return map[string]any{"hostPort": host, "containerPort": 80, "protocol": proto, "hostIP": ip}
	}
	one := with("c1", port(8080, "tcp", ""), port(8080, "udp", "127.0.0.1"))
	for range 2 {
		if _, err := r.AddNetworkList(t.Context(), list, one); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.agent.Attachments.Published(attach.Key{Container: "c1", IfName: "eth0"}); len(got) != 2 || got[0].String() != "*:8080->80/tcp" || got[1].String() != "127.0.0.1:8080->80/udp" {
		t.Errorf("published %v", got)
	}
	b.eventually("the ports in the host's status", func() error {
		s, _, err := b.hostStatus()
		if err == nil && (len(s.Published.Ports) != 2 || s.Published.Ports[0].HostPort != 8080 || s.Published.Ports[0].Port != 80 || s.Published.Ports[0].Endpoint.Network.Tenant == "") {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":8080"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a process gets a port of a container: %v %v", l, err)
	}
	before := len(b.endpoints())
	_, err := r.AddNetworkList(t.Context(), list, with("c2", port(8081, "tcp", ""), port(8080, "tcp", "127.0.0.1")))
	if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != 102 || !strings.Contains(e.Details, "published by container c1 already") {
		t.Errorf("a port that is taken: %v", err)
	}
	if _, there := b.agent.Attachments.Entry(attach.Key{Container: "c2", IfName: "eth0"}); there || len(b.endpoints()) != before {
		t.Error("a container whose ports are refused leaves something")
	}
	three := with("c3", port(8081, "tcp", ""), port(8080, "udp", "127.0.0.2")) // free, and another address
	if _, err := r.AddNetworkList(t.Context(), list, three); err != nil {
		t.Error(err)
	}
	if err := r.DelNetworkList(t.Context(), list, one); err != nil {
		t.Error(err)
	}
	four := with("c4", port(8080, "tcp", ""))
	if _, err := r.AddNetworkList(t.Context(), list, four); err != nil {
		t.Errorf("what a container had that is gone: %v", err)
	}
	// Podman binds the ports itself, after ADD.
	podman := with("c5", port(8085, "tcp", ""))
	podman.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "web"}}
	for range 2 {
		if _, err := r.AddNetworkList(t.Context(), list, podman); err != nil {
			t.Fatal(err)
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":8085")
		if err != nil {
			t.Fatalf("podman does not get its container's port: %v", err)
		}
		defer l.Close()
		if p := b.agent.Observer.State().Problems; len(p) > 0 {
			t.Errorf("problems while podman has the port: %v", p)
		}
		_, err = r.AddNetworkList(t.Context(), list, with("c6", port(8085, "tcp", "")))
		if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != 102 || !strings.Contains(e.Details, "published by container web already") {
			t.Errorf("a port of podman's container: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []*libcni.RuntimeConf{three, four, podman} {
		if err := r.DelNetworkList(t.Context(), list, c); err != nil {
			t.Error(err)
		}
	}
}
