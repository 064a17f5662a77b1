package apiserver

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

// Cluster tells what the service registry and the election know.
type Cluster interface {
	Info(ctx context.Context) (api.Info, error)
	// Health judges whether this netmaster can serve.
	Health(ctx context.Context) api.Health
}
