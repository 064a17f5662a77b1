package api

// AciGw holds the settings of an ACI fabric; its key is "aciGw".
type AciGw struct {
	Key                 string `json:"key,omitempty"`
	EnforcePolicies     string `json:"enforcePolicies,omitempty"`     // yes, no
	IncludeCommonTenant string `json:"includeCommonTenant,omitempty"` // yes, no
	Name                string `json:"name,omitempty"`                // always "aciGw"
	NodeBindings        string `json:"nodeBindings,omitempty"`        // "topology/pod-1/node-101", comma-separated
	PathBindings        string `json:"pathBindings,omitempty"`        // "topology/pod-1/paths-101/pathep-[eth1/14]", comma-separated
	PhysicalDomain      string `json:"physicalDomain,omitempty"`
}

// ObjectKey returns "aciGw".
func (o AciGw) ObjectKey() string { return o.Name }

// AciGwOper is the operational state of the fabric.
type AciGwOper struct {
	NumAppProfiles int `json:"numAppProfiles,omitempty"`
}

// AciGws is the collection of the one ACI gateway, "aciGw".
func (c *Client) AciGws() Resource[AciGw, AciGwOper] {
	return Resource[AciGw, AciGwOper]{c, "aciGws"}
}
