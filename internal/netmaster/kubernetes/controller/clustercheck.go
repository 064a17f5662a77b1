package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// ClusterCheckConfig is what Ours is made of; all but Named must be set.
type ClusterCheckConfig struct {
	Control *control.Controller
	Ask     func(context.Context) (uid string, err error) // mirror.ClusterUID
	// Named is the UID of the cluster that the store is to follow, also instead of another
	// one; empty = the one that it follows, or the first.
	Named string
	Log   *slog.Logger
}

// ClusterCheck reports whether an API server is of the cluster that the store follows: two on one
// store would each take away what only the other has. The store follows the first that
// it meets. Ours is safe for use by several goroutines.
type ClusterCheck struct {
	config ClusterCheckConfig
	begun  atomic.Int64 // questions

	asking  sync.Mutex
	settled bool // the store was found, or made, to follow it once: nothing is taken over any more
	last    error
	useful  bool // last is an answer

	mu      sync.Mutex
	foreign error  // of the last answer
	uid     string // of the API server that answered last, and was ours
}

// NewClusterCheck returns an Ours. It sends no request.
func NewClusterCheck(c ClusterCheckConfig) *ClusterCheck { return &ClusterCheck{config: c} }

// Check asks the API server which cluster it is of. The error is model.ErrConflict when
// that is not the one that the store follows, and says what to do. A question that begins
// after the call may be shared.
func (o *ClusterCheck) Check(ctx context.Context) error {
	before := o.begun.Load()
	o.asking.Lock()
	defer o.asking.Unlock()
	if o.begun.Load() > before && o.useful {
		return o.last
	}
	o.begun.Add(1)
	o.useful = false
	uid, err := o.config.Ask(ctx)
	if err != nil {
		return fmt.Errorf("ask which cluster the API server is of: %w", err)
	}
	o.useful, o.last = o.compare(ctx, uid)
	return o.last
}

// compare compares with what the store follows; false = that cannot be known.
func (o *ClusterCheck) compare(ctx context.Context, uid string) (known bool, err error) {
	c := &o.config
	if c.Named != "" && c.Named != uid {
		return true, o.found(uid, model.Errorf(model.ErrConflict,
			"the API server belongs to the cluster %s (the UID of its namespace kube-system), and --kubernetes-cluster names %s: none of its objects are stored, and nothing is deleted; name the cluster of --kubeconfig, or none", uid, c.Named))
	}
	follows := c.Control.Current().Settings.KubernetesCluster().UID
	if follows != uid || !o.settled {
		valid, err := model.Check(model.KubernetesCluster{UID: uid})
		if err != nil {
			return false, err
		}
		instead := c.Named != "" && !o.settled
		was, err := c.Control.Kubernetes.FollowKubernetes(ctx, control.Admin(), valid, instead)
		if err != nil {
			return false, err
		}
		switch {
		case was.UID == "":
			c.Log.Info("the store is bound to this Kubernetes cluster from now on", "cluster", uid)
		case was.UID != uid && instead:
			c.Log.Warn("the store is bound to another Kubernetes cluster than before, as --kubernetes-cluster asks for; objects that only the former one had are deleted", "cluster", uid, "former", was.UID)
		case was.UID != uid:
			return true, o.found(uid, errOtherCluster(uid, was.UID))
		}
	}
	o.settled = true
	return true, o.found(uid, nil)
}

func errOtherCluster(uid, follows string) error {
	return model.Errorf(model.ErrConflict,
		"the API server belongs to the cluster %s (the UID of its namespace kube-system), and the store is bound to the cluster %s: none of its objects are stored, and nothing is deleted; give netmaster a --kubeconfig of that cluster or a store of its own, or, if this cluster replaces that one, start it with --kubernetes-cluster %s, which deletes objects that only the former one had",
		uid, follows, uid)
}

// found remembers an answer.
func (o *ClusterCheck) found(uid string, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && (o.foreign == nil || o.foreign.Error() != err.Error()) {
		o.config.Log.Error("no object of Kubernetes is stored", "error", err)
	}
	if o.foreign = err; err == nil {
		o.uid = uid
	}
	return err
}

// Err tells, without a question, why nothing of the API server may be kept: of what it
// answered last, and of what the store follows now. nil = all is well as far as is known.
func (o *ClusterCheck) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.foreign != nil {
		return o.foreign
	}
	if follows := o.config.Control.Current().Settings.KubernetesCluster().UID; o.uid != "" && follows != "" && follows != o.uid {
		return errOtherCluster(o.uid, follows)
	}
	return nil
}
