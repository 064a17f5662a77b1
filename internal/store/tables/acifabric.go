package tables

// AciFabricKey is the key of the only row of AciFabrics.
type AciFabricKey struct{}

// AciFabric is how the ACI fabric is kept. The netmaster that leads writes it.
type AciFabric struct {
	// Kept: something of this cluster may be in the fabric.
	Kept bool `json:"kept,omitempty"`
	// Told are the app profiles that a gateway of 1.x may have, which cannot be asked.
	Told     []string     `json:"told,omitempty"` // "tenant:profile"
	Via      string       `json:"via,omitempty"`  // a URL, or several with commas between
	InStep   bool         `json:"inStep,omitempty"`
	Trouble  string       `json:"trouble,omitempty"`  // why the last try failed; it is tried again
	Problems []AciProblem `json:"problems,omitempty"` // the first hundred
	More     int          `json:"more,omitempty"`     // that are not in Problems
	Since    string       `json:"since,omitempty"`    // RFC 3339, by the leader's clock: when this was first so
}

// AciProblem is a part of what the fabric should be that is not in force, and why.
type AciProblem struct {
	Object string `json:"object"` // such as "rule blue:web:1"
	Text   string `json:"text"`
}

// AciFabrics holds how the ACI fabric is kept. Hosts do not read it.
var AciFabrics = declare(TableSpec[AciFabricKey, AciFabric]{
	Noun: "ACI fabric", Version: 1, Unlisted: true,
	Path:  "state/alloc/aci/fabric",
	Parse: func([]string) (AciFabricKey, bool) { return AciFabricKey{}, true },
	KeyOf: func(AciFabric) AciFabricKey { return AciFabricKey{} },
	Show:  func(AciFabricKey) string { return "fabric" },
	Scope: func(AciFabricKey) string { return AllocPrefix + "aci/" },
	Name:  func(AciFabricKey) string { return "fabric" },
})
