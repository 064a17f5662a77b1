package join

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/contiv/netplugin/v2/internal/pki"
	"github.com/contiv/netplugin/v2/internal/store"
)

// guard has the store's own port ask the role of who shows a certificate: netmasters
// and cluster admins may all, hosts and other programs may read what agents read, and
// change nothing. Who came in plainly, where plain says that it is let in, may all.
func guard(plain bool) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := mayAsk(ctx, q, i.FullMethod, plain); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			all, err := mayAll(s.Context(), plain)
			switch {
			case err != nil:
				return err
			case all:
				return next(srv, s)
			case i.FullMethod != pb.Watch_Watch_FullMethodName:
				return notTheirs(i.FullMethod)
			}
			return next(srv, watched{s})
		}),
	}
}

// mayAll tells whether who asks may everything. Who shows no role is refused.
func mayAll(ctx context.Context, plain bool) (bool, error) {
	p, ok := peer.FromContext(ctx)
	if plain && ok && p.AuthInfo == nil {
		return true, nil
	}
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

func mayAsk(ctx context.Context, q any, method string, plain bool) error {
	all, err := mayAll(ctx, plain)
	if err != nil || all {
		return err
	}
	switch q := q.(type) {
	case *pb.RangeRequest:
		if ofAgents(q.Key, q.RangeEnd) {
			return nil
		}
	case *pb.TxnRequest: // of reads at one revision
		if len(q.Failure) == 0 && onlyReads(q) {
			return nil
		}
	case *pb.MemberListRequest, *pb.StatusRequest:
		return nil
	}
	return notTheirs(method)
}

// onlyReads tells whether a transaction compares and reads what agents read, and
// nothing else.
func onlyReads(q *pb.TxnRequest) bool {
	for _, c := range q.Compare {
		if !ofAgents(c.Key, c.RangeEnd) {
			return false
		}
	}
	for _, op := range q.Success {
		if r := op.GetRequestRange(); r == nil || !ofAgents(r.Key, r.RangeEnd) {
			return false
		}
	}
	return true
}

func ofAgents(key, end []byte) bool { return store.OfAgents(string(key), string(end)) }

func notTheirs(method string) error {
	return status.Errorf(codes.PermissionDenied, "%s: a certificate of this role only reads what agents read, in the embedded store: what a host changes goes through netmaster, and what users change through its REST interface", method)
}

// watched is a stream of watches of an agent.
type watched struct{ grpc.ServerStream }

func (w watched) RecvMsg(m any) error {
	if err := w.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if q, ok := m.(*pb.WatchRequest); ok {
		if c := q.GetCreateRequest(); c != nil && !ofAgents(c.Key, c.RangeEnd) {
			return notTheirs(pb.Watch_Watch_FullMethodName)
		}
	}
	return nil
}
