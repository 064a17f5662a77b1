package statusreport

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

func tenantOutcome(waits bool, reason string, change ...func(*objects.Tenant)) Outcome {
	o := &objects.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "u", ResourceVersion: "7", Finalizers: []string{"other"}}}
	for _, f := range change {
		f(o)
	}
	n := int64(3)
	return Outcome{Kind: "Tenant", Version: "contiv.io/v1alpha1", Object: o, Kept: &WriteBack{Waits: waits, Status: objects.Status{
		Key: "t", Networks: &n, Conditions: []metav1.Condition{{Type: objects.Kept, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}},
	}}}
}

// TestKept: the finalizer and the status are written once, of the version that was
// looked at, and again when somebody has changed them; an end takes the finalizer alone;
// there is no event.
func TestKept(t *testing.T) {
	w, n := serve(t)
	for range 2 {
		n.Report(tenantOutcome(true, "Kept"))
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
		o.Status = tenantOutcome(true, "Kept").Kept.Status
		o.ResourceVersion = "8"
	}
	n.Report(tenantOutcome(true, "Kept", there)) // as the watch tells of what was written
	idle(t, n)
	n.Report(tenantOutcome(true, "Kept", there, func(o *objects.Tenant) { o.Status.Key, o.ResourceVersion = "forged", "9" }))
	idle(t, n)
	if got := w.asked()[2:]; !slices.Equal(got, []string{status}) {
		t.Errorf("a forged status: asked %v", got)
	}
	now := metav1.Now()
	n.Report(tenantOutcome(false, "Kept", there, func(o *objects.Tenant) { o.DeletionTimestamp = &now }))
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
