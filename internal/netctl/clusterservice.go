package netctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

// clusterServices are the services of Kubernetes, which are no tenant's: they are listed
// with those of tenant default, and of all. A netmaster that is older has none,
// and a tenant administrator sees none.
func clusterServices(ctx context.Context, c *api.Client, o *getOptions) (out []item, err error) {
	if !o.all && o.tenant != "default" {
		return nil, nil
	}
	all, err := c.ClusterServices(ctx)
	if e, ok := errors.AsType[*api.Error](err); ok && (e.Status == http.StatusNotFound || e.Status == http.StatusForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		out = append(out, item{object: s, name: s.ServiceName, row: []string{s.ServiceName, s.TenantName, s.NetworkName, "", s.Owner}, otherTenant: true})
	}
	return out, nil
}

// removeService refuses what is not netctl's to delete.
func removeService(ctx context.Context, c *api.Client, key string) error {
	if _, name, _ := strings.Cut(key, ":"); strings.Contains(name, "/") {
		return fmt.Errorf("service %q belongs to Kubernetes: delete it there", name)
	}
	return c.ServiceLBs().Delete(ctx, key)
}
