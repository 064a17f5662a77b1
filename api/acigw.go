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
	NumAppProfiles int          `json:"numAppProfiles,omitempty"`
	Via            string       `json:"via,omitempty"`      // the APICs or the gateway by which the fabric is kept; "" = it is not
	InStep         bool         `json:"inStep,omitempty"`   // the fabric had all but Problems when it was last looked at
	Trouble        string       `json:"trouble,omitempty"`  // why the last try failed; it is tried again
	Problems       []AciProblem `json:"problems,omitempty"` // the first hundred
	Since          string       `json:"since,omitempty"`    // RFC 3339: when this was first so
}

// AciProblem is a part of what the fabric should be that is not in force, and why.
type AciProblem struct {
	Object string `json:"object"`
	Text   string `json:"text"`
}

// AciGws is the collection of the one ACI gateway, "aciGw".
func (c *Client) AciGws() Resource[AciGw, AciGwOper] {
	return Resource[AciGw, AciGwOper]{c, "aciGws"}
}
