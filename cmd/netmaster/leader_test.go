package main

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// lockLasts fails unless the leader's lock, in the store that a netmaster keeps by
// itself, outlives it for MemberTTL: with it, and what etcd adds when its own leader
// dies, another leads within 5 s (TestLeaderTasksMoveInTime of test/cluster measures that).
func (p *process) lockLasts(endpoint string) {
	p.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // it was read
	p.until("leads by a lock that lasts as long as it should", func() bool {
		r, err := c.Get(p.t.Context(), cluster.LeaderKey)
		if err != nil || len(r.Kvs) != 1 {
			return false
		}
		lease, err := c.TimeToLive(p.t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
		return err == nil && lease.GrantedTTL == int64(cluster.MemberTTL.Seconds())
	})
}
