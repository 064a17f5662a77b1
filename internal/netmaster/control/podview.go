package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// PodView is the View's part that finds endpoints by their pods.
type PodView struct {
	endpoints   *EndpointView
	podsChanged waiting.Changes

	mu           *sync.RWMutex                // the View's
	podEndpoints map[string]model.EndpointKey // by the pod's UID
	podsIn       map[podScope]int             // how many pods have endpoints there
	freshPods    map[model.EndpointKey]bool   // that came since TakeWritten
}

func newPodView(mu *sync.RWMutex, endpoints *EndpointView) *PodView {
	pv := &PodView{mu: mu, endpoints: endpoints}
	pv.reset()
	return pv
}

func (pv *PodView) reset() {
	pv.podEndpoints = map[string]model.EndpointKey{}
	pv.podsIn = map[podScope]int{}
	pv.freshPods = map[model.EndpointKey]bool{}
}

// enterPod enters which pod an endpoint was and is of.
func (pv *PodView) enterPod(k model.EndpointKey, old, now *model.Endpoint) {
	if old != nil && old.Pod.UID != "" {
		pv.countPod(*old, false)
		if pv.podEndpoints[old.Pod.UID] == k {
			delete(pv.podEndpoints, old.Pod.UID)
		}
	}
	if now == nil || now.Pod.UID == "" {
		delete(pv.freshPods, k)
		return
	}
	pv.countPod(*now, true)
	pv.podEndpoints[now.Pod.UID] = k
	pv.freshPods[k] = true
	pv.podsChanged.Notify()
}

// PodEndpoint finds the endpoint of a pod by the pod's UID.
func (pv *PodView) PodEndpoint(uid string) (e model.Endpoint, ok bool) {
	pv.mu.RLock()
	defer pv.mu.RUnlock()
	k, ok := pv.podEndpoints[uid]
	return pv.endpoints.endpoints[k], ok
}

func (pv *PodView) countPod(e model.Endpoint, in bool) {
	for _, at := range [2]podScope{{e.Namespace, e.Key.Network.Tenant}, {"", e.Key.Network.Tenant}} {
		if in {
			pv.podsIn[at]++
		} else if pv.podsIn[at]--; pv.podsIn[at] == 0 {
			delete(pv.podsIn, at)
		}
	}
}

// HasPods reports whether a tenant has endpoints of pods of a namespace, "" = of any.
func (pv *PodView) HasPods(t model.TenantName, namespace model.NamespaceName) bool {
	return read(pv.mu, func() bool { return pv.podsIn[podScope{namespace, t}] > 0 })
}

// PodEndpoints returns the endpoints of pods, in no sequence.
func (pv *PodView) PodEndpoints() []model.Endpoint {
	pv.mu.RLock()
	defer pv.mu.RUnlock()
	out := make([]model.Endpoint, 0, len(pv.podEndpoints))
	for _, k := range pv.podEndpoints {
		out = append(out, pv.endpoints.endpoints[k])
	}
	return out
}

// TakeWritten returns the endpoints of pods that were written since the call before.
func (pv *PodView) TakeWritten() []model.Endpoint {
	pv.mu.Lock()
	defer pv.mu.Unlock()
	out := make([]model.Endpoint, 0, len(pv.freshPods))
	for k := range pv.freshPods {
		out = append(out, pv.endpoints.endpoints[k])
	}
	clear(pv.freshPods)
	return out
}

// podScope is where pods are: a tenant, of a namespace or ("") of any.
type podScope struct {
	namespace model.NamespaceName
	tenant    model.TenantName
}
