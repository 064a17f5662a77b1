package mirror

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// guarded is a Source of which nothing is taken that may be another API server's.
type guarded struct {
	Source
	check func(context.Context) error
}

// Guarded returns sources whose lists and watches fail unless a check, which is asked
// after the API server has answered, finds that it is the right one: so it was when it
// answered, since a watch stays on the connection on which it began.
func Guarded(of map[string]Source, check func(context.Context) error) map[string]Source {
	out := map[string]Source{}
	for kind, s := range of {
		out[kind] = guarded{s, check}
	}
	return out
}

func (g guarded) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	all, err := g.Source.List(ctx, o)
	if err == nil {
		err = g.check(ctx)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (g guarded) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := g.Source.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := g.check(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// ClusterUID returns what asks an API server which cluster it is of: for the UID of the
// namespace kube-system, which API servers make and keep. It is a list, since a role that
// may list namespaces may not need to get one.
func ClusterUID(config *rest.Config) (func(context.Context) (string, error), error) {
	config = rest.CopyConfig(config)
	config.QPS = Unlimited
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespaces := names.Resource(corev1.SchemeGroupVersion.WithResource(Namespaces))
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		// Resource version 0: the API server answers from memory; the UID never changes.
		list, err := namespaces.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem, ResourceVersion: "0"})
		if err != nil {
			return "", err
		}
		for _, ns := range list.Items {
			if ns.Name == metav1.NamespaceSystem && ns.UID != "" {
				return string(ns.UID), nil
			}
		}
		return "", errors.New("the API server has no namespace " + metav1.NamespaceSystem + " yet, which identifies its cluster")
	}, nil
}
