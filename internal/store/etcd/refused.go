package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// refused returns the remedy for an etcd that answers and refuses a request; nil = it is
// another error.
func (c *Client) refused(err error) error {
	switch {
	case errors.As(err, new(store.SplitError)):
		return model.Errorf(model.ErrUnavailable, "%w", err)
	case is(err, rpctypes.ErrNoSpace) && len(c.etcd.Endpoints()) == 0:
		return model.Errorf(model.ErrUnavailable, "the store is full and takes no writes: %s", model.AlarmRemedy(model.AlarmEmbeddedFull))
	case is(err, rpctypes.ErrNoSpace):
		return model.Errorf(model.ErrUnavailable, "etcd at %s is full and takes no writes: %s", c.endpoints, model.AlarmRemedy(model.AlarmFull))
	case is(err, rpctypes.ErrCorrupt):
		return model.Errorf(model.ErrUnavailable, "etcd at %s takes no writes, since the data of its members differ: %s", c.endpoints, model.AlarmRemedy(model.AlarmCorrupt))
	case isDenied(err) && c.agent:
		return model.Errorf(model.ErrUnavailable, "etcd at %s refuses this client (%w): allow the client's certificate to read keys from %s to %s (etcdctl role grant-permission ROLE read %s %s)",
			c.endpoints, err, store.AgentsBegin, store.AgentsEnd, store.AgentsBegin, store.AgentsEnd)
	case isDenied(err):
		return model.Errorf(model.ErrUnavailable, "etcd at %s refuses this client (%w): allow the client's certificate to read and write keys that begin with %s (etcdctl role grant-permission ROLE readwrite %s %s)",
			c.endpoints, err, store.Root, store.Root, store.PrefixEnd(store.Root))
	}
	return nil
}

// isDenied reports whether etcd's access control has refused something.
func isDenied(err error) bool {
	return is(err, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthFailed)
}

func is(err error, kinds ...error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
