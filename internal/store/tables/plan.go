package tables

import "github.com/contiv/netplugin/v2/internal/model"

// PlanKey is the key of the only row of Plans.
type PlanKey struct{}

// Plan holds the subnets of all tenants that share networks, for overlap checks.
type Plan struct {
	Subnets map[string]model.NetworkKey `json:"subnets"` // prefix -> whose
}

// Plans holds the plan of addresses of the tenants that share networks.
var Plans = declare(TableSpec[PlanKey, Plan]{
	Noun: "plan of shared networks", Version: 1, Unlisted: true,
	Path:  "state/alloc/plan/all",
	Parse: func([]string) (PlanKey, bool) { return PlanKey{}, true },
	KeyOf: func(Plan) PlanKey { return PlanKey{} },
	Show:  func(PlanKey) string { return "all" },
	Scope: func(PlanKey) string { return AllocPrefix + "plan/" },
	Name:  func(PlanKey) string { return "all" },
})
