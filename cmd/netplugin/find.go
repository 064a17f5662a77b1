package main

import (
	"fmt"
	"net/url"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/store/consul"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// asksNetmasters reports whether this host learns of the cluster from netmasters only: it has a
// certificate. A host without one reads the store, as 1.x does.
func (o *options) asksNetmasters() bool { return o.certs.Own != nil || o.certs.Store != nil }

// findNetmasters makes the addresses of the store where netmasters are to be found: with a
// certificate this host asks no store.
func (o *options) findNetmasters(fs *flags.Set) (err error) {
	urls, flag, given := o.etcd, "--etcd-endpoints", o.etcd
	if fs.Given("etcd-endpoints") == "" {
		given = nil
	}
	if len(o.consul) > 0 {
		flag = "--consul-endpoints"
		urls, err = consul.ParseFlag(o.consul)
	} else if len(urls) > 0 {
		urls, err = etcd.ParseFlag(urls)
	}
	if err != nil {
		return flags.Usagef("%s: %w", flag, err)
	}
	if _, err = o.certs.SecureStore(given, urls); err != nil {
		return fmt.Errorf("%w; if the cluster is rolled back to connections without TLS, remove %s", err, o.joining.dir)
	}
	if len(o.seeds) > 0 {
		return nil
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return flags.Usagef("%s %q: %w", flag, text, err)
		}
		o.seeds = append(o.seeds, netmasterAt(u.Hostname(), o.certs.Own != nil))
		o.storeAt = append(o.storeAt, u.Host)
	}
	return nil
}

// findStore checks where the store is, of a host that reads it.
func (o *options) findStore(fs *flags.Set) (err error) {
	given := o.etcd
	if fs.Given("etcd-endpoints") == "" {
		given = nil
	}
	if len(o.consul) > 0 {
		given = o.consul
		if o.consul, err = consul.ParseFlag(o.consul); err != nil {
			return flags.Usagef("--consul-endpoints: %w", err)
		}
		o.consul, err = o.certs.SecureStore(given, o.consul)
	} else {
		if o.etcd, err = etcd.ParseFlag(o.etcd); err != nil {
			return flags.Usagef("--etcd-endpoints: %w", err)
		}
		o.etcd, err = o.certs.SecureStore(given, o.etcd)
	}
	return err
}
