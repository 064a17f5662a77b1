package lab

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Etcd returns a client of the lab's etcd; the caller closes it.
func (l *Lab) Etcd(ctx context.Context) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{l.StoreURL()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return l.Master.Dial(ctx, "tcp", strings.TrimPrefix(addr, "http://"))
		})},
	})
}

// Snapshot reads what the store holds of the cluster's intent, at one revision.
func (l *Lab) Snapshot(ctx context.Context) ([]tables.Change, store.Revision, error) {
	c, err := l.Etcd(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the intent: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, tables.StatePrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("read the intent: %w", err)
	}
	rules := tables.NewInForce()
	var out []tables.Change
	for _, kv := range resp.Kvs {
		ev := store.Event{KV: store.KV{Key: string(kv.Key), Value: kv.Value, Create: store.Revision(kv.CreateRevision), Mod: store.Revision(kv.ModRevision)}}
		ch, err := rules.Decode(ev)
		if err != nil {
			return nil, 0, fmt.Errorf("read the intent: %w", err)
		}
		if ch.Key != nil {
			out = append(out, ch)
		}
	}
	out = append(out, rules.Rest()...)
	return out, store.Revision(resp.Header.Revision), nil
}

// Pictures compiles a snapshot for every host of the lab, from scratch.
func (l *Lab) Pictures(snapshot []tables.Change, rev store.Revision) map[model.HostName]desired.Host {
	out := map[model.HostName]desired.Host{}
	for _, h := range l.hosts {
		c := compile.New(model.HostName(h.Name))
		for _, ch := range snapshot {
			if k, ok := ch.Key.(model.RuleKey); ok && ch.Deleted() {
				c.DeleteRule(k)
			}
			switch v := ch.Value.(type) {
			case model.Global:
				c.SetGlobal(v)
			case model.Host:
				c.SetHost(v)
			case model.Tenant:
				c.SetTenant(v)
			case model.Network:
				c.SetNetwork(v)
			case model.Group:
				c.SetGroup(v)
			case model.Policy:
				c.SetPolicy(v)
			case model.PolicyRule:
				c.SetRule(v)
			case model.Endpoint:
				c.SetEndpoint(v)
			case model.IdentityRecord:
				c.SetIdentity(v)
			}
		}
		out[model.HostName(h.Name)], _ = c.Compile(int64(rev))
	}
	return out
}
