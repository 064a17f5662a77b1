package mirror

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Unlimited is a rate for callers that limit requests themselves.
const Unlimited = -1

// NewClient returns a client of one group and version, whose types add registers.
// client-go's clientset would link the types of all groups into netmaster. It sends at
// most perSecond requests a second, and twice as many at once. It speaks JSON unless the
// configuration says otherwise.
func NewClient(config *rest.Config, group schema.GroupVersion, add func(*runtime.Scheme) error, perSecond int) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &group, "/apis"
	if group.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.AcceptContentTypes = runtime.ContentTypeJSON
	if c.ContentType == "" {
		c.ContentType = runtime.ContentTypeJSON
	} else if c.ContentType != runtime.ContentTypeJSON {
		c.AcceptContentTypes = c.ContentType + "," + runtime.ContentTypeJSON
	}
	c.QPS, c.Burst = float32(perSecond), 2*perSecond
	return rest.RESTClientFor(c)
}
