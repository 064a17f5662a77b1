package api

// ExtContractsGroup names contracts of an ACI fabric that groups provide or
// consume.
type ExtContractsGroup struct {
	Key                string                    `json:"key,omitempty"`
	Contracts          []string                  `json:"contracts,omitempty"` // such as "uni/tn-common/brc-web"
	ContractsGroupName string                    `json:"contractsGroupName,omitempty"`
	ContractsType      string                    `json:"contractsType,omitempty"` // provided, consumed
	TenantName         string                    `json:"tenantName,omitempty"`
	LinkSets           ExtContractsGroupLinkSets `json:"link-sets"`
}

// ExtContractsGroupLinkSets are the endpoint groups that name a contracts group.
type ExtContractsGroupLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
}

// ObjectKey returns "tenant:contracts group".
func (o ExtContractsGroup) ObjectKey() string { return o.TenantName + ":" + o.ContractsGroupName }

// ExtContractsGroups is the collection of groups of external contracts; they
// have no operational state.
func (c *Client) ExtContractsGroups() Resource[ExtContractsGroup, struct{}] {
	return Resource[ExtContractsGroup, struct{}]{c, "extContractsGroups"}
}
