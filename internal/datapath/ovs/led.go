package ovs

import "github.com/contiv/netplugin/v2/internal/model"

// claimLed follows which services have which address as a backend that is no endpoint.
func (ch *servicesChange) claimLed(k model.ServiceKey, old, now held) {
	for _, a := range old.led {
		if delete(ch.led[place{old.domain, a}], k); len(ch.led[place{old.domain, a}]) == 0 {
			delete(ch.led, place{old.domain, a})
		}
	}
	for _, a := range now.led {
		if ch.led[place{now.domain, a}] == nil {
			ch.led[place{now.domain, a}] = map[model.ServiceKey]bool{}
		}
		ch.led[place{now.domain, a}][k] = true
	}
}
