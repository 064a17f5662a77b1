package serviceaccount

import (
	"context"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

const (
	// Audience is whom a token has to be made for: one for the API server, which more
	// programs see, is not taken.
	Audience = "contiv"

	// What the API server says of a token beside its user, from Kubernetes 1.30 on the
	// node too: "Service account token volume projection" of Kubernetes' documentation.
	podName  = "authentication.kubernetes.io/pod-name"
	podUID   = "authentication.kubernetes.io/pod-uid"
	nodeName = "authentication.kubernetes.io/node-name"

	// askTime is how long the API server may take.
	askTime = 10 * time.Second
	// rate is how many questions are asked in a second: strangers may cause them.
	rate = 20
	// maxToken is how long a token may be, in bytes; those of Kubernetes have some 1,200.
	maxToken = 8 << 10
)

// Authenticator asks an API server about tokens. It is safe for concurrent use.
type Authenticator struct {
	reviews, core   rest.Interface
	namespace, name string
}

// ParseName reads NAMESPACE/NAME of a service account. The error is model.ErrInvalid.
func ParseName(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/: ") || strings.ContainsAny(namespace, ": ") {
		return "", "", model.Errorf(model.ErrInvalid, "%q: must be NAMESPACE/NAME of a service account", text)
	}
	return namespace, name, nil
}

// New returns an authenticator for tokens of one service account. It sends no request yet.
func New(config *rest.Config, namespace, name string) (*Authenticator, error) {
	j := &Authenticator{namespace: namespace, name: name}
	var err error
	if j.reviews, err = mirror.NewClient(config, authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme, rate); err != nil {
		return nil, err
	}
	j.core, err = mirror.NewClient(config, corev1.SchemeGroupVersion, corev1.AddToScheme, rate)
	return j, err
}

// Host tells on which node the pod is that a token was given to, and which pod it is. A
// token that is not to be let in is model.ErrInvalid; where the API server does not say,
// the error is model.ErrUnavailable.
func (j *Authenticator) Host(ctx context.Context, token string) (host, pod string, err error) {
	if strings.Count(token, ".") != 2 || len(token) > maxToken {
		return "", "", model.Errorf(model.ErrInvalid, "it is not a service account's token")
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var r authenticationv1.TokenReview
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	if err := j.reviews.Post().Resource("tokenreviews").Body(ask).Do(ctx).Into(&r); err != nil {
		return "", "", errUnknownToken(err, "create tokenreviews of authentication.k8s.io")
	}
	user := "system:serviceaccount:" + j.namespace + ":" + j.name
	switch s := r.Status; {
	case !s.Authenticated:
		return "", "", model.Errorf(model.ErrInvalid, "Kubernetes does not accept the service account's token (its audience must be %s): %s", Audience, s.Error)
	case !slices.Contains(s.Audiences, Audience): // an API server that knows no audiences takes any token
		return "", "", model.Errorf(model.ErrInvalid, "Kubernetes does not confirm the token's audience %s", Audience)
	case s.User.Username != user:
		return "", "", model.Errorf(model.ErrInvalid, "the token belongs to %q, and hosts get certificates with the token of %q", s.User.Username, user)
	}
	one := func(key string) string {
		if v := r.Status.User.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	name, uid := one(podName), one(podUID)
	if name == "" || uid == "" {
		return "", "", model.Errorf(model.ErrInvalid, "the service account's token is not bound to a pod: use a projected volume, so that the kubelet makes it")
	}
	if host = one(nodeName); host == "" {
		if host, err = j.node(ctx, name, uid); err != nil {
			return "", "", err
		}
	}
	return host, j.namespace + "/" + name, nil
}

// node asks where a pod is, of an API server that does not say it of tokens. It is a
// list, as of the mirror, so that no further right is needed.
func (j *Authenticator) node(ctx context.Context, name, uid string) (string, error) {
	var pods corev1.PodList
	which := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	err := j.core.Get().Namespace(j.namespace).Resource("pods").Param("fieldSelector", which).Do(ctx).Into(&pods)
	if err != nil {
		return "", errUnknownToken(err, "list pods")
	}
	for _, p := range pods.Items {
		if p.Name == name && string(p.UID) == uid && p.Spec.NodeName != "" {
			return p.Spec.NodeName, nil
		}
	}
	return "", model.Errorf(model.ErrInvalid, "the pod %s/%s that the token is bound to is on no node", j.namespace, name)
}

// errUnknownToken says why nothing is known of a token.
func errUnknownToken(err error, right string) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return model.Errorf(model.ErrUnavailable, "Kubernetes does not let netmaster review tokens: allow its service account %s: %w", right, err)
	}
	return model.Errorf(model.ErrUnavailable, "Kubernetes' API server cannot review the token: %w", err)
}
