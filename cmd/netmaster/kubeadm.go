package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// kubeadmPerSecond limits requests for kubeadm's configuration.
const kubeadmPerSecond = 5

// kubeadm takes from kubeadm's configuration what no flag says: the pod CIDR, while the
// network for pods is not there, and the range of services' addresses.
type kubeadm struct {
	client    rest.Interface
	ctrl      *control.Controller
	ours      func(context.Context) error // whether the API server is
	addRanges func([]netip.Prefix)        // nil = --service-cidr says them
	pods      bool                        // --pod-cidr says nothing
	log       *slog.Logger

	mu      sync.Mutex
	missing error // the network for pods is not there, and why
}

// newKubeadm returns nil where flags say all.
func newKubeadm(config *rest.Config, o options, ctrl *control.Controller, ours func(context.Context) error, addRanges func([]netip.Prefix), log *slog.Logger) (*kubeadm, error) {
	k := &kubeadm{ctrl: ctrl, ours: ours, pods: len(o.podSubnets) == 0 && !o.noPods, log: log}
	if len(o.services.ranges) == 0 {
		k.addRanges = addRanges
	}
	if !k.pods && k.addRanges == nil {
		return nil, nil
	}
	var err error
	k.client, err = mirror.NewClient(config, corev1.SchemeGroupVersion, corev1.AddToScheme, kubeadmPerSecond)
	return k, err
}

// run asks until the API server has answered and what follows from it is done, or ctx
// ends, whose error it returns.
func (k *kubeadm) run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	for told := ""; ; {
		err := k.once(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != told {
			told = err.Error()
			k.log.Warn("the pod network or the service addresses of kubeadm's configuration cannot be set up; trying again", "error", err)
		}
		if err := waiting.Pause(ctx, podNetworkRetry); err != nil {
			return err
		}
	}
}

func (k *kubeadm) once(ctx context.Context) error {
	var m corev1.ConfigMap
	err := k.client.Get().Namespace(translate.KubeadmNamespace).Resource("configmaps").Name(translate.KubeadmConfig).Do(ctx).Into(&m)
	const at = "ConfigMap " + translate.KubeadmNamespace + "/" + translate.KubeadmConfig
	var n translate.Networking
	lacks, known := at+" names no pod CIDR", true
	switch {
	case err == nil:
		if n, err = translate.Kubeadm(m.Data); err != nil {
			return err
		}
	case apierrors.IsNotFound(err):
		lacks = at + " is not there"
	case apierrors.IsForbidden(err):
		lacks, known = at+" may not be read, with the rights of an earlier manifest", false
	default:
		return fmt.Errorf("%s: %w", at, err)
	}
	if err := k.ours(ctx); err != nil {
		return err
	}
	if k.addRanges != nil && known {
		k.addRanges(n.Services)
	}
	if !k.pods {
		return nil
	}
	return k.podNetwork(ctx, n.Pods, lacks)
}

// podNetwork makes the network for pods, if it is not there; lacks says why no subnet
// of pods is known.
func (k *kubeadm) podNetwork(ctx context.Context, pods []netip.Prefix, lacks string) error {
	v, err := k.ctrl.View(ctx)
	if err != nil {
		return err
	}
	if _, there := v.Networks.Get(control.PodNetwork); there {
		k.setMissing(nil)
		return nil
	}
	if len(pods) == 0 {
		why, err := k.unknown(ctx, lacks)
		if err != nil {
			return err
		}
		k.setMissing(why)
		return why
	}
	if err := k.ctrl.Networks.MakePodNetwork(ctx, control.Admin(), pods); err != nil {
		k.setMissing(err)
		return err
	}
	k.setMissing(nil)
	k.log.Info("created the network for pods from the pod CIDR in kubeadm's configuration", "network", control.PodNetwork, "subnets", pods)
	return nil
}

// unknown says that the pod CIDR is not known; the slices of it that nodes have are a hint
// only.
func (k *kubeadm) unknown(ctx context.Context, lacks string) (why, err error) {
	var nodes corev1.NodeList
	if err := k.client.Get().Resource("nodes").Param("limit", "1").Do(ctx).Into(&nodes); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	hint := ""
	if len(nodes.Items) > 0 && nodes.Items[0].Spec.PodCIDR != "" {
		hint = fmt.Sprintf(" (node %s has %s of the pod CIDR)", nodes.Items[0].Name, nodes.Items[0].Spec.PodCIDR)
	}
	return fmt.Errorf("pods without a network label have no network: network %s does not exist, and %s%s: give --pod-cidr, or create the network with netctl",
		control.PodNetwork, lacks, hint), nil
}

func (k *kubeadm) setMissing(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.missing = err
}

// check enters what /readyz says.
func (k *kubeadm) check(h *api.Health) {
	if k == nil || !k.pods {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	condition.MasterPodNetwork.Add(h, k.missing)
}
