package control

import (
	"net/netip"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// AddressOwnerView is the View's part that says what has an address outside of networks:
// the ranges of services' addresses, the load balancers' pool, and what is reserved.
type AddressOwnerView struct {
	kubernetes *KubernetesView
	hosts      *HostView
	networks   *NetworkView

	mu            *sync.RWMutex // the View's
	serviceRanges model.ServiceRanges
	balancedAddrs *balanced
	reserved      map[netip.Addr]string // by Reserve; of no store
}

func newAddressOwnerView(mu *sync.RWMutex, kubernetes *KubernetesView, hosts *HostView, networks *NetworkView) *AddressOwnerView {
	ov := &AddressOwnerView{mu: mu, kubernetes: kubernetes, hosts: hosts, networks: networks}
	ov.reset()
	return ov
}

func (ov *AddressOwnerView) reset() {
	ov.balancedAddrs = &balanced{by: map[netip.Addr]model.ClusterServiceKey{}, of: index[model.ClusterServiceKey, netip.Addr]{}}
	ov.serviceRanges = model.ServiceRanges{}
}
