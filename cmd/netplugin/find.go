package main

import (
	"net/url"
	"slices"
)

// asksNetmasters reports whether this host learns of the cluster from netmasters only: it has a
// certificate. A host without one reads the store, as 1.x does.
func (o *options) asksNetmasters() bool { return o.certs.Own != nil || o.certs.Store != nil }

// findNetmasters takes the machines of the store for those of netmasters, unless these are
// known: with a certificate this host asks no store.
func (o *options) findNetmasters() error {
	if len(o.seeds) > 0 {
		return nil
	}
	for _, text := range slices.Concat(o.store.Etcd, o.store.Consul) {
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		o.seeds = append(o.seeds, netmasterAt(u.Hostname(), o.certs.Own != nil))
		o.storeAt = append(o.storeAt, u.Host)
	}
	return nil
}
