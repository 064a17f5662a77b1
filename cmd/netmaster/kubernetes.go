package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	intents "github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/statusreport"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
)

// inCluster is what --kubeconfig says in a pod, which has a service account.
const inCluster = "in-cluster"

// kubernetes is netmaster's part with an API server of Kubernetes; nil = there is none.
type kubernetes struct {
	syncer         *controller.PolicySyncer
	services       *controller.Services
	intent         *controller.Objects
	statusReporter *statusreport.Reporter
	ours           *controller.ClusterCheck
	kubeadm        *kubeadm                    // nil = flags say all
	trustBundle    *serviceaccount.TrustBundle // nil = hosts do not join by a service account
}

// objects are kinds as the mirror names them, for events.
var objects = withIntents(map[string]kindVersion{
	mirror.Pods:                   {"Pod", "v1"},
	mirror.Namespaces:             {"Namespace", "v1"},
	mirror.NetworkPolicies:        {"NetworkPolicy", "networking.k8s.io/v1"},
	mirror.ClusterNetworkPolicies: {"ClusterNetworkPolicy", policyv1beta1.GroupVersion.String()},
	mirror.Services:               {"Service", "v1"},
	mirror.EndpointSlices:         {"EndpointSlice", "discovery.k8s.io/v1"},
	mirror.Nodes:                  {"Node", "v1"},
	mirror.ServiceCIDRs:           {"ServiceCIDR", "networking.k8s.io/v1"},
})

type kindVersion struct{ kind, version string }

// withIntents adds the kinds in which intent is written.
func withIntents(all map[string]kindVersion) map[string]kindVersion {
	for _, k := range intents.Kinds() {
		all[k.Plural] = kindVersion{k.Kind, intents.GroupVersion.String()}
	}
	return all
}

// kubeConfig reads the file of --kubeconfig. A file of 1.x also has the addresses of
// services, which o takes unless a flag gives them.
func kubeConfig(o *options) (*rest.Config, error) {
	config, ranges, err := readKubeconfig(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	if len(o.services.ranges) == 0 {
		o.services.ranges = ranges
	}
	config.UserAgent = "contiv-netmaster"
	return config, nil
}

func readKubeconfig(file string) (config *rest.Config, ranges []netip.Prefix, err error) {
	if file == inCluster {
		config, err = rest.InClusterConfig()
		return config, nil, err
	}
	old, err := readContivJSON(file)
	switch {
	case err != nil:
		return nil, nil, err
	case old == nil:
		config, err = clientcmd.BuildConfigFromFlags("", file)
		return config, nil, err
	}
	if ranges, err = old.ranges(); err != nil {
		return nil, nil, err
	}
	config, err = old.config()
	return config, ranges, err
}

// newKubernetes returns nil if o names no API server. It sends no request yet.
func newKubernetes(o options, ctrl *control.Controller, log *slog.Logger) (*kubernetes, error) {
	if o.kubeconfig == "" {
		return nil, nil
	}
	config, err := kubeConfig(&o)
	if err != nil {
		return nil, err
	}
	sources, err := mirror.Sources(config)
	if err != nil {
		return nil, err
	}
	served, err := mirror.ServiceSources(config)
	if err != nil {
		return nil, err
	}
	intent, err := mirror.ObjectSources(config)
	if err != nil {
		return nil, err
	}
	uid, err := mirror.ClusterUID(config)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(config.Host); err == nil {
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			ctrl.Kubernetes.Reserve(map[netip.Addr]string{a.Unmap(): "is the address of the API server"})
		}
	}
	k := &kubernetes{ours: controller.NewClusterCheck(controller.ClusterCheckConfig{Control: ctrl, Ask: uid, Named: o.kubeUID, Log: log})}
	if k.statusReporter, err = statusreport.New(config, o.internal, log); err != nil {
		return nil, err
	}
	k.intent = controller.NewObjects(controller.ObjectsConfig{Control: ctrl, Ours: k.ours, Sources: mirror.Guarded(intent, k.ours.Check), Tell: k.reportStatus})
	k.syncer = controller.New(controller.Config{Control: ctrl, Intent: k.intent, Ours: k.ours, Sources: mirror.Guarded(sources, k.ours.Check), Choices: choices(o), Tell: k.reportStatus})
	services := o.services.config()
	services.Control, services.Ours, services.Sources, services.Tell = ctrl, k.ours, mirror.Guarded(served, k.ours.Check), k.reportStatus
	k.services = controller.NewServices(services)
	if k.kubeadm, err = newKubeadm(config, o, ctrl, k.ours.Check, k.services.AddRanges, log); err != nil {
		return nil, err
	}
	if k.trustBundle, err = o.newTrustBundlePublisher(config, k.ours.Check, log); err != nil {
		return nil, err
	}
	log.Info("watching Kubernetes' pods, namespaces and policies", "server", config.Host, "podsChooseTenant", o.podsTenant, "podGroups", o.podGroups)
	return k, nil
}

// anyGroup is the value of --pod-groups with which pods may choose any group.
const anyGroup = "*"

// checkGroups is --pod-groups' own.
func checkGroups(v string) error {
	list := flags.Split(v)
	for _, g := range list {
		if g == anyGroup {
			if len(list) > 1 {
				return errors.New("* is any group: it stands alone")
			}
		} else if _, err := model.ParseGroupName(g); err != nil {
			return err
		}
	}
	return nil
}

// choices are what pods may choose.
func choices(o options) translate.Choices {
	c := translate.Choices{Tenant: o.podsTenant}
	if slices.Equal(o.podGroups, []string{anyGroup}) {
		return c
	}
	c.Groups = []model.GroupName{} // none, where the list is empty
	for _, g := range o.podGroups {
		c.Groups = append(c.Groups, model.GroupName(g))
	}
	return c
}

// reportStatus hands on what an object's user can mend, not that the store is away.
func (k *kubernetes) reportStatus(r controller.Report) {
	what := objects[r.Kind]
	if r.Live == nil {
		k.statusReporter.Forget(what.kind, r.Name)
		return
	}
	if r.Err != nil && r.WriteBack == nil {
		mendable := false
		for _, kind := range []error{model.ErrInvalid, model.ErrConflict, model.ErrExists, model.ErrInUse, model.ErrExhausted} {
			mendable = mendable || errors.Is(r.Err, kind)
		}
		if !mendable {
			return
		}
	}
	if o, ok := r.Live.(runtime.Object); ok { // the version in which the API server has it
		if v := o.GetObjectKind().GroupVersionKind().GroupVersion(); !v.Empty() {
			what.version = v.String()
		}
	}
	o := statusreport.Outcome{Kind: what.kind, Version: what.version, Object: r.Live, Problems: r.Problems, Err: r.Err, Balanced: r.Balanced}
	if r.WriteBack != nil {
		o.WriteBack = &statusreport.WriteBack{Status: r.WriteBack.Status, Waits: r.WriteBack.Waits}
	}
	k.statusReporter.Report(o)
}

// hostEvent tells an event of a host on the Node of its name.
func (k *kubernetes) hostEvent(e liveness.Event) {
	if k != nil {
		k.statusReporter.Report(statusreport.OfNode(string(e.Host), statusreport.Event{Reason: e.Reason, Note: e.Note, Warning: e.Warning}))
	}
}

// checkCluster fails when the API server, if it answers now, belongs to another cluster than the
// store follows. Later this is only logged, and the rest of netmaster goes on.
func (k *kubernetes) checkCluster(ctx context.Context) error {
	if k == nil {
		return nil
	}
	if err := k.ours.Check(ctx); errors.Is(err, model.ErrConflict) {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	return nil
}

// run follows the API server, in each replica, until ctx ends, whose error it returns.
func (k *kubernetes) run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return k.syncer.Run(ctx) })
	g.Go(func() error { return k.services.Run(ctx) })
	g.Go(func() error { return k.intent.Run(ctx) })
	g.Go(func() error { return k.statusReporter.Run(ctx) })
	g.Go(func() error { return k.kubeadm.run(ctx) })
	g.Go(func() error { return k.trustBundle.Run(ctx) })
	return g.Wait()
}

// lead keeps the store in step while this netmaster leads.
func (k *kubernetes) lead(ctx context.Context, term store.Fence, log *slog.Logger) {
	if k == nil {
		return
	}
	k.statusReporter.Reset()
	var keeping sync.WaitGroup
	for _, lead := range []func(context.Context, store.Fence) error{k.syncer.Lead, k.services.Lead, k.intent.Lead} {
		keeping.Go(func() {
			if err := lead(ctx, term); err != nil {
				log.Debug("another netmaster syncs the store with Kubernetes", "error", err)
			}
		})
	}
	keeping.Wait()
}

// state is how following and keeping fare.
func (k *kubernetes) state() controller.State {
	s := k.syncer.State()
	for _, other := range []controller.State{k.services.State(), k.intent.State()} {
		s.Kinds = append(s.Kinds, other.Kinds...)
		if s.Failed != nil {
			maps.Copy(s.Failed, other.Failed)
		}
	}
	return s
}

// check enters what /readyz says: what the store has stays while the API server is
// away, so this is a notice.
func (k *kubernetes) check(h *api.Health) {
	if k == nil {
		return
	}
	s := k.state()
	var wrong []string
	if err := k.ours.Err(); err != nil {
		wrong, s.Kinds = []string{err.Error()}, nil
	}
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
	condition.MasterKubernetes.Add(h, err)
	k.kubeadm.check(h)
	if k.trustBundle != nil {
		condition.MasterHostsAuthority.Add(h, k.trustBundle.Err())
	}
	if s.Failed == nil {
		return
	}
	err = nil
	var troubled []string
	for kind, what := range objects {
		if n := s.Failed[kind]; n > 0 {
			troubled = append(troubled, fmt.Sprintf("%d of kind %s", n, what.kind))
		}
	}
	if len(troubled) > 0 {
		slices.Sort(troubled)
		err = fmt.Errorf("not applied as written: %s", strings.Join(troubled, ", "))
	}
	condition.MasterKubernetesObjects.Add(h, err)
}

var (
	kubeObjects       = prometheus.NewDesc("contiv_netmaster_kubernetes_objects", "Objects of Kubernetes that this netmaster knows, by kind.", []string{"kind"}, nil)
	kubeFollowed      = prometheus.NewDesc("contiv_netmaster_kubernetes_followed", "1 while the API server's objects of a kind are followed, else 0.", []string{"kind"}, nil)
	kubeTrouble       = prometheus.NewDesc("contiv_netmaster_kubernetes_not_as_written", "Objects of Kubernetes that are not applied as written, by kind; reported by the leader.", []string{"kind"}, nil)
	kubeOrphans       = prometheus.NewDesc("contiv_netmaster_kubernetes_strays", "Endpoints of pods that no longer exist in Kubernetes, until their hosts release them.", nil, nil)
	kubeUnmanaged     = prometheus.NewDesc("contiv_netmaster_kubernetes_foreign", "1 while the API server belongs to another cluster than the store, so that none of its objects are stored, else 0.", nil, nil)
	kubeStatusReports = prometheus.NewDesc("contiv_netmaster_kubernetes_notices_total", "Events and conditions for Kubernetes' objects, by result.", []string{"result"}, nil)
)

// Describe is prometheus.Collector's.
func (k *kubernetes) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{kubeObjects, kubeFollowed, kubeTrouble, kubeOrphans, kubeUnmanaged, kubeStatusReports} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (k *kubernetes) Collect(to chan<- prometheus.Metric) {
	s := k.state()
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
		if s.Failed != nil && objects[kind.Kind].kind != "" {
			gauge(kubeTrouble, s.Failed[kind.Kind], kind.Kind)
		}
	}
	to <- prometheus.MustNewConstMetric(kubeOrphans, prometheus.GaugeValue, float64(s.Orphans))
	foreign := 0.0
	if k.ours.Err() != nil {
		foreign = 1
	}
	to <- prometheus.MustNewConstMetric(kubeUnmanaged, prometheus.GaugeValue, foreign)
	sent, failed := k.statusReporter.Counts()
	to <- prometheus.MustNewConstMetric(kubeStatusReports, prometheus.CounterValue, float64(sent), "written")
	to <- prometheus.MustNewConstMetric(kubeStatusReports, prometheus.CounterValue, float64(failed), "failed")
}
