package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/contiv/netplugin/v2/internal/waiting"
)

// kind is the copy of one kind. Its mirror's mu guards what is below source; only
// follow writes it.
type kind struct {
	mirror *Mirror
	name   string
	source Source

	objects map[Name]metav1.Object
	turn    uint64 // counts the changes of objects
	synced  bool   // the first list is in
	version string // of the API server, from which a watch goes on
	reached uint64 // the number of the latest moment shown; 0 = it is no number, or of a watch that has ended
	ends    int    // how many watches have ended: what was asked before an end is not known to hold after it
	failed  error  // why it is not followed just now
	since   time.Time
	silent  error // why the latest question got no answer

	again waiting.Bell // what the mirror has is of another store
}

// The caller of these holds the mirror's mu.

func (k *kind) fails(err error) {
	if k.failed == nil {
		k.since = time.Now()
	}
	k.failed = err
}

func (k *kind) isAt(version string) {
	k.version, k.failed = version, nil
	k.reached, _ = number(version) // also when it is less: the server's store is another one
}

// ended says that nobody tells any more what changes: what there is may be of another
// store by now.
func (k *kind) ended() {
	k.reached = 0
	k.ends++
}

// number reads a resource version; false when it is no number, and cannot be compared.
func number(version string) (uint64, bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0
}

// errSlow says that an API server has not begun a watch in beginTime.
var errSlow = errors.New("the API server does not say that it has begun")

// errGone says that a watch cannot go on from where it was.
var errGone = errors.New("the watch has expired")

// quiet is for how long a watch may say nothing: API servers send a bookmark each
// minute. One that was begun at a version that its store has yet to reach says nothing
// of all that comes before.
const quiet = 3 * time.Minute

// resumeTime is how long it may take to see whether a watch can go on; beginTime how
// long an API server may take until it says that a watch has begun.
const (
	resumeTime = 3 * time.Minute
	beginTime  = 30 * time.Second
)

// retries spaces looks at what there is. A watch that lasted for less than Max counts as
// a failure too: else an API server that ends each at once would be asked all the time.
var retries = waiting.BackoffConfig{Base: 400 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}

// follow lists and watches until ctx ends. Before a watch goes on where another ended,
// what there is must be what the mirror has: behind the API server may be another
// store since, in which that version is something else, or is yet to come.
func (k *kind) follow(ctx context.Context) error {
	retry := waiting.NewRetry(retries)
	list := true
	for {
		err := k.resume(ctx, list)
		if err == nil {
			began := time.Now()
			err = k.watch(ctx)
			if time.Since(began) > retries.Max {
				retry.Reset()
			}
			list = errors.Is(err, errGone) || apierrors.IsGone(err) || apierrors.IsResourceExpired(err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.mirror.mu.Lock()
		k.ended()
		if err != nil {
			k.fails(err)
		}
		k.mirror.mu.Unlock()
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// resume makes the copy one from which a watch can go on.
func (k *kind) resume(ctx context.Context, list bool) error {
	if list {
		return k.list(ctx)
	}
	asking, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	equal, version, err := k.compare(asking)
	if err != nil {
		return fmt.Errorf("list %s: %w", k.name, err)
	}
	if !equal {
		return k.list(ctx)
	}
	k.mirror.mu.Lock()
	k.isAt(version)
	k.mirror.mu.Unlock()
	k.mirror.changes.Tell()
	return nil
}

// list takes what there is: what differs, what has gone included, is told.
func (k *kind) list(ctx context.Context) error {
	all, err := k.source.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", k.name, err)
	}
	objects, version, err := read(all)
	if err != nil {
		return fmt.Errorf("list %s: %w", k.name, err)
	}
	k.mirror.mu.Lock()
	old := k.objects
	k.objects, k.synced = objects, true
	k.turn++
	k.isAt(version)
	k.mirror.mu.Unlock()
	for name, before := range old {
		if objects[name] == nil {
			k.mirror.tell(k.name, name, before, nil)
		}
	}
	for name, now := range objects {
		before := old[name]
		if before == nil || !same(before, now) {
			k.mirror.tell(k.name, name, before, now)
		}
	}
	k.mirror.changes.Tell()
	return nil
}

// same tells whether two objects are one in one version.
func same(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

func nameOf(o metav1.Object) Name { return Name{Namespace: o.GetNamespace(), Name: o.GetName()} }

// read takes a list apart.
func read(list runtime.Object) (objects map[Name]metav1.Object, version string, err error) {
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	objects = map[Name]metav1.Object{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, err := meta.Accessor(item)
		if err == nil {
			objects[nameOf(o)] = o
		}
		return err
	})
	return objects, l.GetResourceVersion(), err
}

// watch takes events until the watch ends, or is of no use any more.
func (k *kind) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(beginTime, func() { cancel(errSlow) })
	w, err := k.source.Watch(ctx, metav1.ListOptions{ResourceVersion: k.version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.name, cmp.Or(context.Cause(ctx), err))
	}
	late.Stop()
	defer discard(w)
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-silence.C:
			return nil
		case <-k.again:
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if e.Type == watch.Error {
				return fmt.Errorf("watch %s: %w", k.name, apierrors.FromObject(e.Object))
			}
			o, err := meta.Accessor(e.Object)
			if err != nil {
				return fmt.Errorf("watch %s: %w: %w", k.name, errGone, err)
			}
			silence.Reset(quiet)
			k.take(e.Type, o)
		}
	}
}

// take enters an event.
func (k *kind) take(event watch.EventType, o metav1.Object) {
	name := nameOf(o)
	k.mirror.mu.Lock()
	old := k.objects[name]
	var now metav1.Object
	switch event {
	case watch.Added, watch.Modified:
		now = o
		k.objects[name] = o
	case watch.Deleted:
		delete(k.objects, name)
	default: // a bookmark is no object
		old = nil
	}
	if old != nil || now != nil {
		k.turn++
	}
	k.isAt(o.GetResourceVersion())
	k.mirror.mu.Unlock()
	if old != nil || now != nil {
		k.mirror.tell(k.name, name, old, now)
	}
	k.mirror.changes.Tell()
}

// ask asks the API server what there is. Where that is what the mirror has, the mirror
// has reached the moment of the answer.
func (k *kind) ask(ctx context.Context) (equal bool) {
	k.mirror.mu.Lock()
	before, ends := k.reached, k.ends
	k.mirror.mu.Unlock()
	equal, version, err := k.compare(ctx)
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	k.silent = err
	if err != nil || k.ends != ends {
		return false
	}
	at, ok := number(version)
	switch {
	case ok && at < before: // later than the API server's present
		k.again.Ring()
		return false
	case ok && equal && at > k.reached:
		k.reached = at
		k.mirror.changes.Tell()
	}
	return equal
}

// compare tells whether the mirror has what there is now, and which moment that is.
func (k *kind) compare(ctx context.Context) (equal bool, version string, err error) {
	list, err := k.source.Versions(ctx)
	if err != nil {
		return false, "", err
	}
	there, version, err := read(list)
	if err != nil {
		return false, "", err
	}
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	if !k.synced || len(there) != len(k.objects) {
		return false, version, nil
	}
	for name, o := range there {
		if mine := k.objects[name]; mine == nil || !same(mine, o) {
			return false, version, nil
		}
	}
	return true, version, nil
}
