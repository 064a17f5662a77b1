//go:build integration

package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// How labels of an endpoint that is there change: a process is attached again, a pod is
// changed at the API server. All other runtimes cannot change a container's labels: CNI and
// Mesos have no call for it, and Docker, Compose, swarm and Podman let no label of a container
// change. There the labels change as any program may change them: by netplugin's socket where
// the attachment is CNI's, by netmaster's REST interface where it is Docker's.

func (p *processes) relabel(ctx context.Context, w *workload, labels map[string]string) error {
	w.labels = labels
	return p.attachAs(ctx, w)
}

func (p *pods) relabel(ctx context.Context, w *workload, labels map[string]string) error {
	patch, err := patchOf(w.labels, labels)
	if err == nil {
		_, err = p.kube.client.CoreV1().Pods(namespace).Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	w.labels = labels
	return err
}

// patchOf is a pod's change from labels to others.
func patchOf(from, to map[string]string) ([]byte, error) {
	change := map[string]any{}
	for k := range from {
		change[k] = nil
	}
	for k, v := range to {
		change[k] = v
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
}

// relabel is for attachments of CNI.
func (b *bed) relabel(ctx context.Context, w *workload, labels map[string]string) error {
	w.labels = labels
	return attach.Client{Socket: w.host.CNISocket()}.Report(ctx, attach.Fact{Key: attach.Key{Container: w.id, IfName: "eth0"}, Labels: labels})
}

func (e *engines) relabel(ctx context.Context, w *workload, labels map[string]string) error {
	c, err := e.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.Endpoints(ctx, api.EndpointFilter{Tenant: e.tenant, Network: network})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(o api.EndpointOper) bool { return slices.Contains(o.IPAddress, w.addrs[0].String()) })
	if at < 0 {
		return fmt.Errorf("no endpoint has %s", w.addrs[0])
	}
	var removed []string
	for k := range w.labels {
		if _, still := labels[k]; !still {
			removed = append(removed, k)
		}
	}
	w.labels = labels
	_, err = c.UpdateEndpoint(ctx, api.UpdateEndpointRequest{Event: api.EventStart, Tenant: e.tenant, Network: network, EndpointID: all[at].EndpointID, Labels: labels, RemovedLabels: removed})
	return err
}

// ward is the label of endpoints that a policy closes while labels change, before others are
// asked, in rows whose policies do not go by labels.
const ward = "ward"

// labelChange changes an endpoint's labels, and with them what is allowed, and changes them
// back, while others talk.
func (b *bed) labelChange(ctx context.Context) error {
	w, labels, want := b.work["o1"], map[string]string{"role": clients}, testcluster.OK
	if b.row[dimPolicy] == NoPolicy || b.row[dimPolicy] == ByGroup {
		w, labels, want = b.work["s2"], map[string]string{"role": servers, ward: "closed"}, testcluster.Denied
		if err := b.netctl(ctx, "network-policy", "create", "-t", b.tenant, "--label", ward+"=closed", "--order", "50", "--rule", "in deny", ward); err != nil {
			return err
		}
	}
	var changed []probe
	for _, p := range b.between() {
		switch {
		case want == testcluster.OK && p.from == w.ns:
			p.want = testcluster.OK
		case want == testcluster.Denied && slices.Contains(w.addrs, p.to.Addr):
			p.want, p.by = testcluster.Denied, ""
		}
		changed = append(changed, p)
	}
	before := maps.Clone(w.labels)
	if err := b.traffic(ctx, func(ctx context.Context) error {
		if err := b.run.relabel(ctx, w, labels); err != nil {
			return err
		}
		if err := b.ask(ctx, changed); err != nil {
			return err
		}
		if err := b.run.relabel(ctx, w, before); err != nil {
			return err
		}
		return b.ask(ctx, b.between())
	}); err != nil || want == testcluster.OK {
		return err
	}
	return b.netctl(ctx, "network-policy", "rm", "-t", b.tenant, ward)
}
