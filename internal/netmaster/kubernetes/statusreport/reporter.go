package statusreport

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// The rate of requests: of events and conditions together, and of services' statuses,
// which users wait for.
const (
	perSecond       = 5
	burst           = 20
	statusPerSecond = 50
	objectPerSecond = 100
)

// Outcome is what became of an object.
type Outcome struct {
	Kind     string // of the object: NetworkPolicy
	Version  string // group and version: networking.k8s.io/v1
	Object   metav1.Object
	Problems []translate.Problem // the parts that cannot be realised
	Err      error               // why the store does not have it as it is now; nil = it has, but for Problems
	// Balanced are the addresses that a Service's status is to have as its load balancer's;
	// nil = they are somebody else's.
	Balanced *[]netip.Addr
	// Event is something to be told of an object, beside all others of another reason; nil =
	// it is of what became of the object.
	Event *Event
	// WriteBack is what an object of package objects is to have; nil = it is of another kind.
	WriteBack *WriteBack
}

// WriteBack is what is written on an object in which intent is written.
type WriteBack struct {
	Status objects.Status
	Waits  bool // it has the finalizer
}

// Reporter tells an API server of outcomes. It is safe for use by several goroutines.
type Reporter struct {
	events, policies, core      rest.Interface
	intent                      rest.Interface // of package objects
	instance                    string
	log                         *slog.Logger
	limit, statuses, writeBacks flowcontrol.RateLimiter
	bell                        waiting.Bell

	sent, failed atomic.Int64

	mu       sync.Mutex
	reported map[object]string // what was said of each last
	queue    map[object]Outcome
	// forbidden are reports without permission. One of them is tried each probeEvery: when
	// it succeeds, all are sent.
	forbidden  map[object]Outcome
	probeEvery time.Duration
	probeAt    time.Time
}

// object names an object.
type object struct {
	kind string
	types.NamespacedName
}

func objectOf(o Outcome) object {
	if o.Event != nil {
		return object{o.Kind + " " + cmp.Or(o.Event.topic, o.Event.Reason), nameOf(o.Object)}
	}
	return object{o.Kind, nameOf(o.Object)}
}

// New returns Notices to the API server that a configuration leads to, from an instance
// (host:port); Run sends them.
func New(config *rest.Config, instance string, log *slog.Logger) (*Reporter, error) {
	n := &Reporter{
		instance: instance, log: log, limit: flowcontrol.NewTokenBucketRateLimiter(perSecond, burst), statuses: flowcontrol.NewTokenBucketRateLimiter(statusPerSecond, statusPerSecond), writeBacks: flowcontrol.NewTokenBucketRateLimiter(objectPerSecond, objectPerSecond), bell: waiting.NewBell(),
		reported: map[object]string{}, queue: map[object]Outcome{}, forbidden: map[object]Outcome{}, probeEvery: time.Minute,
	}
	for _, c := range []struct {
		client *rest.Interface
		group  schema.GroupVersion
		add    func(*runtime.Scheme) error
	}{
		{&n.events, eventsv1.SchemeGroupVersion, eventsv1.AddToScheme},
		{&n.core, corev1.SchemeGroupVersion, corev1.AddToScheme},
		{&n.intent, objects.GroupVersion, objects.AddToScheme},
		{&n.policies, schema.GroupVersion(policyv1beta1.GroupVersion), policyv1beta1.Install},
	} {
		var err error
		if *c.client, err = mirror.NewClient(config, c.group, c.add, mirror.Unlimited); err != nil { // limit, statuses and writeBacks do
			return nil, err
		}
	}
	return n, nil
}

// Report says what became of an object; what was said of it before and is not sent yet,
// need not be.
func (n *Reporter) Report(o Outcome) {
	n.report(o)
	if o.WriteBack != nil {
		n.report(refusalOf(o))
	}
}

func (n *Reporter) report(o Outcome) {
	name, said := objectOf(o), fullText(o)
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.reported[name]
	if before == said && known {
		return
	}
	n.reported[name] = said
	delete(n.forbidden, name)
	if !isReportable(o) {
		delete(n.queue, name) // success needs no event
		return
	}
	n.queue[name] = o
	n.bell.Ring()
}

// isReportable reports whether an outcome has to be told at all.
func isReportable(o Outcome) bool {
	if o.WriteBack != nil {
		return needsWrite(o)
	}
	return outcomeText(o) != "" || o.Kind == kindPolicy || outdated(o)
}

// fullText is all that an outcome says.
func fullText(o Outcome) string {
	text := fmt.Sprintf("%s %d %s", o.Object.GetUID(), o.Object.GetGeneration(), outcomeText(o))
	if outdated(o) { // its status may be changed again any time
		text += fmt.Sprint(*o.Balanced, " at ", o.Object.GetResourceVersion())
	}
	if o.WriteBack != nil {
		text += statusText(*o.WriteBack)
		if needsWrite(o) {
			text += " at " + o.Object.GetResourceVersion()
		}
	}
	return text
}

// Forget says that an object is gone.
func (n *Reporter) Forget(kind string, name types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, kind := range []string{kind, kind + " " + topicRefused} {
		delete(n.reported, object{kind, name})
		delete(n.queue, object{kind, name})
		delete(n.forbidden, object{kind, name})
	}
}

// Reset forgets what was reported: another replica may have reported otherwise since.
func (n *Reporter) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reported, n.queue, n.forbidden = map[object]string{}, map[object]Outcome{}, map[object]Outcome{}
}

// Counts returns how many events and conditions were written, and how many requests
// for one failed.
func (n *Reporter) Counts() (sent, failed int64) { return n.sent.Load(), n.failed.Load() }

// Run sends reports until ctx ends, whose error it returns. It repeats a report that failed
// because the API server was away, and now and then one without permission. It logs other
// refusals and drops the report.
func (n *Reporter) Run(ctx context.Context) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: time.Second, Max: time.Minute})
	for {
		o, there, probe := n.next()
		if !there {
			select {
			case <-n.bell:
				continue
			case <-probe:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := n.send(ctx, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			retry.Reset()
			n.done(o)
			continue
		}
		n.failed.Add(1)
		if apierrors.IsForbidden(err) {
			if n.setForbidden(o) {
				n.log.Warn("netmaster has no right to report the status of an object to Kubernetes: give it the rights of the manifest", "kind", o.Kind, "object", nameOf(o.Object).String(), "error", err)
			}
			continue
		}
		if refused(err) {
			n.log.Warn("Kubernetes refuses the status of an object; its users do not see it", "kind", o.Kind, "object", nameOf(o.Object).String(), "error", err)
			n.done(o)
			continue
		}
		n.log.Debug("the status of an object cannot be reported to Kubernetes; trying again", "kind", o.Kind, "object", nameOf(o.Object).String(), "error", err)
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// refused reports whether to ask again is of no use.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// next returns what is to be sent next: statuses before others. When there is nothing,
// probe is when there may be, of what there is no right to tell; nil = never.
func (n *Reporter) next() (o Outcome, there bool, probe <-chan time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.forbidden) > 0 {
		wait := time.Until(n.probeAt)
		if wait <= 0 {
			n.probeAt = time.Now().Add(n.probeEvery)
			for _, o = range n.forbidden {
				return o, true, nil
			}
		}
		probe = time.After(wait)
	}
	for _, o = range n.queue {
		if there = true; outdated(o) || o.WriteBack != nil {
			break
		}
	}
	return o, there, probe
}

// done takes an outcome from the queue, unless another one has come meanwhile. When
// there was no right to tell it, there is now: all others are sent.
func (n *Reporter) done(o Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := objectOf(o)
	if now, there := n.queue[name]; there && fullText(now) == fullText(o) {
		delete(n.queue, name)
	}
	if _, was := n.forbidden[name]; was {
		delete(n.forbidden, name)
		maps.Copy(n.queue, n.forbidden)
		n.forbidden = map[object]Outcome{}
	}
}

// setForbidden puts an outcome aside that there is no right to tell; first = it is the only one.
func (n *Reporter) setForbidden(o Outcome) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := objectOf(o)
	if _, was := n.forbidden[name]; was {
		return false
	}
	now, there := n.queue[name]
	if !there || fullText(now) != fullText(o) { // its report has changed, or it needs none any more
		return false
	}
	delete(n.queue, name)
	if first = len(n.forbidden) == 0; first {
		n.probeAt = time.Now().Add(n.probeEvery)
	}
	n.forbidden[name] = o
	return first
}

func (n *Reporter) send(ctx context.Context, o Outcome) error {
	if o.WriteBack != nil { // its event is an outcome of its own, so that no status waits for it
		return n.writeObject(ctx, o)
	}
	if o.Kind == kindPolicy {
		if err := n.condition(ctx, o); err != nil {
			return err
		}
	}
	if outdated(o) {
		if err := n.status(ctx, o); err != nil {
			return err
		}
	}
	if outcomeText(o) == "" {
		return nil
	}
	return n.event(ctx, o)
}

// request sends one request at the rate that is allowed. An object that is gone, or a
// namespace that ends, needs to know nothing.
func (n *Reporter) request(ctx context.Context, limit flowcontrol.RateLimiter, do func(context.Context) error) error {
	if err := limit.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := do(ctx)
	switch {
	case err == nil:
		n.sent.Add(1)
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return nil
	}
	return err
}

// outcomeText is an outcome in words; empty = all is well.
func outcomeText(o Outcome) string {
	if o.Event != nil {
		return o.Event.Note
	}
	var lines []string
	if o.Err != nil {
		lines = append(lines, "not applied as written: "+o.Err.Error())
	}
	for _, p := range o.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// shortened is text of at most n bytes, n at least 32: what is left out is said.
func shortened(text string, n int) string {
	if len(text) <= n {
		return text
	}
	cut := strings.ToValidUTF8(text[:n-32], "")
	return fmt.Sprintf("%s… (%d bytes more)", cut, len(text)-len(cut))
}
