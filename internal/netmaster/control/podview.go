package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// PodView is the View's part that finds endpoints by their pods.
type PodView struct {
	endpoints *EndpointView
	podsCame  waiting.Changes

	mu           *sync.RWMutex                // the View's
	podEndpoints map[string]model.EndpointKey // by the pod's UID
	podsIn       map[podPlace]int             // how many pods have endpoints there
	freshPods    map[model.EndpointKey]bool   // that came since FreshPods
}

func newPodView(mu *sync.RWMutex, endpoints *EndpointView) *PodView {
	pv := &PodView{mu: mu, endpoints: endpoints}
	pv.reset()
	return pv
}

func (pv *PodView) reset() {
	pv.podEndpoints = map[string]model.EndpointKey{}
	pv.podsIn = map[podPlace]int{}
	pv.freshPods = map[model.EndpointKey]bool{}
}
