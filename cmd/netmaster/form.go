package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

// podMembers are the flags of netmasters that are pods and form their cluster by themselves.
type podMembers struct {
	account   string // NAMESPACE/NAME; empty = they do not
	tokenFile string
}

func (p *podMembers) register(fs *flags.Set) {
	fs.String(&p.account, "member-service-account", "namespace/name", "with --join and --join-token-file: netmasters in pods of this service account form a cluster by themselves; needs --enroll-service-account of the same namespace, and the node's name in --member-name").Must(func(v string) error {
		if v == "" {
			return nil
		}
		_, _, err := serviceaccount.ParseName(v)
		return err
	})
	fs.String(&p.tokenFile, "join-token-file", "file", "with --member-service-account: file with the token of this pod's service account for the audience "+serviceaccount.Audience).Must(notEmpty)
}

// finish checks what has to be given together.
func (p *podMembers) finish(fs *flags.Set, o *options) error {
	how := fs.Given("member-service-account")
	namespace, _, _ := strings.Cut(p.account, "/")
	switch {
	case p.account == "" && p.tokenFile != "":
		return flags.Usagef("%s is for netmasters that form a cluster in Kubernetes: give --member-service-account too", fs.Given("join-token-file"))
	case p.account == "":
		return nil
	case len(o.joining.join) == 0 || p.tokenFile == "":
		return flags.Usagef("%s needs the addresses where netmasters listen for new members, and the token that is shown there: give --join and --join-token-file", how)
	case !strings.HasPrefix(o.enroll, namespace+"/"):
		return flags.Usagef("%s needs --enroll-service-account of the same namespace, in which the cluster is recorded", how)
	case o.enroll == p.account:
		return flags.Usagef("%s: hosts get certificates with the tokens of %s, and netmasters need a service account of their own", how, o.enroll)
	case o.joining.token != "":
		return flags.Usagef("%s joins by the token of the pod's service account, and %s gives another; omit one", how, fs.Given("token"))
	case o.joining.peerListen == noMembers:
		return flags.Usagef("%s is for netmasters that join, but %s is none; omit one", how, fs.Given("peer-listen"))
	case o.acceptPlain:
		return flags.Usagef("%s is for a cluster that is secure, and %s is for one that is turned so; omit one", how, fs.Given("accept-plain"))
	}
	return nil
}

// forming is how this netmaster forms a cluster with others; nil = it does not.
func (o *options) forming(log *slog.Logger) (membership.Forming, error) {
	p := o.joining.pods
	if p.account == "" {
		return nil, nil
	}
	config, namespace, review, err := o.accountReviewer(p.account)
	if err != nil {
		return nil, err
	}
	node := o.joining.memberName
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	only := ""
	if j := o.joining; !slices.Contains(j.join, j.enrollmentListen) {
		only = "--join lacks its address " + j.enrollmentListen + ", so the others could not join it"
	}
	founder, err := serviceaccount.NewFounder(serviceaccount.FounderConfig{API: config, Namespace: namespace, Identity: node, OnlyJoins: only, Log: log})
	if err != nil {
		return nil, err
	}
	return podForming{founder, node, p.tokenFile, review}, nil
}

// podForming implements membership.Forming by the record in Kubernetes, and by the pod's token.
type podForming struct {
	*serviceaccount.Founder
	node, tokenFile string
	review          func(ctx context.Context, token string) (node, by string, err error)
}

// Node implements membership.Forming.
func (f podForming) Node() string { return f.node }

// Token implements membership.Forming.
func (f podForming) Token() (string, error) {
	text, err := os.ReadFile(f.tokenFile)
	return strings.TrimSpace(string(text)), err
}

// Review implements membership.Forming.
func (f podForming) Review(ctx context.Context, token string) (node, by string, err error) {
	return f.review(ctx, token)
}

// addresses are where other netmasters listen for new members.
func (j *clusterOptions) addresses() []string {
	if j.pods.account == "" {
		return j.join
	}
	return slices.DeleteFunc(slices.Clone(j.join), func(a string) bool { return a == j.enrollmentListen })
}
