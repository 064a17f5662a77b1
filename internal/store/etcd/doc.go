// Package etcd implements store.Store on etcd v3 (server 3.4 and later). Package
// join runs one for those who have none.
//
// It guarantees what package store promises, and nothing of etcd shows through:
// no etcd error, lease or revision type leaves it. Time-outs are
// model.ErrUnavailable with a sentence that names the endpoints.
//
// It must not know keys other than by prefix, and must not be imported but by
// cmd/, lab and tests.
package etcd
