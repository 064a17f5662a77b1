package apiserver

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

// roleLeader is the role of the netmaster that leads.
const roleLeader = "leader"

// Cluster tells what the service registry and the election know.
type Cluster interface {
	Info(ctx context.Context) (api.Info, error)
	// Masters tells the registered netmasters with their roles.
	Masters(ctx context.Context) ([]api.Master, error)
	// Stores asks the store's servers.
	Stores(ctx context.Context) []api.StoreServer
	// Health judges whether this netmaster can serve.
	Health(ctx context.Context) api.Health
}
