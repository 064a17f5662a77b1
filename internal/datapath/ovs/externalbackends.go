package ovs

import "github.com/contiv/netplugin/v2/internal/model"

// replaceExternal follows which services have which address as a backend that is no endpoint.
func (ch *servicesChange) replaceExternal(k model.ServiceKey, old, now serviceAddrs) {
	for _, a := range old.external {
		if delete(ch.external[domainAddress{old.domain, a}], k); len(ch.external[domainAddress{old.domain, a}]) == 0 {
			delete(ch.external, domainAddress{old.domain, a})
		}
	}
	for _, a := range now.external {
		if ch.external[domainAddress{now.domain, a}] == nil {
			ch.external[domainAddress{now.domain, a}] = map[model.ServiceKey]bool{}
		}
		ch.external[domainAddress{now.domain, a}][k] = true
	}
}
