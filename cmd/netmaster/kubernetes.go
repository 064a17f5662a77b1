package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/kube"
	"github.com/contiv/netplugin/v2/internal/kube/keeper"
	"github.com/contiv/netplugin/v2/internal/kube/mirror"
	"github.com/contiv/netplugin/v2/internal/kube/notice"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// inCluster is what --kubeconfig says in a pod, which has a service account.
const inCluster = "in-cluster"

// kubernetes is netmaster's part with an API server of Kubernetes; nil = there is none.
type kubernetes struct {
	keeper  *keeper.Keeper
	notices *notice.Notices
}

// objects are kinds as the mirror names them, for events.
var objects = map[string]struct{ kind, version string }{
	mirror.Pods:                   {"Pod", "v1"},
	mirror.Namespaces:             {"Namespace", "v1"},
	mirror.NetworkPolicies:        {"NetworkPolicy", "networking.k8s.io/v1"},
	mirror.ClusterNetworkPolicies: {"ClusterNetworkPolicy", "policy.networking.k8s.io/v1alpha2"},
}

// kubeConfig is where --kubeconfig leads.
func kubeConfig(flag string) (config *rest.Config, err error) {
	if flag == inCluster {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", flag)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", flag, err)
	}
	config.UserAgent = "contiv-netmaster"
	return config, nil
}

// newKubernetes returns nil where o names no API server. Nobody is asked yet.
func newKubernetes(o options, ctrl *control.Controller, log *slog.Logger) (*kubernetes, error) {
	if o.kubeconfig == "" {
		return nil, nil
	}
	config, err := kubeConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	sources, err := mirror.Sources(config)
	if err != nil {
		return nil, err
	}
	k := &kubernetes{}
	if k.notices, err = notice.New(config, o.internal, log); err != nil {
		return nil, err
	}
	k.keeper = keeper.New(keeper.Config{Control: ctrl, Sources: sources, Choices: kube.Choices{Tenant: o.podsTenant}, Tell: k.tell})
	log.Info("following Kubernetes' pods, namespaces and policies", "server", config.Host, "podsChooseTenant", o.podsTenant)
	return k, nil
}

// tell hands on what an object's user can mend, not that the store is away.
func (k *kubernetes) tell(r keeper.Report) {
	what := objects[r.Kind]
	if r.Now == nil {
		k.notices.Forget(what.kind, r.Name)
		return
	}
	if r.Err != nil {
		mendable := false
		for _, kind := range []error{model.ErrInvalid, model.ErrConflict, model.ErrExists, model.ErrInUse, model.ErrExhausted} {
			mendable = mendable || errors.Is(r.Err, kind)
		}
		if !mendable {
			return
		}
	}
	k.notices.Tell(notice.Outcome{Kind: what.kind, Version: what.version, Object: r.Now, Problems: r.Problems, Err: r.Err})
}

// run follows the API server, in each replica, until ctx ends, whose error it returns.
func (k *kubernetes) run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return k.keeper.Run(ctx) })
	g.Go(func() error { return k.notices.Run(ctx) })
	return g.Wait()
}

// lead keeps the store in step while this netmaster leads.
func (k *kubernetes) lead(ctx context.Context, term store.Fence, log *slog.Logger) {
	if k == nil {
		return
	}
	k.notices.Anew()
	if err := k.keeper.Lead(ctx, term); err != nil {
		log.Debug("the store is kept in step with Kubernetes by another netmaster", "error", err)
	}
}

// check enters what /readyz says: what the store has stays while the API server is
// away, so this is a notice.
func (k *kubernetes) check(h *api.Health) {
	if k == nil {
		return
	}
	s := k.keeper.State()
	var wrong []string
	for _, kind := range s.Kinds {
		switch {
		case kind.Failed != nil && kind.Listed:
			wrong = append(wrong, fmt.Sprintf("%s are as they were at %s: %v", kind.Kind, kind.Since.UTC().Format(time.RFC3339), kind.Failed))
		case kind.Failed != nil:
			wrong = append(wrong, fmt.Sprintf("%s are not known: %v", kind.Kind, kind.Failed))
		case !kind.Listed:
			wrong = append(wrong, kind.Kind+" are not known yet")
		}
	}
	var err error
	if len(wrong) > 0 {
		err = errors.New(strings.Join(wrong, "; "))
	}
	h.Add("kubernetes", true, err)
	if s.Trouble == nil {
		return
	}
	all := 0
	for _, n := range s.Trouble {
		all += n
	}
	err = nil
	if all > 0 {
		err = fmt.Errorf("%d objects are not kept as they are written (%d NetworkPolicies, %d ClusterNetworkPolicies, %d namespaces, %d pods); their events say why",
			all, s.Trouble[mirror.NetworkPolicies], s.Trouble[mirror.ClusterNetworkPolicies], s.Trouble[mirror.Namespaces], s.Trouble[mirror.Pods])
	}
	h.Add("kubernetes-policies", true, err)
}

var (
	kubeObjects  = prometheus.NewDesc("contiv_netmaster_kubernetes_objects", "Objects of Kubernetes that this netmaster knows, by kind.", []string{"kind"}, nil)
	kubeFollowed = prometheus.NewDesc("contiv_netmaster_kubernetes_followed", "1 while the API server's objects of a kind are followed, else 0.", []string{"kind"}, nil)
	kubeTrouble  = prometheus.NewDesc("contiv_netmaster_kubernetes_not_as_written", "Objects of Kubernetes that are not kept as they are written, by kind; the leader tells.", []string{"kind"}, nil)
	kubeStrays   = prometheus.NewDesc("contiv_netmaster_kubernetes_strays", "Endpoints of pods that the API server has not: their hosts have yet to release them.", nil, nil)
	kubeNotices  = prometheus.NewDesc("contiv_netmaster_kubernetes_notices_total", "Events and conditions for Kubernetes' objects, by result.", []string{"result"}, nil)
)

// Describe is prometheus.Collector's.
func (k *kubernetes) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{kubeObjects, kubeFollowed, kubeTrouble, kubeStrays, kubeNotices} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (k *kubernetes) Collect(to chan<- prometheus.Metric) {
	s := k.keeper.State()
	gauge := func(d *prometheus.Desc, v int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
	}
	for _, kind := range s.Kinds {
		followed := 0
		if kind.Listed && kind.Failed == nil {
			followed = 1
		}
		gauge(kubeObjects, kind.Objects, kind.Kind)
		gauge(kubeFollowed, followed, kind.Kind)
		if s.Trouble != nil && objects[kind.Kind].kind != "" {
			gauge(kubeTrouble, s.Trouble[kind.Kind], kind.Kind)
		}
	}
	to <- prometheus.MustNewConstMetric(kubeStrays, prometheus.GaugeValue, float64(s.Strays))
	sent, failed := k.notices.Counts()
	to <- prometheus.MustNewConstMetric(kubeNotices, prometheus.CounterValue, float64(sent), "written")
	to <- prometheus.MustNewConstMetric(kubeNotices, prometheus.CounterValue, float64(failed), "failed")
}
