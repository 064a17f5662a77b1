package statusreport

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

func tenantOutcome(waits bool, reason string, change ...func(*objects.Tenant)) Outcome {
	o := &objects.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "u", ResourceVersion: "7", Finalizers: []string{"other"}}}
	for _, f := range change {
		f(o)
	}
	n := int64(3)
	return Outcome{Kind: "Tenant", Version: "contiv.io/v1alpha1", Object: o, WriteBack: &WriteBack{Waits: waits, Status: objects.Status{
		Key: "t", Networks: &n, Conditions: []metav1.Condition{{Type: objects.Ready, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}},
	}}}
}

// TestFinalizerAndStatusAreWrittenOnce: the finalizer and the status are written once, of the version that was
// looked at, and again when somebody has changed them; an end takes the finalizer alone;
// there is no event of what is well.
func TestFinalizerAndStatusAreWrittenOnce(t *testing.T) {
	w, n := serve(t)
	for range 2 {
		n.Report(tenantOutcome(true, "Applied"))
		idle(t, n)
	}
	const object, status = "PATCH /apis/contiv.io/v1alpha1/tenants/t", "PATCH /apis/contiv.io/v1alpha1/tenants/t/status"
	if got := w.asked(); !slices.Equal(got, []string{object, status}) {
		t.Fatalf("asked %v", got)
	}
	meta, _ := w.bodies[0]["metadata"].(map[string]any)
	if f, _ := meta["finalizers"].([]any); len(f) != 2 || f[0] != "other" || f[1] != objects.Finalizer || meta["resourceVersion"] != "7" || meta["uid"] != "u" {
		t.Errorf("the finalizer's patch %v", meta)
	}
	said, _ := w.bodies[1]["status"].(map[string]any)
	if endpoints, there := said["endpoints"]; said["networks"] != 3.0 || !there || endpoints != nil || said["key"] != "t" {
		t.Errorf("the status's patch %v", said)
	}
	there := func(o *objects.Tenant) {
		o.Finalizers = append(o.Finalizers, objects.Finalizer)
		o.Status = tenantOutcome(true, "Applied").WriteBack.Status
		o.ResourceVersion = "8"
	}
	n.Report(tenantOutcome(true, "Applied", there)) // as the watch tells of what was written
	idle(t, n)
	n.Report(tenantOutcome(true, "Applied", there, func(o *objects.Tenant) { o.Status.Key, o.ResourceVersion = "forged", "9" }))
	idle(t, n)
	if got := w.asked()[2:]; !slices.Equal(got, []string{status}) {
		t.Errorf("a forged status: asked %v", got)
	}
	now := metav1.Now()
	n.Report(tenantOutcome(false, "Applied", there, func(o *objects.Tenant) { o.DeletionTimestamp = &now }))
	idle(t, n)
	if got := w.asked()[3:]; !slices.Equal(got, []string{object}) {
		t.Errorf("its end: asked %v", got)
	}
	meta, _ = w.bodies[3]["metadata"].(map[string]any)
	if f, _ := meta["finalizers"].([]any); len(f) != 1 || f[0] != "other" {
		t.Errorf("the end's patch %v", meta)
	}
	for _, a := range w.asked() {
		if strings.Contains(a, "events") {
			t.Errorf("asked %s", a)
		}
	}
}

// TestRefusalIsAnEvent: an object that is not ready has one event, whose reason and note are
// those of its condition, however often that is reported; what may pass by itself has none.
func TestRefusalIsAnEvent(t *testing.T) {
	w, n := serve(t)
	not := func(reason string) Outcome {
		o := tenantOutcome(true, reason)
		c := &o.WriteBack.Status.Conditions[0]
		c.Status, c.Message = metav1.ConditionFalse, "because of "+reason
		o.Object.(*objects.Tenant).Finalizers = []string{objects.Finalizer}
		return o
	}
	const status, event = "PATCH /apis/contiv.io/v1alpha1/tenants/t/status", "POST /apis/events.k8s.io/v1/namespaces/default/events"
	n.Report(not(objects.ReasonLater))
	idle(t, n)
	for _, reason := range []string{objects.ReasonMissing, objects.ReasonRefused} {
		for range 2 {
			n.Report(not(reason))
			idle(t, n)
		}
	}
	if got := w.asked(); !slices.Equal(got, []string{status, status, event, status, event}) {
		t.Fatalf("asked %v", got)
	}
	if e := w.bodies[4]; e["reason"] != objects.ReasonRefused || e["note"] != "because of Refused" || e["type"] != "Warning" {
		t.Errorf("the event %v", e)
	}
	n.Forget("Tenant", types.NamespacedName{Name: "t"})
	if len(n.reported) != 0 {
		t.Errorf("of an object that is gone %v is left", n.reported)
	}
}

// TestRefusalIsReplaced: what became of an object while its event was not sent yet counts.
func TestRefusalIsReplaced(t *testing.T) {
	n, err := New(&rest.Config{}, "m1:9999", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pending := func(reason string, status metav1.ConditionStatus) (events int) {
		o := tenantOutcome(true, reason)
		o.WriteBack.Status.Conditions[0].Status, o.WriteBack.Status.Conditions[0].Message = status, reason
		n.Report(o)
		for _, o := range n.queue {
			if o.Event != nil {
				events++
			}
		}
		return events
	}
	for i, got := range []int{pending(objects.ReasonMissing, metav1.ConditionFalse), pending(objects.ReasonRefused, metav1.ConditionFalse)} {
		if got != 1 {
			t.Errorf("after %d reports %d events wait", i+1, got)
		}
	}
	if got := pending(objects.ReasonApplied, metav1.ConditionTrue); got != 0 {
		t.Errorf("%d events of what is well", got)
	}
}
