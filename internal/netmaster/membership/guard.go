package membership

import (
	"context"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
)

// guard has the store's own port check the role of a client's certificate: only netmasters
// and cluster administrators are let in. Hosts learn of the cluster from netmasters. With
// plain, a client without TLS may do everything, but not change the rows that would let it in
// for longer than plain connections are.
func guard(plain bool) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := mayAsk(ctx, q, i.FullMethod, plain); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := mayAsk(s.Context(), nil, i.FullMethod, plain); err != nil {
				return err
			}
			return next(srv, s)
		}),
	}
}

// mayAll reports whether who asks may everything. Who shows no role is refused.
func mayAll(ctx context.Context, plain bool) (bool, error) {
	if plain && withoutTLS(ctx) {
		return true, nil
	}
	p, ok := peer.FromContext(ctx)
	var tls credentials.TLSInfo
	if ok {
		tls, _ = p.AuthInfo.(credentials.TLSInfo)
	}
	if len(tls.State.VerifiedChains) == 0 {
		return false, status.Error(codes.PermissionDenied, "the store answers who shows a certificate of its authority")
	}
	role, err := pki.RoleOf(tls.State.VerifiedChains[0][0])
	if err != nil {
		return false, status.Error(codes.PermissionDenied, err.Error())
	}
	return role == pki.Netmaster || role == pki.ClusterAdmin, nil
}

func withoutTLS(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return ok && p.AuthInfo == nil
}

func mayAsk(ctx context.Context, q any, method string, plain bool) error {
	all, err := mayAll(ctx, plain)
	switch {
	case err != nil:
		return err
	case !all:
		return status.Errorf(codes.PermissionDenied, "%s: a certificate of this role asks netmaster, and not the store", method)
	case withoutTLS(ctx) && changesJoinRows(q):
		return status.Errorf(codes.PermissionDenied, "%s: changes below %s need TLS, since they would outlast the time of connections without TLS", method, strings.Join(joinPrefix, " and "))
	}
	return nil
}

// joinPrefix are the prefixes of the rows that let in: tokens of people, of new members and of
// hosts, and whose certificates are good.
var joinPrefix = []string{store.Root + "access/", store.Root + "join/"}

// changesJoinRows reports whether a request changes a row below `doors`.
func changesJoinRows(q any) bool {
	switch q := q.(type) {
	case *pb.PutRequest:
		return isJoinKey(q.GetKey(), nil)
	case *pb.DeleteRangeRequest:
		return isJoinKey(q.GetKey(), q.GetRangeEnd())
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(q.GetSuccess(), q.GetFailure()), func(op *pb.RequestOp) bool {
			return changesJoinRows(op.GetRequestPut()) || changesJoinRows(op.GetRequestDeleteRange()) || changesJoinRows(op.GetRequestTxn())
		})
	}
	return false
}

// isJoinKey reports whether a key, or one of [key, end), is below `doors`. The end "\x00" is
// etcd's for all the rest.
func isJoinKey(key, end []byte) bool {
	return slices.ContainsFunc(joinPrefix, func(p string) bool {
		if len(end) == 0 {
			return strings.HasPrefix(string(key), p)
		}
		return string(key) < store.PrefixEnd(p) && (string(end) > p || string(end) == "\x00")
	})
}
