package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestFactsHaveTheSameEffectFromEverySource: the same fact has the same effect from every source: Docker's watcher of a
// running container, a request to the socket for a running one, and for one that is
// attached only later.
func TestFactsHaveTheSameEffectFromEverySource(t *testing.T) {
	b := newBed(t)
	b.ready()
	labels := map[string]string{"app": "shop", "zone": "a"}
	docker := request("e1", newSandbox(t))
	docker.Source, docker.Netns, docker.Parked = attach.SourceDocker, "", true
	running, early := request("e2", newSandbox(t)), request("e3", newSandbox(t))
	fact := func(r attach.Request) attach.Fact {
		return attach.Fact{Key: r.Key, Rev: 1, ID: "c1", Name: "web", Labels: labels}
	}
	if err := b.client().Report(t.Context(), fact(early)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []attach.Request{docker, running, early} {
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.client().Report(t.Context(), fact(running)); err != nil {
		t.Fatal(err)
	}
	b.follow(`[{"Id":"c1","Names":["/web"],"Labels":{"app":"shop","zone":"a"},"NetworkSettings":{"Networks":{"n":{"EndpointID":"e1"}}}}]`)
	type known struct {
		Container, Name string
		Labels          map[string]string
	}
	want := known{"c1", "web", labels}
	is := func(r attach.Request, heard func(id string) (known, bool)) {
		t.Helper()
		e, _ := b.agent.Attachments.Entry(r.Key)
		b.eventually("the cluster knows "+r.Container, func() error {
			got, ok := heard(string(e.Endpoint.ID))
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				return errors.New("-want +got:\n" + diff)
			}
			return nil
		})
	}
	updated := func(id string) (known, bool) {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		u, ok := b.master.reports[id]
		return known{u.ContainerID, u.EPCommonName, u.Labels}, ok && u.Event == api.EventStart
	}
	is(docker, updated)
	is(running, updated)
	is(early, func(id string) (known, bool) { // with its creation, and never by an update
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		c := b.master.created[id]
		_, also := b.master.reports[id]
		return known{c.ConfigEP.Container, c.EPCommonName, c.ConfigEP.Labels}, !also
	})
	// Earlier reports about a container count when it is attached again.
	e, _ := b.agent.Attachments.Entry(running.Key)
	link, err := netlink.LinkByName(e.HostIf)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err == nil {
		_, err = b.client().Attach(t.Context(), running)
	}
	if err != nil {
		t.Fatal(err)
	}
	is(running, func(id string) (known, bool) {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		c := b.master.created[id]
		return known{c.ConfigEP.Container, c.EPCommonName, c.ConfigEP.Labels}, true
	})
	for _, r := range []attach.Request{docker, running, early} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
			t.Fatal(err)
		}
	}
	b.nothingLeft()
}

// follow runs Docker's adapter on the agent, for an engine that has the containers
// of the list.
func (b *bed) follow(list string) {
	b.t.Helper()
	sock := filepath.Join(b.dir, "docker.sock")
	l, err := (&net.ListenConfig{}).Listen(b.t.Context(), "unix", sock)
	if err != nil {
		b.t.Fatal(err)
	}
	engine := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = io.WriteString(w, list)
		case strings.HasSuffix(r.URL.Path, "/networks"):
			_, _ = io.WriteString(w, "[]")
		default:
			http.NotFound(w, r)
		}
	})}
	served := make(chan struct{})
	go func() { _ = engine.Serve(l); close(served) }()
	p, err := docker.New(b.t.Context(), docker.Config{
		Name: "n-test", SocketDir: b.dir, StateDir: b.cfg.StateDir, Endpoint: "unix://" + sock, Log: b.cfg.Log,
		Backend: docker.Backend{Attachments: b.agent.Attachments, Objects: b.agent.Objects(), Conditions: b.agent.Observer},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		_ = engine.Close()
		<-served
	})
}

// TestUnselectableLabelsAreLogged: labels that no policy can select by are named in the log of the
// host that attaches with them.
func TestUnselectableLabelsAreLogged(t *testing.T) {
	var log testenv.Log
	b := newBed(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b.ready()
	r := request("e1", newSandbox(t))
	r.Labels = map[string]string{"app": "web", "note": "two words"}
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if line := log.Line("no policy can select by them"); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "labels=[note]") || !strings.Contains(line, "e1") {
		t.Errorf("the log says %q", line)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
}

// TestPendingLabelsMatterToLabelPolicies: labels count as not known yet only where they come later and a
// policy of the tenant asks for labels, and not when they were told already.
func TestPendingLabelsMatterToLabelPolicies(t *testing.T) {
	b := newBed(t)
	b.ready()
	attached := func(container string, told bool) bool {
		t.Helper()
		r := request(container, newSandbox(t))
		r.LabelsLater = true
		if told {
			if err := b.client().Report(t.Context(), attach.Fact{Key: r.Key, Rev: 1, ID: container}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		e, _ := b.agent.Attachments.Entry(r.Key)
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
			t.Fatal(err)
		}
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		return b.master.created[string(e.Endpoint.ID)].ConfigEP.LabelsLater
	}
	if attached("c1", false) {
		t.Error("labels are waited for that no policy asks for")
	}
	tenant := model.TenantName(request("c", newSandbox(t)).Tenant)
	rev := b.put(func(tx store.Tx) error {
		k := model.PolicyKey{Tenant: tenant, Name: "p"}
		return tables.Policies.Put(tx, model.Policy{
			Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: 100, Default: model.Defaults{Out: model.Deny},
			Applies: model.Selector{Tenant: k.Tenant, MatchLabels: map[string]string{"app": "bad"}},
		})
	})
	if err := b.agent.mirror.cluster.Lookup.AwaitRevision(t.Context(), statemirror.TenantScope(tenant), rev); err != nil {
		t.Fatal(err)
	}
	if !attached("c2", false) {
		t.Error("a policy by labels does not wait for them")
	}
	if attached("c3", true) {
		t.Error("labels are waited for that were told")
	}
}
