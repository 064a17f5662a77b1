package control

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// podName is the pod of an endpoint as a reservation has it; empty = it is of none.
func podName(e model.Endpoint) string {
	if e.Pod.Name == "" {
		return ""
	}
	return string(e.Namespace) + "/" + e.Pod.Name
}

// reservedForPod is a reservation that only a pod of a name may take, for
// Options.ReservationTTL.
func (as *Addresses) reservedForPod(k tables.AddressKey, pod string) tables.Address {
	return tables.Address{AddressKey: k, Reservation: &tables.Reservation{
		Pod: pod, Requester: "pod " + pod, Expires: as.commits.now().Add(as.reservationTTL).UTC().Round(0),
	}}
}

// replacePrevious removes the endpoint that has an address which a pod asks for, if that is
// of a former pod of its name: the API server has none but the one that asks, and the
// former's host may never release it.
//
// An agent has another host's removed where the API server says that the pod is on the
// agent's host (Actor.OfPodOn), and not because it says so itself.
func (es *Endpoints) replacePrevious(actor Actor, tx store.Tx, want model.Endpoint) error {
	for _, a := range []struct {
		netip.Addr
		asked bool
	}{{want.IPv4, want.Pod.KeepIPv4}, {want.IPv6, want.Pod.KeepIPv6}} {
		if !a.asked || !a.IsValid() {
			continue
		}
		row, err := tables.Addresses.Find(tx, tables.AddressKey{Network: want.Key.Network, Addr: a.Addr})
		if err != nil {
			return err
		}
		if row.Value.Endpoint == "" {
			continue
		}
		former, err := tables.Endpoints.Find(tx, model.EndpointKey{Network: want.Key.Network, ID: row.Value.Endpoint})
		if err != nil {
			return err
		}
		if f := former.Value; former.Exists() && f.Pod.UID != want.Pod.UID && podName(f) == podName(want) {
			if actor.podOn != want.Host {
				if err := actor.checkOwnHost(fmt.Sprintf("the address %s of pod %s", a.Addr, podName(want)), f.Host); err != nil {
					return fmt.Errorf("%w; the API server does not say that the pod is on %q", err, want.Host)
				}
			}
			if err := es.removeEndpoint(tx, f); err != nil {
				return err
			}
		}
	}
	return nil
}
