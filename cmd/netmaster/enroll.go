package main

import (
	"context"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

func (o *options) registerEnroll(fs *flags.Set) {
	fs.String(&o.enroll, "enroll-service-account", "namespace/name", "with --secure and --kubeconfig: pods of this service account get the certificate of their node's host (netplugin's --join-token-file); empty = hosts join with 'netctl cluster token --host' only").Must(func(v string) error {
		if v == "" {
			return nil
		}
		_, _, err := serviceaccount.ParseName(v)
		return err
	})
}

func (o *options) finishEnroll(fs *flags.Set) error {
	switch how := fs.Given("enroll-service-account"); {
	case o.enroll == "":
	case !o.secure:
		return flags.Usagef("%s is for hosts that get certificates: give --secure too", how)
	case o.kubeconfig == "":
		return flags.Usagef("%s asks Kubernetes whose token it is; name that with --kubeconfig", how)
	}
	return nil
}

// tokenReviewer is who tells of service accounts' tokens; nil = they are not taken.
func (o *options) tokenReviewer() (func(ctx context.Context, token string) (host, by string, err error), error) {
	if o.enroll == "" {
		return nil, nil
	}
	_, _, review, err := o.accountReviewer(o.enroll)
	return review, err
}

// accountReviewer tells of tokens of a service account, NAMESPACE/NAME: on which node and by
// which pod they are used.
func (o *options) accountReviewer(account string) (config *rest.Config, namespace string, review func(ctx context.Context, token string) (node, by string, err error), err error) {
	namespace, name, err := serviceaccount.ParseName(account)
	if err != nil {
		return nil, "", nil, err
	}
	own := *o // the file of 1.x sets ranges
	if config, err = kubeConfig(&own); err != nil {
		return nil, "", nil, err
	}
	reviewer, err := serviceaccount.New(config, namespace, name)
	if err != nil {
		return nil, "", nil, err
	}
	return config, namespace, func(ctx context.Context, token string) (node, by string, err error) {
		node, pod, err := reviewer.Host(ctx, token)
		return node, "pod " + pod, err
	}, nil
}

// newTrustBundlePublisher keeps what netplugins trust in the service account's namespace; nil = none
// joins by it.
func (o *options) newTrustBundlePublisher(config *rest.Config, ours func(context.Context) error, log *slog.Logger) (*serviceaccount.TrustBundle, error) {
	if o.enroll == "" {
		return nil, nil
	}
	namespace, _, err := serviceaccount.ParseName(o.enroll)
	if err != nil {
		return nil, err
	}
	return serviceaccount.NewTrustBundle(serviceaccount.TrustBundleConfig{API: config, Namespace: namespace, File: membership.MembersBundle(o.dataDir), Ours: ours, Log: log})
}
