package translate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The annotations of pods that limit what they receive and send, in bits a second.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/
const (
	AnnotationReceive = "kubernetes.io/ingress-bandwidth"
	AnnotationSend    = "kubernetes.io/egress-bandwidth"
)

// Rates are the limits for which a pod asks by annotations. The Problems say what cannot
// be understood: a pod that is new must wait then.
func Rates(pod metav1.Object) (r model.Rates, found []Problem) {
	for _, f := range []struct {
		name string
		to   *model.Rate
	}{{AnnotationReceive, &r.Receive}, {AnnotationSend, &r.Send}} {
		text, asked := pod.GetAnnotations()[f.name]
		if !asked {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.CmpInt64(model.MinRate) < 0 || q.CmpInt64(model.MaxRate) > 0 {
			found = append(found, Problem{
				"metadata.annotations[" + f.name + "]",
				fmt.Sprintf("%q: must be a number of bits a second between 1k and 10T, such as 10M", text),
			})
			continue
		}
		f.to.Bits = uint64(q.Value()) //nolint:gosec // it is above 0
	}
	return r, found
}
