package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
)

// TestHostGoesOnWithTheOtherNetmaster: of two netmasters the one that is asked stands still, then the other
// one, which is asked since, is killed: contivk8s' ADD, 1.x's contivk8s, Docker's request for an address
// and netctl succeed at the first try. netplugin mirrors from one of both, then from the
// other or the store. The third netmaster only keeps the store.
func TestHostGoesOnWithTheOtherNetmaster(t *testing.T) {
	c := newCluster(t)
	replica := func(port int) (*process, string) {
		at := fmt.Sprintf("127.0.0.1:%d", port)
		p := c.spawn("netmaster", nil, "--etcd-endpoints", "http://127.0.0.1:2379", "--external-address", at, "--internal-address", at, "--agent-address", fmt.Sprintf("127.0.0.1:%d", port+1))
		client, err := api.NewClient("http://" + at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		c.eventually("a replica is ready", func() error { return client.Do(t.Context(), "GET", "/readyz", nil, nil) })
		return p, "http://" + at
	}
	first, url1 := replica(9801)
	second, url2 := replica(9811)
	both := url1 + "," + url2
	c.must("POST", "/api/v1/networks/default:net1/", api.Network{
		TenantName: "default", NetworkName: "net1", NwType: "data", Encap: "vxlan", Subnet: "10.1.2.0/24", Gateway: "10.1.2.254",
	})
	c.must("POST", "/api/v1/endpointGroups/default:default-group/", api.EndpointGroup{TenantName: "default", NetworkName: "net1", GroupName: "default-group"})
	plugins := filepath.Join(c.dir, "docker")
	c.startPlugin("CONTIV_NETPLUGIN_NETMASTER="+both, "CONTIV_NETPLUGIN_MODE=docker", "CONTIV_NETPLUGIN_DOCKER_ENDPOINT=none", "CONTIV_NETPLUGIN_DOCKER_SOCKET_DIR="+plugins)

	all := func(when string) {
		t.Helper()
		for _, way := range []struct {
			name string
			do   func() error
		}{
			{"contivk8s", func() error {
				code, out := c.cni("ADD", when, newNetns(t))
				if code != 0 {
					return fmt.Errorf("exit code %d: %s", code, out)
				}
				return nil
			}},
			{"contivk8s of 1.x", func() error {
				return onSocket(t.Context(), c.socket(), "/ContivCNI.AddPod", map[string]string{
					"K8S_POD_NAME": "p", "K8S_POD_NAMESPACE": "default", "K8S_POD_INFRA_CONTAINER_ID": when + "1x", "CNI_NETNS": newNetns(t), "CNI_IFNAME": "eth0",
				}, nil)
			}},
			{"docker", func() error {
				var is struct{ Address, Error string }
				err := onSocket(t.Context(), filepath.Join(plugins, "netplugin.sock"), "/IpamDriver.RequestAddress", map[string]string{"PoolID": "blue/net1//10.1.1.0/24"}, &is)
				if err == nil && (is.Error != "" || !strings.HasPrefix(is.Address, "10.1.1.")) {
					err = fmt.Errorf("%+v", is)
				}
				return err
			}},
			{"netctl", func() error {
				cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "netctl"), "tenant", "create", when)
				cmd.Env = append(os.Environ(), "NETMASTER="+both)
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}},
		} {
			begin := time.Now()
			if err := way.do(); err != nil {
				t.Errorf("%s, %s: %v", when, way.name, err)
			}
			t.Logf("%s, %s: %.2f s", when, way.name, time.Since(begin).Seconds())
		}
	}
	all("well")
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal alone does not tell: until its one thread gets a processor all others go on.
	for errors.Is(unix.Waitid(unix.P_PID, first.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	all("still")
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.eventually("who stood still goes on", func() error {
		client, err := api.NewClient(url1)
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Do(t.Context(), "GET", "/readyz", nil, nil)
	})
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-second.done
	all("killed")
}

// onSocket asks what listens on a unix socket.
func onSocket(ctx context.Context, socket, path string, in, out any) error {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://socket"+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}
