package statusreport

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Event is a report about an object.
type Event struct {
	Reason  string // UpperCamelCase
	Note    string // a sentence; the same one again is no other event
	Warning bool
	// topic is what the event is about: another one of an object and a topic replaces it
	// while it is not sent yet; "" = the reason.
	topic string
}

// OfNode is the Outcome that tells an event of a Node. As the kubelet does, it names the
// Node by its name in place of the UID, which "kubectl describe node" looks for.
func OfNode(name string, e Event) Outcome {
	return Outcome{Kind: "Node", Version: "v1", Object: &metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Event: &e}
}
