package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// kind is the copy of one kind. A cache.Reflector lists and watches, and enters what it
// learns in the kind, its store (cache.ReflectorStore), synchronously. The mirror's mu
// guards what is below source; only the Reflector's goroutine writes objects.
type kind struct {
	mirror *Mirror
	name   string
	source Source

	objects      map[Name]metav1.Object
	generation   uint64 // counts the changes of objects
	synced       bool   // the first list is in
	version      string // the API server's latest
	reached      uint64 // the number of the latest moment shown; 0 = it is no number, or of a watch that has ended
	endedWatches int    // counts ended watches: an answer to a question from before an end is not valid after it
	failed       error  // why the kind is not followed now
	since        time.Time
	unanswered   error                   // why the latest question got no answer
	end          context.CancelCauseFunc // ends the present watch, or the list before it

	// The Reflector's goroutine alone uses these.
	compared     bool        // a list was entered, and no watch has begun since
	began        time.Time   // the present watch; zero = none has
	silenceLimit *time.Timer // ends a watch that sends nothing
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
	k.reached, _ = number(version) // a smaller number too: the API server's store was replaced
}

// number reads a resource version; false when it is no number, and cannot be compared.
func number(version string) (uint64, bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0
}

var (
	// errSlow says that an API server has not begun a watch within beginTime.
	errSlow = errors.New("the API server does not confirm that the watch has begun")
	// errBehind says that a list is older than what was seen before: the store was replaced.
	errBehind = errors.New("the API server is behind what it said before")
	// errNotCompared stops a Reflector that would continue where a watch has ended.
	errNotCompared = errors.New("a list must precede each watch")
	// errGone says that a watch cannot continue from where it was.
	errGone = errors.New("the watch has expired")
)

// silenceTime is how long a watch may send nothing: API servers send a bookmark each minute. A
// watch from a version that the API server's store has yet to reach sends no events until
// then.
const silenceTime = 3 * time.Minute

const (
	// resumeTime limits the comparison before a watch.
	resumeTime = 3 * time.Minute
	// beginTime limits how long an API server takes to begin a watch.
	beginTime = 30 * time.Second
	// pageSize is how many objects a page of a list has, as in client-go's pager.
	pageSize = 500
)

// retries spaces lists and comparisons. A watch that lasted for less than Max counts as a
// failure too: else an API server that ends each watch at once would be asked all the time.
var retries = waiting.BackoffConfig{Base: 400 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}

// follow lists and watches until ctx ends. A Reflector by itself begins a new watch where
// the last one ended. That is not safe here: the API server's store may have been replaced
// meanwhile, and the version may mean something else, or come later. So each watch follows
// a list or a comparison (list), and pauses are retries' instead of the Reflector's.
func (k *kind) follow(ctx context.Context) error {
	source := &cache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, k), nil, k, cache.ReflectorOptions{
		Name: k.name, TypeDescription: k.name, Backoff: &wait.Backoff{Duration: time.Millisecond},
	})
	reflector.WatchListPageSize = pageSize
	retry := waiting.NewRetry(retries)
	ctx = klog.NewContext(ctx, klog.Logger{}) // it logs nothing: States has what failed
	for {
		session, end := context.WithCancelCause(ctx)
		k.mirror.mu.Lock()
		k.end = end
		k.mirror.mu.Unlock()
		k.began = time.Time{}
		err := reflector.ListAndWatchWithContext(session)
		end(nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.mirror.mu.Lock()
		k.reached = 0 // from now on nothing tells what changes
		k.endedWatches++
		if err != nil && !errors.Is(err, errNotCompared) {
			k.fails(err)
		}
		k.mirror.mu.Unlock()
		if !k.began.IsZero() {
			k.silenceLimit.Stop()
			if time.Since(k.began) > retries.Max {
				retry.Reset()
			}
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// IsWatchListSemanticsUnSupported makes the Reflector list before it watches: only a list
// can be compared, and skipped when nothing has changed.
func (*kind) IsWatchListSemanticsUnSupported() bool { return true }

// list returns a page of what there is. Where the API server has what the mirror has, it
// returns the mirror's objects, and they are not transferred again.
func (k *kind) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.Continue == "" && k.synced { // follow's goroutine waits for this one
		ctx, cancel := context.WithTimeout(ctx, resumeTime)
		defer cancel()
		equal, version, err := k.compare(ctx)
		if err != nil {
			return nil, err
		}
		if equal {
			all := &internalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
			for _, o := range k.objects {
				all.Items = append(all.Items, o.(runtime.Object))
			}
			return all, nil
		}
	}
	o.ResourceVersion = "" // consistent; the Reflector would take an older list too
	return k.source.List(ctx, o)
}

// watch begins a watch, once after each list.
func (k *kind) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !k.compared {
		return nil, errNotCompared
	}
	k.compared = false
	end := k.end
	late := time.AfterFunc(beginTime, func() { end(errSlow) })
	defer late.Stop()
	w, err := k.source.Watch(ctx, metav1.ListOptions{ResourceVersion: o.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil { // as text alone: the Reflector would begin the watch again after some errors
		return nil, fmt.Errorf("watch %s: %v", k.name, cmp.Or(context.Cause(ctx), err)) //nolint:errorlint // see above
	}
	k.began, k.silenceLimit = time.Now(), time.AfterFunc(silenceTime, func() { end(nil) })
	return w, nil
}

// same reports whether two objects are one in one version.
func same(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

func nameOf(o metav1.Object) Name { return Name{Namespace: o.GetNamespace(), Name: o.GetName()} }

// Replace enters a list. It tells what differs, deleted objects included.
func (k *kind) Replace(items []any, version string) error {
	objects := make(map[Name]metav1.Object, len(items))
	for _, item := range items {
		o, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		objects[nameOf(o)] = o
	}
	k.mirror.mu.Lock()
	old := k.objects
	k.objects, k.synced = objects, true
	k.generation++
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
	k.compared = true
	k.mirror.changes.Notify()
	return nil
}

// Add enters an object of an event.
func (k *kind) Add(o any) error { return k.enter(o, true) }

// Update enters an object of an event.
func (k *kind) Update(o any) error { return k.enter(o, true) }

// Delete removes the object of an event.
func (k *kind) Delete(o any) error { return k.enter(o, false) }

// Resync does nothing: the mirror has no queue to fill again.
func (*kind) Resync() error { return nil }

func (k *kind) enter(item any, there bool) error {
	o, err := meta.Accessor(item)
	if err != nil {
		return err
	}
	name := nameOf(o)
	var now metav1.Object
	k.mirror.mu.Lock()
	old := k.objects[name]
	if there {
		now = o
		k.objects[name] = o
	} else {
		delete(k.objects, name)
	}
	if old != nil || now != nil {
		k.generation++
	}
	k.mirror.mu.Unlock()
	if old != nil || now != nil {
		k.mirror.tell(k.name, name, old, now)
	}
	return nil
}

// UpdateResourceVersion notes that all events up to a version were entered. The Reflector
// calls it after each event, and for bookmarks (cache.ResourceVersionUpdater).
func (k *kind) UpdateResourceVersion(version string) {
	k.silenceLimit.Reset(silenceTime)
	k.mirror.mu.Lock()
	k.isAt(version)
	k.mirror.mu.Unlock()
	k.mirror.changes.Notify()
}

// ask asks the API server what there is. Where that is what the mirror has, the mirror
// has reached the moment of the answer.
func (k *kind) ask(ctx context.Context) (equal bool) {
	k.mirror.mu.Lock()
	before, ends := k.reached, k.endedWatches
	k.mirror.mu.Unlock()
	equal, version, err := k.compare(ctx)
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	k.unanswered = err
	if err != nil || k.endedWatches != ends {
		return false
	}
	at, ok := number(version)
	switch {
	case ok && at < before: // later than the API server's present
		k.end(errBehind)
		return false
	case ok && equal && at > k.reached:
		k.reached = at
		k.mirror.changes.Notify()
	}
	return equal
}

// compare reports whether the mirror has what there is now, and which moment that is.
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
