package serviceaccount

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

const (
	// BundleName is the name of the ConfigMap with the authority that new nodes trust.
	BundleName = "contiv-authority"
	// BundleKey is where the authority is in it, in PEM.
	BundleKey = "ca.crt"

	// checkInterval is between two looks at both, and retryInterval while something is wrong.
	checkInterval = time.Minute
	retryInterval = 10 * time.Second
	// attempts is how often a ConfigMap is read again that somebody else changes.
	attempts = 5
	// perSecond limits requests.
	perSecond = 5
)

// TrustBundleConfig is a file that is to be in a ConfigMap.
type TrustBundleConfig struct {
	API       *rest.Config
	Namespace string                      // of the ConfigMap
	File      string                      // of authorities, in PEM
	Ours      func(context.Context) error // whether the API server belongs to this cluster
	Log       *slog.Logger
}

// TrustBundle keeps a file in a ConfigMap. It is safe for concurrent use; a nil one does
// nothing. It makes no ConfigMap, and replaces no other cluster's authority.
type TrustBundle struct {
	cfg    TrustBundleConfig
	client rest.Interface

	mu      sync.Mutex
	trouble error
}

// NewTrustBundle returns a TrustBundle. It sends no request yet.
func NewTrustBundle(cfg TrustBundleConfig) (*TrustBundle, error) {
	client, err := mirror.NewClient(cfg.API, corev1.SchemeGroupVersion, corev1.AddToScheme, perSecond)
	return &TrustBundle{cfg: cfg, client: client}, err
}

// Run keeps it until ctx ends, whose error it returns.
func (k *TrustBundle) Run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	for told := ""; ; {
		err, next := k.once(ctx), checkInterval
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.mu.Lock()
		k.trouble = err
		k.mu.Unlock()
		text := ""
		if err != nil {
			text, next = err.Error(), retryInterval
			if text != told {
				k.cfg.Log.Warn("netplugins of new nodes cannot get this cluster's authority", "error", err)
			}
		}
		told = text
		if err := waiting.Pause(ctx, next); err != nil {
			return err
		}
	}
}

// Err is what keeps the ConfigMap from being as it should be; nil = nothing.
func (k *TrustBundle) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// once brings the ConfigMap in step. Errors are for people; ErrNotFound and ErrConflict
// of model's kinds stay until somebody does what they say.
func (k *TrustBundle) once(ctx context.Context) error {
	text, err := os.ReadFile(k.cfg.File)
	if err != nil {
		return fmt.Errorf("read this cluster's authority: %w", err)
	}
	if err := k.cfg.Ours(ctx); err != nil {
		return err
	}
	at := "ConfigMap " + k.cfg.Namespace + "/" + BundleName
	for range attempts {
		var m corev1.ConfigMap
		err := k.client.Get().Namespace(k.cfg.Namespace).Resource("configmaps").Name(BundleName).Do(ctx).Into(&m)
		switch {
		case apierrors.IsNotFound(err):
			return model.Errorf(model.ErrNotFound, "%s does not exist, where this cluster's authority is published: apply the manifest or upgrade the chart's release again, or 'kubectl -n %s create configmap %s'", at, k.cfg.Namespace, BundleName)
		case err != nil:
			return fmt.Errorf("read %s: %w", at, err)
		case m.Data[BundleKey] == string(text):
			return nil
		case isOtherCluster(m.Data[BundleKey], text):
			return model.Errorf(model.ErrConflict, "%s has the authority of another Contiv cluster, whose netplugins use it; if that cluster is gone and this one replaces it: kubectl -n %s patch configmap %s -p '{\"data\":null}'", at, k.cfg.Namespace, BundleName)
		}
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[BundleKey] = string(text)
		err = k.client.Put().Namespace(k.cfg.Namespace).Resource("configmaps").Name(BundleName).Body(&m).Do(ctx).Error()
		if err == nil {
			k.cfg.Log.Info("this cluster's authority is published for Kubernetes' nodes", "configmap", k.cfg.Namespace+"/"+BundleName)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("write %s: %w", at, err)
		}
	}
	return model.Errorf(model.ErrUnavailable, "%s keeps being changed by others", at)
}

// isOtherCluster reports whether the former text has authorities, and none of the next one's.
func isOtherCluster(former string, next []byte) bool {
	had, is := certificates([]byte(former)), certificates(next)
	return len(had) > 0 && !slices.ContainsFunc(had, func(c []byte) bool {
		return slices.ContainsFunc(is, func(d []byte) bool { return bytes.Equal(c, d) })
	})
}

func certificates(text []byte) (all [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, block.Bytes)
		}
	}
	return all
}
