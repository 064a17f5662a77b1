package statusreport

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

// needsWrite reports whether an object has not the status and the finalizer that it is to have.
func needsWrite(o Outcome) bool {
	is, ok := o.Object.(objects.Object)
	return ok && (waits(is) != o.WriteBack.Waits || !reflect.DeepEqual(withoutTimes(is.GetStatus()), withoutTimes(o.WriteBack.Status)))
}

func waits(o objects.Object) bool { return slices.Contains(o.GetFinalizers(), objects.Finalizer) }

// withoutTimes is a status without when its conditions changed, which says nothing new.
func withoutTimes(s objects.Status) objects.Status {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return s
}

// topicRefused is the topic of the event of an object that is not ready.
const topicRefused = "refused"

// refusalOf is the event that says what an object's condition does while that is False, but
// for what may pass by itself.
func refusalOf(o Outcome) Outcome {
	e := Event{Warning: true, topic: topicRefused}
	if c := meta.FindStatusCondition(o.WriteBack.Status.Conditions, objects.Ready); c != nil && c.Status == metav1.ConditionFalse && c.Reason != objects.ReasonLater {
		e.Reason, e.Note = c.Reason, c.Message
	}
	return Outcome{Kind: o.Kind, Version: o.Version, Object: o.Object, Event: &e}
}

// statusText is a status in words, to be compared.
func statusText(k WriteBack) string {
	text, err := json.Marshal(withoutTimes(k.Status))
	if err != nil {
		return err.Error()
	}
	if k.Waits {
		return string(text) + " waits"
	}
	return string(text)
}

// writeObject writes an object's status and handles its finalizer: added before, so that the
// object waits for its rows to go, and removed after, when nothing is left to report. Both
// writes apply to the version that was read, or fail: another version is reported again.
func (n *Reporter) writeObject(ctx context.Context, o Outcome) error {
	is, ok := o.Object.(objects.Object)
	if !ok {
		return nil
	}
	resource := ""
	for _, k := range objects.Kinds() {
		if k.Kind == o.Kind {
			resource = k.Plural
		}
	}
	patch := func(subresource string, body map[string]any) error {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		return n.request(ctx, n.writeBacks, func(ctx context.Context) error {
			r := n.intent.Patch(types.MergePatchType).Resource(resource).Name(is.GetName())
			if subresource != "" {
				r = r.SubResource(subresource)
			}
			return r.Param("fieldManager", controller).Body(text).Do(ctx).Error()
		})
	}
	if waits(is) != o.WriteBack.Waits && (!o.WriteBack.Waits || is.GetDeletionTimestamp() == nil) { // none can be put on what is to go
		finalizers := slices.DeleteFunc(slices.Clone(is.GetFinalizers()), func(f string) bool { return f == objects.Finalizer })
		if o.WriteBack.Waits {
			finalizers = append(finalizers, objects.Finalizer)
		}
		if err := patch("", map[string]any{"metadata": map[string]any{"uid": is.GetUID(), "resourceVersion": is.GetResourceVersion(), "finalizers": finalizers}}); err != nil {
			return err
		}
		if is.GetDeletionTimestamp() != nil { // it is gone
			return nil
		}
	}
	if reflect.DeepEqual(withoutTimes(is.GetStatus()), withoutTimes(o.WriteBack.Status)) {
		return nil
	}
	status, err := fullPatch(o.WriteBack.Status)
	if err != nil {
		return err
	}
	return patch("status", map[string]any{"metadata": map[string]any{"uid": is.GetUID()}, "status": status})
}

// fullPatch is a status as a patch that takes away what it does not say.
func fullPatch(s objects.Status) (map[string]any, error) {
	out := map[string]any{}
	for f := range reflect.TypeFor[objects.Status]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[name] = nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(text, &out)
}
