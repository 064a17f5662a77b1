package etcd

import (
	"log/slog"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// DefaultListen is where agents look for an etcd by default.
const DefaultListen = "127.0.0.1:2379"

// Inside returns a client of an etcd inside this process, which spares the network and
// a good part of the latency. It has to be closed before the server. The endpoint is
// for texts.
func Inside(server *etcdserver.EtcdServer, endpoint string, log *slog.Logger) *Client {
	kv := adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server))
	watch := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server))
	return newClient(v3client.New(server), kv, watch, endpoint+" (embedded)", Config{Logger: log})
}
