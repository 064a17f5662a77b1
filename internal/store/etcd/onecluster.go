package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// lookAgain is how soon servers that were of different clusters are asked again.
const lookAgain = time.Second

// oneCluster sees to it that what answers is one etcd: with endpoints of two, each
// would get every other request, and each write that is answered would be in one of
// them only. Its zero value is ready.
type oneCluster struct {
	mu     sync.Mutex
	id     uint64    // of the cluster that answered; 0 = none has yet
	split  error     // that servers are of different clusters; nothing is asked meanwhile
	looked time.Time // when they were asked
}

// splitError names servers of different clusters.
type splitError string

func (e splitError) Error() string { return string(e) }

// mayAsk refuses requests while the endpoints are servers of different clusters.
func (c *Client) mayAsk(ctx context.Context) error {
	c.one.mu.Lock()
	defer c.one.mu.Unlock()
	if c.one.split != nil && time.Since(c.one.looked) >= lookAgain {
		c.lookLocked(ctx)
	}
	return c.one.split
}

// belongs refuses an answer of another cluster than the one that has answered before,
// unless all servers are of that one now: it was made anew, or of a backup.
func (c *Client) belongs(ctx context.Context, answer any) error {
	id := clusterOf(answer)
	if id == 0 || len(c.allEndpoints()) < 2 {
		return nil
	}
	c.one.mu.Lock()
	defer c.one.mu.Unlock()
	if c.one.id == 0 {
		c.one.id = id
	}
	if c.one.id != id {
		c.lookLocked(ctx)
	}
	if c.one.split == nil && c.one.id != id {
		return splitError("an etcd of another cluster answered, and is gone")
	}
	return c.one.split
}

// lookLocked asks all servers which cluster they are of. Who does not answer may be
// of any.
func (c *Client) lookLocked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	endpoints := c.allEndpoints()
	ids := make([]uint64, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			if answer, err := c.etcd.Status(ctx, endpoint); err == nil {
				ids[i] = answer.Header.ClusterId
			}
		})
	}
	asking.Wait()
	c.one.looked = time.Now()
	var said []string
	for i, endpoint := range endpoints {
		if ids[i] != 0 {
			said = append(said, fmt.Sprintf("%s of cluster %x", endpoint, ids[i]))
		}
	}
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return id == 0 })
	slices.Sort(ids)
	switch ids = slices.Compact(ids); len(ids) {
	case 0: // as before
	case 1:
		c.one.id, c.one.split = ids[0], nil
	default:
		c.one.split = splitError("the endpoints of etcd are servers of different clusters (" + strings.Join(said, ", ") +
			"), so nothing is read or written: name those of one only, by --etcd-endpoints, or stop the wrong ones")
	}
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
