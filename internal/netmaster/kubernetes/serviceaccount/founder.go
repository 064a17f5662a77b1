package serviceaccount

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

const (
	// FounderLease is the name of the Lease that elects the netmaster that founds the cluster.
	FounderLease = "contiv-netmaster-founder"
	// leaseDuration is how long a Lease that does not change keeps others away.
	leaseDuration = 15 * time.Second
	// founderInterval is between two looks at record and Lease.
	founderInterval = 2 * time.Second
	// founderLogInterval is between two log lines with the same text.
	founderLogInterval = time.Minute
)

// FounderConfig says where the record and the Lease are, and who asks.
type FounderConfig struct {
	API       *rest.Config
	Namespace string
	Identity  string // of this netmaster: its node's name
	OnlyJoins string // why this netmaster founds no cluster; empty = it may found one
	Log       *slog.Logger
}

// Founder decides which one of several netmasters founds their cluster. The ConfigMap
// BundleName is the record: while it has an authority, that cluster exists, and no netmaster
// founds another. The Lease only keeps all netmasters but one from trying; it may be lost at
// any time. Founder makes neither of the two objects.
type Founder struct {
	cfg          FounderConfig
	core, leases rest.Interface
	now          func() time.Time
	seen         string    // the Lease's resource version
	since        time.Time // when it was seen first

	logged   string
	loggedAt time.Time
}

// NewFounder returns a Founder. It sends no request yet.
func NewFounder(cfg FounderConfig) (*Founder, error) {
	f := &Founder{cfg: cfg, now: time.Now}
	var err error
	if f.core, err = mirror.NewClient(cfg.API, corev1.SchemeGroupVersion, corev1.AddToScheme, perSecond); err != nil {
		return nil, err
	}
	f.leases, err = mirror.NewClient(cfg.API, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme, perSecond)
	return f, err
}

// Await returns the recorded authority in PEM, or nil once this netmaster holds the Lease and
// no authority is recorded. It waits until then, and fails only with ctx.
func (f *Founder) Await(ctx context.Context) (authority []byte, err error) {
	for {
		done, err := f.attempt(ctx, &authority)
		if done {
			return authority, nil
		}
		if err := f.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (f *Founder) attempt(ctx context.Context, authority *[]byte) (done bool, err error) {
	record, err := f.record(ctx)
	if err != nil {
		return false, err
	}
	if text := record.Data[BundleKey]; text != "" {
		*authority = []byte(text)
		return true, nil
	}
	if f.cfg.OnlyJoins != "" {
		return false, model.Errorf(model.ErrUnavailable, "no cluster is recorded in %s, and this netmaster founds none: %s", f.at(), f.cfg.OnlyJoins)
	}
	return f.acquire(ctx)
}

// Record writes the authority of the cluster that this netmaster is about to found, unless
// another authority is recorded, which is model.ErrExists. It tries again until the API
// server answers, and else fails only with ctx.
func (f *Founder) Record(ctx context.Context, authority []byte) error {
	for {
		done, err := f.put(ctx, authority)
		if done {
			return err
		}
		if err := f.pause(ctx, err); err != nil {
			return err
		}
	}
}

func (f *Founder) put(ctx context.Context, authority []byte) (done bool, err error) {
	record, err := f.record(ctx)
	if err != nil {
		return false, err
	}
	switch text := record.Data[BundleKey]; {
	case text != "" && isOtherCluster(text, authority):
		return true, model.Errorf(model.ErrExists, "%s has the authority of a cluster that another netmaster founded", f.at())
	case text != "":
		return true, nil
	}
	if record.Data == nil {
		record.Data = map[string]string{}
	}
	record.Data[BundleKey] = string(authority)
	err = f.core.Put().Namespace(f.cfg.Namespace).Resource("configmaps").Name(BundleName).Body(record).Do(ctx).Error()
	if err == nil {
		f.cfg.Log.Info("this netmaster founds the cluster, and has recorded it", "configmap", f.cfg.Namespace+"/"+BundleName)
		return true, nil
	}
	return false, fmt.Errorf("write %s: %w", f.at(), err) // it may have been written: read it again
}

func (f *Founder) at() string { return "ConfigMap " + f.cfg.Namespace + "/" + BundleName }

// record reads the ConfigMap.
func (f *Founder) record(ctx context.Context) (*corev1.ConfigMap, error) {
	var m corev1.ConfigMap
	err := f.core.Get().Namespace(f.cfg.Namespace).Resource("configmaps").Name(BundleName).Do(ctx).Into(&m)
	if text := m.Data[BundleKey]; err == nil && text != "" && len(certificates([]byte(text))) == 0 {
		return nil, model.Errorf(model.ErrConflict, "%s has no certificate in %s, so it is not known whether there is a cluster; while one is running it writes it; if there is none: %s", f.at(), BundleKey, f.reset())
	}
	return &m, f.explain(err, f.at())
}

// reset is the command that lets a netmaster found a cluster.
func (f *Founder) reset() string {
	return fmt.Sprintf("kubectl -n %s patch configmap %s -p '{\"data\":null}'", f.cfg.Namespace, BundleName)
}

// explain says what to do about an object that cannot be read.
func (f *Founder) explain(err error, at string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return model.Errorf(model.ErrNotFound, "%s does not exist: apply the manifest or upgrade the chart's release again", at)
	}
	return fmt.Errorf("read %s: %w", at, err)
}

// acquire reports whether this netmaster has taken the Lease: it is free, or has not changed
// for leaseDuration. Clocks of machines are not compared.
func (f *Founder) acquire(ctx context.Context) (bool, error) {
	at := "Lease " + f.cfg.Namespace + "/" + FounderLease
	var l coordinationv1.Lease
	if err := f.leases.Get().Namespace(f.cfg.Namespace).Resource("leases").Name(FounderLease).Do(ctx).Into(&l); err != nil {
		return false, f.explain(err, at)
	}
	if l.ResourceVersion != f.seen {
		f.seen, f.since = l.ResourceVersion, f.now()
	}
	holder := ""
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	if holder != "" && holder != f.cfg.Identity && f.now().Sub(f.since) < leaseDuration {
		return false, fmt.Errorf("the netmaster of %s founds the cluster", holder)
	}
	now, seconds := metav1.NewMicroTime(f.now()), int32(leaseDuration/time.Second)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.AcquireTime, l.Spec.RenewTime = &f.cfg.Identity, &seconds, &now, &now
	if err := f.leases.Put().Namespace(f.cfg.Namespace).Resource("leases").Name(FounderLease).Body(&l).Do(ctx).Error(); err != nil {
		return false, fmt.Errorf("write %s: %w", at, err)
	}
	return true, nil
}

// pause logs why nothing has come of it, once a minute for each reason, and waits.
func (f *Founder) pause(ctx context.Context, why error) error {
	if why != nil && ctx.Err() == nil && (why.Error() != f.logged || f.now().Sub(f.loggedAt) >= founderLogInterval) {
		f.logged, f.loggedAt = why.Error(), f.now()
		f.cfg.Log.Warn("it is not decided yet whether this netmaster founds the cluster; trying again", "error", why)
	}
	return waiting.Pause(ctx, founderInterval)
}
