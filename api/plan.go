package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// PlanRequest asks what changes would do (POST /api/v1/analysis/plan). They are tried in order, but
// for neighbours that set objects, which may refer to each other in any order. Nothing is
// changed. A change that would be refused is refused.
type PlanRequest struct {
	Changes []PlanChange `json:"changes"`
}

// PlanChange is one change: one of its fields is given.
type PlanChange struct {
	Set        json.RawMessage  `json:"set,omitempty"`    // an object as in an ApplyRequest
	Delete     *ObjectName      `json:"delete,omitempty"` // an object
	SetRule    *PlanRule        `json:"setRule,omitempty"`
	DeleteRule *PlanRuleRemoval `json:"deleteRule,omitempty"`
	// Manifest is a NetworkPolicy, ClusterNetworkPolicy, Service or Namespace as 'kubectl apply' takes it.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// PlanRule adds a rule to a network policy, or replaces it.
type PlanRule struct {
	Policy string          `json:"policy"` // tenant:policy
	RuleID string          `json:"ruleId"`
	Rule   json.RawMessage `json:"rule"` // a NetworkPolicyRule
}

// PlanRuleRemoval deletes a rule of a network policy.
type PlanRuleRemoval struct {
	Policy string `json:"policy"` // tenant:policy
	RuleID string `json:"ruleId"`
}

// ApplyDeleted is what a Plan says of an object that would be deleted, beside ApplyCreated and others.
const ApplyDeleted = "deleted"

// Effects of a plan on connections.
const (
	FlowOpens  = "opens"
	FlowCloses = "closes"
)

// Plan is what changes would do. It holds for one state of the cluster.
type Plan struct {
	Revision int64            `json:"revision"` // of the store that the plan is made for
	ID       string           `json:"id"`       // equal for plans that say the same of the same changes
	Changes  bool             `json:"changes"`  // something would change
	Objects  []ApplyResult    `json:"objects"`  // as a dry run's, in the order of the request; action may be deleted
	Flows    []PlannedFlow    `json:"flows"`    // what closes comes first
	Services []PlannedService `json:"services"` // that change
	// Cuts are the established connections of flows that close, as hosts count them now.
	Cuts *PlannedCuts `json:"cuts,omitempty"`
	// Unconfirmed are the ids of changes that wait to be confirmed. They are in force before and after.
	Unconfirmed []string `json:"unconfirmed,omitempty"`
}

// PlannedCuts are established connections that a plan would cut. Each is counted on the host of its
// server, or of its client if the server is no endpoint.
type PlannedCuts struct {
	Connections uint64       `json:"connections"`
	Hosts       []PlannedCut `json:"hosts"`           // that have endpoints of flows that close, by name
	Error       string       `json:"error,omitempty"` // why no host was asked
}

// PlannedCut are the connections that are counted on one host.
type PlannedCut struct {
	Host        string `json:"host"`
	Connections uint64 `json:"connections"`
	More        bool   `json:"more,omitempty"`  // there are more connections than the host reports
	Error       string `json:"error,omitempty"` // why they are not known
}

// PlannedFlow is connections that would open or close, from each of From to each of To.
type PlannedFlow struct {
	Effect string `json:"effect"` // opens or closes
	// From and To are endpoints' keys, group:TENANT/NAME or network:TENANT/NAME for all of its
	// endpoints, or prefixes of addresses that are no endpoints'.
	From     []string        `json:"from"`
	To       []string        `json:"to"`
	Families []string        `json:"families"` // IPv4, IPv6
	Ports    []string        `json:"ports"`    // PROTOCOL, PROTOCOL/PORT, PROTOCOL/LO-HI, or all
	Before   PlannedDecision `json:"before"`
	After    PlannedDecision `json:"after"`
}

// PlannedDecision is why connections are allowed, or are not.
type PlannedDecision struct {
	Route     string     `json:"route"`               // as ReachableParts'
	Missing   string     `json:"missing,omitempty"`   // why there is no route
	Decisions []FlowRule `json:"decisions,omitempty"` // who decides, at each end that is an endpoint
}

// PlannedService is a service that changes, with how many backends take its new connections.
type PlannedService struct {
	Service string `json:"service"` // tenant:service
	Before  int    `json:"before"`
	After   int    `json:"after"`
	// Effect is created, updated or deleted.
	Effect string `json:"effect"`
	// LosesLast: it has no backend any more.
	LosesLast bool `json:"losesLast,omitempty"`
	// Changes are what is updated: addresses, ports, frontends (load balancers, node ports and
	// external addresses), backends, traffic policy, session affinity, exposure (to clients outside).
	Changes []string `json:"changes,omitempty"`
	// Clients are the clients that get or lose ports of the service.
	Clients []PlannedClients `json:"clients,omitempty"`
}

// PlannedClients are clients that a change of a service admits, or cuts off.
type PlannedClients struct {
	Effect string   `json:"effect"` // opens or closes
	From   []string `json:"from"`   // as a PlannedFlow's; internet = clients outside
	At     []string `json:"at"`     // ADDRESS PROTOCOL/PORT; of clients outside with "from" and their addresses, if some only are taken
}

// Plan asks what changes would do. An error about one of several of them is an *ApplyError.
func (c *Client) Plan(ctx context.Context, req PlanRequest) (out Plan, err error) {
	err = c.Do(ctx, http.MethodPost, "/api/v1/analysis/plan", req, &out)
	if e, ok := err.(*Error); ok { //nolint:errorlint // Do returns an answer bare
		err = applyError(e)
	}
	return out, err
}

// ApplyPlanRequest asks for the changes of a plan (POST /api/v1/apply/plan). It is refused with 409
// unless the same plan would be made now.
type ApplyPlanRequest struct {
	Changes  []PlanChange `json:"changes"`
	Set      string       `json:"set,omitempty"` // as in an ApplyRequest
	Revision int64        `json:"revision"`      // the plan's
	ID       string       `json:"id"`            // the plan's
}

// ApplyPlanResponse has one result for each change, in the order of the request.
type ApplyPlanResponse struct {
	Results []ApplyResult `json:"results"`
}

const pathApplyPlan = "/api/v1/apply/plan"

// ApplyPlan makes the changes of a plan.
func (c *Client) ApplyPlan(ctx context.Context, req ApplyPlanRequest) (out ApplyPlanResponse, err error) {
	err = c.Do(ctx, http.MethodPost, pathApplyPlan, req, &out)
	if e, ok := err.(*Error); ok { //nolint:errorlint // Do returns an answer bare
		err = applyError(e)
	}
	return out, err
}
