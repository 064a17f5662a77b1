package etcd

import (
	"context"
	"strconv"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/store"
)

// belongs refuses an answer of another cluster than the one that has answered before.
func (c *Client) belongs(ctx context.Context, answer any) error {
	id := clusterOf(answer)
	if id == 0 {
		return nil
	}
	return c.one.Belongs(ctx, strconv.FormatUint(id, 16))
}

// identify asks all servers which cluster they are of, and which store they have. Two that
// were made at one address have one id of the cluster.
func (c *Client) identify(ctx context.Context, sure bool) []store.EndpointReport {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	endpoints := c.health.allEndpoints()
	all := make([]*store.EndpointReport, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() { all[i] = c.identifyOne(ctx, endpoint, sure) })
	}
	asking.Wait()
	var told []store.EndpointReport
	for _, t := range all {
		if t != nil {
			told = append(told, *t)
		}
	}
	return told
}

// identifyOne asks one server; nil = it does not answer.
func (c *Client) identifyOne(ctx context.Context, endpoint string, sure bool) *store.EndpointReport {
	conn, err := c.etcd.Dial(endpoint)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }() // it was asked
	t := &store.EndpointReport{Endpoint: endpoint}
	q := &pb.RangeRequest{Key: []byte(store.StoreIdentityKey), Serializable: !sure}
	now := grpc.WaitForReady(false) // one that is gone is not waited for
	if r, err := pb.NewKVClient(conn).Range(ctx, q, now); err == nil {
		t.Cluster, t.Read, t.Identity = strconv.FormatUint(r.Header.ClusterId, 16), true, one(store.StoreIdentityKey, r.Kvs)
		return t
	}
	s, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}, now)
	if err != nil {
		return nil
	}
	t.Cluster = strconv.FormatUint(s.Header.ClusterId, 16)
	return t
}

// clusterOf is the id of the cluster that an answer is of; 0 = it does not tell.
func clusterOf(answer any) uint64 {
	switch x := answer.(type) {
	case interface{ GetClusterId() uint64 }:
		return x.GetClusterId()
	case interface{ GetHeader() *pb.ResponseHeader }:
		return x.GetHeader().GetClusterId()
	}
	return 0
}
