package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
)

// TestProcessIsAttachedAsAContainer: a process is attached as a container is. A repeated request with other
// labels or another name changes them in place; one with another network, group or address
// attaches it again. The host's own namespace is refused.
func TestProcessIsAttachedAsAContainer(t *testing.T) {
	b := newBed(t, often)
	b.ready()
	s := newSandbox(t)
	r := request("", s)
	r.Key, r.Source, r.Config, r.Name = attach.NetnsKey(s.path, "eth0"), attach.SourceProcess, "", "web"
	r.Labels = map[string]string{"app": "shop", "zone": "a"}
	attached := func() attach.Result {
		t.Helper()
		res, err := b.client().Attach(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	first := attached()
	e, _ := b.agent.Attachments.Entry(r.Key)
	asked := func() (n int, told api.UpdateEndpointRequest) {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		return b.master.calls["/plugin/createEndpoint"], b.master.reports[string(e.Endpoint.ID)]
	}
	r.Labels, r.Name = map[string]string{"app": "bank"}, "desk"
	for _, step := range []string{"other labels", "the same again", "after a restart"} {
		if step == "after a restart" {
			b.restart()
			b.ready()
		}
		if res := attached(); res.Endpoint != first.Endpoint || res.Addresses[0] != first.Addresses[0] {
			t.Errorf("%s: %+v, want what stands, %+v", step, res, first)
		}
		n, told := asked()
		want := api.UpdateEndpointRequest{
			Event: api.EventStart, Tenant: "blue", Network: "net1", EndpointID: string(e.Endpoint.ID), EPCommonName: "desk",
			Labels: map[string]string{"app": "bank"}, RemovedLabels: []string{"zone"},
		}
		if diff := cmp.Diff(want, told); diff != "" || n != 1 {
			t.Errorf("%s: %d endpoints were asked for, and told (-want +got):\n%s", step, n, diff)
		}
	}
	b.master.idle.Store(true)
	r.Labels = nil
	if _, err := b.client().Attach(t.Context(), r); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("labels that the cluster does not hear of: %v", err)
	}
	if e, _ := b.agent.Attachments.Entry(r.Key); len(e.Request.Labels) == 0 {
		t.Error("the journal has labels that the cluster never heard of")
	}
	b.master.idle.Store(false)

	r.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.77")}
	if res := attached(); res.Addresses[0].Prefix.Addr() != r.Addresses[0] {
		t.Errorf("asked for %s, it has %v", r.Addresses[0], res.Addresses)
	}
	// What is refused leaves the process attached as it was, also in another tenant.
	b.network("red", "vault", 77)
	refused := r
	refused.Addresses = []netip.Addr{refusedAddr}
	elsewhere := refused
	elsewhere.Tenant, elsewhere.Network, elsewhere.Group = "red", "vault", ""
	for _, r := range []attach.Request{refused, elsewhere} {
		if _, err := b.client().Attach(t.Context(), r); !errors.Is(err, model.ErrConflict) {
			t.Errorf("an address that another endpoint has: %v", err)
		}
		if e, there := b.agent.Attachments.Entry(r.Key); !there || e.Result == nil || e.Endpoint.Network.Tenant != "blue" || e.Result.Addresses[0].Prefix.Addr().String() != "10.1.1.77" {
			t.Errorf("after a refusal it is %+v", e)
		}
	}
	before, _ := asked()
	for _, tc := range []struct {
		netns, ifName, name string
		kind                error
		says                string
	}{
		{"/proc/thread-self/ns/net", "eth0", "web", model.ErrInvalid, "the host's own network namespace"},
		{"/run/netns/nosuch", "eth0", "web", model.ErrNotFound, "/run/netns/nosuch: it does not exist"},
		{"/etc/passwd", "eth0", "web", model.ErrInvalid, "must be a network namespace"},
		{"/proc/self/ns/user", "eth0", "web", model.ErrInvalid, "must be a network namespace"},
		{"/proc/self/status", "eth0", "web", model.ErrInvalid, "must be a network namespace"},
		{s.path, "averyveryverylongname", "web", model.ErrInvalid, `ifname "averyveryverylongname": must be`},
		{s.path, "eth0", "bad name", model.ErrInvalid, `name "bad name": must be`},
	} {
		wrong := r
		wrong.Addresses, wrong.Netns, wrong.Name, wrong.Key = nil, tc.netns, tc.name, attach.PIDKey(1, tc.ifName)
		if _, err := b.client().Attach(t.Context(), wrong); !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if n, _ := asked(); n != before {
		t.Errorf("endpoints were asked for of what cannot be attached: %d", n-before)
	}

	// Living ones stay; one that ended without a request is released.
	if err := b.client().Check(t.Context(), attach.CheckRequest{Key: r.Key}); err != nil {
		t.Error(err)
	}
	// People get an error for what they cannot detach; runtimes repeat deletions.
	other := newSandbox(t)
	byCNI := request("c1", other)
	if _, err := b.client().Attach(t.Context(), byCNI); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{other.path: model.ErrConflict, "/proc/self/ns/user": model.ErrNotFound} {
		ask := attach.DetachRequest{Key: attach.NetnsKey(path, "eth0"), Netns: path}
		if err := b.client().Detach(t.Context(), ask); err != nil {
			t.Error(err)
		}
		ask.Known = true
		if err := b.client().Detach(t.Context(), ask); !errors.Is(err, want) {
			t.Errorf("detach %s: %v, want %v", path, err, want)
		}
	}
	s.close()
	other.close()
	b.eventually("what ended is released", func() error {
		for _, k := range []attach.Key{r.Key, byCNI.Key} {
			if _, ok := b.agent.Attachments.Entry(k); ok {
				return fmt.Errorf("%s is in the journal", k)
			}
		}
		return nil
	})
	b.nothingLeft()
}

// TestProcessStaysAttachedWithoutItsInterface: a process whose interface was deleted stays attached, as a notice, while
// its namespace is there.
func TestProcessStaysAttachedWithoutItsInterface(t *testing.T) {
	b := newBed(t, often)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	stays, ends := newSandbox(t), newSandbox(t)
	keys := map[*sandbox]attach.Key{stays: {Container: "netns-1", IfName: "eth0"}, ends: {Container: "netns-2", IfName: "eth0"}}
	for s, k := range keys {
		r := request("", s)
		r.Key, r.Source, r.Config = k, attach.SourceProcess, ""
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(stays.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link, err := h.LinkByName("eth0")
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	ends.close()
	b.eventually("netplugin has looked at both, in the order of their keys", func() error {
		if _, ok := b.agent.Attachments.Entry(keys[ends]); ok {
			return errors.New("the one that ended is in the journal")
		}
		return nil
	})
	if e, ok := b.agent.Attachments.Entry(keys[stays]); !ok || e.State != attachment.StateDone {
		t.Errorf("the process without an interface: in the journal %v, %q", ok, e.State)
	}
	if list := b.endpoints(); len(list) != 1 {
		t.Errorf("the endpoints are %v", list)
	}
	b.agent.kick("test")
	b.says(http.StatusOK, "containers")
}
