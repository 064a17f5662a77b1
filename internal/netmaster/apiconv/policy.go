package apiconv

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Policy parses a policy.
func Policy(o api.Policy) (p model.ContivPolicy, err error) {
	if err = checkOwner(o.Owner); err != nil {
		return p, err
	}
	if p.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return p, err
	}
	p.Key.Name, err = model.ParsePolicyName(o.PolicyName)
	return p, err
}
