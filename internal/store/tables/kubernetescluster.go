package tables

import "github.com/contiv/netplugin/v2/internal/model"

// KubernetesClusterKey is the key of the only row of KubernetesClusters.
type KubernetesClusterKey struct{}

// KubernetesClusters holds which Kubernetes the store follows. Hosts do not read it.
var KubernetesClusters = declare(TableSpec[KubernetesClusterKey, model.KubernetesCluster]{
	Noun: "Kubernetes that is followed", Version: 1, Unlisted: true,
	Path:  "state/alloc/kubernetes/cluster",
	Parse: func([]string) (KubernetesClusterKey, bool) { return KubernetesClusterKey{}, true },
	KeyOf: func(model.KubernetesCluster) KubernetesClusterKey { return KubernetesClusterKey{} },
	Show:  func(KubernetesClusterKey) string { return "cluster" },
	Scope: func(KubernetesClusterKey) string { return AllocPrefix + "kubernetes/" },
	Name:  func(KubernetesClusterKey) string { return "cluster" },
})
