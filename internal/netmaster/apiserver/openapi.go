package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// exchange says what a route beside the collections takes and gives.
type exchange struct {
	summary string
	in, out any // zero wire values; in nil = no body, out a string = text
}

// exchanges describe the routes beside the collections.
var exchanges = map[string]exchange{
	"POST /api/v1/apply":                                  {"Apply a list of objects, all or none; each has its kind beside its fields", api.ApplyRequest{}, api.ApplyResponse{}},
	"GET " + networkRulePath:                              {"One rule of a network policy", nil, api.NetworkPolicyRule{}},
	"PUT " + networkRulePath:                              {"Add a rule to a network policy, or replace it, and answer with it as stored; the other rules stay. The body may leave ruleId out", api.NetworkPolicyRule{}, api.NetworkPolicyRule{}},
	"DELETE " + networkRulePath:                           {"Delete one rule of a network policy; the last one of a policy whose defaultIn and defaultOut neither allow nor deny is refused. The answer is the key", nil, ""},
	"GET /api/v1/doctor":                                  {"The cluster's problems: allocations without an owner, hosts, data planes, certificates, disks, versions", nil, api.Diagnosis{}},
	"POST /api/v1/doctor/repair":                          {"Free allocations without an owner, allocate what owners lack, and check again", repairRequest{}, api.Diagnosis{}},
	"GET /api/v1/doctor/netmaster":                        {"This netmaster's report: certificates, disks", nil, api.Machine{}},
	"GET /api/v1/bundle":                                  {"A support bundle of this netmaster, without secrets: a tar archive whose last file is manifest.json", nil, text("")},
	"GET /api/v1/hosts/{name}/bundle":                     {"A support bundle of a host's netplugin", nil, text("")},
	"POST /plugin/report/{id}":                            {"A host's report to the netmaster that requested it under that id", text(""), text("")},
	"GET /api/v1/pending":                                 {"Unconfirmed changes, oldest first", nil, []api.PendingChange{}},
	"POST /api/v1/pending":                                {"Apply a list of objects and roll it back unless it is confirmed in time; 409 while another change of them waits", api.PendingRequest{}, api.PendingChange{}},
	"POST /api/v1/pending/{id}/confirm":                   {"Confirm a change; 409 if its time has ended", confirmRequest{}, api.PendingResponse{}},
	"DELETE /api/v1/pending/{id}":                         {"Roll back an unconfirmed change", nil, api.PendingResponse{}},
	"GET /api/v1/store":                                   {"Which store the cluster has: its identity, epoch and last revision", nil, api.StoreInfo{}},
	"POST /api/v1/store/adopt":                            {"Have hosts that keep the desired state of another store, or of a later state of this one, adopt this one; if hosts know a later state of it, its tokens are revoked unless ?keepTokens=true", adoptRequest{}, api.StoreInfo{}},
	"GET /api/v1/tokens":                                  {"Access tokens, without their secrets", nil, []api.Token{}},
	"POST /api/v1/tokens":                                 {"Make a token; only this response has its secret", api.TokenRequest{}, api.NewToken{}},
	"DELETE /api/v1/tokens/{id}":                          {"Revoke a token; it is refused from then on", nil, ""},
	"POST /api/v1/release":                                {"Release an object of Kubernetes (owner kubernetes) to users", api.OwnershipRelease{}, api.OwnershipRelease{}},
	"GET /api/v1/cluster/members":                         {"The members of the embedded store, their state, and what endangers the cluster", nil, api.Members{}},
	"POST /api/v1/cluster/tokens":                         {"Make a join token for one more netmaster, or for the netplugin of the named host; it is valid once", api.JoinTokenRequest{}, api.JoinToken{}},
	"DELETE /api/v1/cluster/members/{name}":               {"Remove a member, by name, id or address; ?force=true is needed if too few of the others answer. The response lists the members that are left", nil, api.Members{}},
	"POST /api/v1/cluster/authorities/renew":              {"Make new authorities for members, hosts and users, beside the former ones", renewRequest{}, api.Members{}},
	"POST /api/v1/cluster/relieve":                        {"Have each member give unused space back, and a full store take writes again", defragmentRequest{}, api.Members{}},
	"GET /api/v1/backup":                                  {"A backup of the whole store, in the format of etcdutl", nil, text("")},
	"GET /api/v1/inspect/endpoints/{key}":                 {"Find an endpoint by its key (tenant:network:id), its id, its container's id or its exact name", nil, endpointInspection{}},
	"GET /api/v1/status":                                  {"Netmasters, store, hosts, capacity, and what is wrong", nil, api.ClusterStatus{}},
	"GET /api/v1/clusterServices":                         {"Services of Kubernetes, read-only", nil, []api.ClusterService{}},
	"GET /api/v1/clusterServices/{namespace}/{name}":      {"One service of Kubernetes, with its backends", nil, api.ClusterService{}},
	"GET /api/v1/hosts":                                   {"All hosts, as their agents report them", nil, []api.Host{}},
	"GET /api/v1/hosts/{name}":                            {"One host", nil, api.Host{}},
	"DELETE /api/v1/hosts/{name}":                         {"Remove a host that is away and has no endpoints; with ?force=true its endpoints are released", nil, api.HostRemoval{}},
	"POST /api/v1/hosts/{name}/evict":                     {"Release the endpoints of a host that is away, with ?force=true if it has some; the host stays known", drainRequest{}, api.HostRemoval{}},
	"POST /api/v1/hosts/{name}/drain":                     {"Services send the providers on a host no new connections, including providers that start later, until this is undone; established connections go on", drainRequest{}, api.Host{}},
	"DELETE /api/v1/hosts/{name}/drain":                   {"Services send the providers on a host new connections again", nil, api.Host{}},
	"POST /api/v1/hosts/{name}/addresses/{address}":       {"Add an address to a host's accepted addresses", drainRequest{}, api.Host{}},
	"DELETE /api/v1/hosts/{name}/addresses/{address}":     {"Remove an address from a host's accepted addresses; the host's next report is refused if it still has it", nil, api.Host{}},
	"GET /api/v1/analysis/assertions":                     {"Which assertions hold, and for each other one a flow that breaks it, with the rules that decide", nil, []api.AssertionVerdict{}},
	"GET /api/v1/analysis/endpoints/{key}":                {"What applies to an endpoint: group, labels, policies in deciding order, services, and what is not in force as it was written. The key is as in an inspection", nil, api.Explanation{}},
	"POST /api/v1/apply/plan":                             {"Make the changes of a plan, in its order; 409 if the plan would be another one now", api.ApplyPlanRequest{}, api.ApplyPlanResponse{}},
	"POST /api/v1/analysis/plan":                          {"Which connections changes would open and close, and which backends services would have; nothing is changed, and what would be refused is refused", api.PlanRequest{}, api.Plan{}},
	"GET /api/v1/analysis/reachability":                   {"Which connections one side (?from=) may open to another (?to=), by which rules; ?port= and ?tenant= narrow both down", nil, api.Reachability{}},
	"GET /api/v1/analysis/verification":                   {"Have all hosts compare their state with the store, and their data planes with it; a data plane that differs is repaired", nil, api.Verification{}},
	"POST /api/v1/analysis/trace":                         {"Have a host send one packet from an endpoint, and show what each host on its way decided about it, beside what is expected", api.TraceRequest{}, api.Trace{}},
	"GET /api/v1/analysis/exposure":                       {"What clients outside, and endpoints of other tenants, may open connections to, by which ways in and which rules; ?to=, ?port= and ?tenant= narrow it down", nil, api.Exposure{}},
	"GET /api/v1/endpoints":                               {"All endpoints, or the ones that ?tenant=, ?host=, ?network= and ?group= select (NAME or TENANT:NAME)", nil, []api.EndpointOper{}},
	"POST /api/v1/endpoints/{key}/drain":                  {"Services send an endpoint no new connections, until its container ends; established connections go on. The key is as in an inspection", drainRequest{}, api.EndpointOper{}},
	"DELETE /api/v1/endpoints/{key}/drain":                {"Services send an endpoint new connections again", nil, api.EndpointOper{}},
	"POST /plugin/network":                                {"The network for an endpoint of a group", api.EndpointPlacement{}, api.EndpointPlacement{}},
	"POST /plugin/pod":                                    {"The tenant, network and group of a pod of Kubernetes, or the tenant of a further interface of it", api.PodPlacementRequest{}, api.PodPlacement{}},
	"POST /plugin/createEndpoint":                         {"Create an endpoint; repeating it is harmless", api.CreateEndpointRequest{}, api.CreateEndpointResponse{}},
	"POST /plugin/deleteEndpoint":                         {"Delete an endpoint", api.DeleteEndpointRequest{}, api.DeleteEndpointResponse{}},
	"POST /plugin/updateEndpoint":                         {"Report a runtime's data of an endpoint's container; its labels decide which services it provides", api.UpdateEndpointRequest{}, api.UpdateEndpointResponse{}},
	"POST /plugin/allocAddress":                           {"Reserve an address before its endpoint exists", api.AllocAddressRequest{}, api.AllocAddressResponse{}},
	"POST /plugin/host":                                   {"An agent's heartbeat: its lease on the host's name, the host's record, its registration; sent every few seconds", api.HostReport{}, api.HostReportResponse{}},
	"POST /plugin/hostStatus":                             {"An agent's status report", api.HostStatusReport{}, ""},
	"POST /plugin/answer":                                 {"The load balancer addresses for which an agent's host could answer ARP and neighbour discovery, reported twice a second while there are any; the response lists the ones for which it should", api.L2AnnouncerReport{}, api.L2AnnouncerResponse{}},
	"POST /plugin/hostsHeard":                             {"Between netmasters: the agents that report to one", api.HostHeartbeats{}, ""},
	"POST /plugin/releaseAddress":                         {"Release a reserved address", api.ReleaseAddressRequest{}, ""},
	"DELETE /debug/epcleanup/tenant/{tenant}/{what}/{id}": {"Delete the endpoints of a network (net) or a group (group), or one endpoint (ep), whose containers are gone for good", nil, cleanupAnswer{}},
	"GET /debug/ofnet":                                    {"Desired and actual state of all hosts, or of the one that ?host= names, as text", nil, text("")},
	"GET /api/v1/monitor":                                 {"Packets that are dropped, and connections that begin (unless ?drops=true), a JSON object a line as they happen; ?from= and ?to= name groups, ?host= a host", nil, api.FlowEvent{}},
	"GET /api/v1/serviceLBs/{key}/counts":                 {"Connections of containers to a service, by provider, of all hosts that count them", nil, api.ServiceCounts{}},
	"POST /plugin/monitor/{id}":                           {"An agent's events for a monitor, a JSON object a line", api.FlowEvent{}, text("")},
	"POST /plugin/mirror":                                 {"An agent mirrors the cluster's state from this netmaster: a stream both ways, a JSON object a line", api.MirrorRequest{}, api.MirrorMessage{}},
	"GET /version":                                        {"The server's build", nil, api.Version{}},
	"GET /info":                                           {"The server's role and the nodes that the registry knows", nil, api.Info{}},
	"GET /services":                                       {"All load-balanced services with their providers", nil, []api.ServiceInfo{}},
	"GET /service/{id}":                                   {"One load-balanced service by its id, service:tenant, in a list of one", nil, []api.ServiceInfo{}},
	"GET /healthz":                                        {"Whether the process is alive", nil, ""},
	"GET /readyz":                                         {"Whether this netmaster can serve: 200 or 503, with its conditions as text, or as JSON with Accept or ?format=json", nil, api.Health{}},
	"GET /metrics":                                        {"Metrics in Prometheus' text format", nil, text("")},
	"GET /openapi.json":                                   {"This description", nil, map[string]any{}},
}

type endpointInspection struct {
	Oper api.EndpointOper `json:"Oper"`
}

// openAPI describes the routes by OpenAPI 3.1, from the wire types.
func openAPI(routes []*route) ([]byte, error) {
	schemas := make(schemas)
	paths := make(map[string]any)
	for _, r := range routes {
		item, ok := paths[r.path].(map[string]any)
		if !ok {
			item = make(map[string]any)
			paths[r.path] = item
		}
		op, err := schemas.operation(r)
		if err != nil {
			return nil, err
		}
		item[strings.ToLower(r.method)] = op
	}
	doc := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title":   "Contiv netmaster",
			"version": "v1",
			"license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Networks, groups, policies and load-balanced services of containers. Every path is also served with a slash at its end. " +
				"A key is the parts of an object's name joined with \":\"; the key in the path must equal the one that the body's fields build. " +
				"Links are the server's: what a client sends in them is ignored. A refusal is one sentence of text that names field, value and what is allowed.",
		},
		"servers":  []any{map[string]any{"url": "http://localhost:" + api.DefaultPort}},
		"paths":    paths,
		"security": []any{map[string]any{}, map[string]any{"token": []any{}}, map[string]any{"certificate": []any{}}},
		"components": map[string]any{"schemas": schemas, "responses": map[string]any{"Refusal": refused}, "securitySchemes": map[string]any{
			"token":       map[string]any{"type": "http", "scheme": "bearer", "description": "A token of 'netctl token create', of netmaster's --token-file or of the OpenID Connect issuer"},
			"certificate": map[string]any{"type": "mutualTLS", "description": "A certificate of the cluster's authority. Clusters without --secure need neither"},
		}},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the description of the API: %w", err)
	}
	return append(b, '\n'), nil
}

var refused = map[string]any{
	"description": "One sentence: 400 invalid, 401 no valid credentials, 403 the client's role does not allow it, a page of another origin or a name of another host, 404 unknown, 412 not of the revision in If-Match, 409 conflict, in use, exhausted or immutable, 413 too large, 415 not JSON, 429 too many requests from this address, 503 store unavailable. " +
		"Text, or for clients that name application/json in Accept an object with the kind of refusal",
	"content": map[string]any{
		"text/plain": map[string]any{"schema": map[string]any{"type": "string"}},
		"application/json": map[string]any{"schema": map[string]any{
			"type": "object", "required": []string{"kind", "message"},
			"properties": map[string]any{
				"kind": map[string]any{"type": "string", "enum": []string{
					api.KindInvalid, api.KindNotFound, api.KindExists, api.KindConflict, api.KindInUse, api.KindExhausted, api.KindUnavailable,
					api.KindNoRoute, api.KindMethod, api.KindTooLarge, api.KindMediaType, api.KindForbidden, api.KindUnauthorized, api.KindTooMany, api.KindInternal,
				}},
				"message": map[string]any{"type": "string"},
			},
		}},
	},
}

// noEffectText says, in sentences to be appended to a field's text, which of its values
// have no effect; for the name "", the same of the whole kind.
func noEffectText(kind, name string) string {
	var b strings.Builder
	for _, n := range model.NoEffects(kind) {
		if n.Field == name {
			b.WriteString("; " + n.Text)
		}
	}
	return b.String()
}

// schemas are the components, by name of the wire type.
type schemas map[string]any

func (s schemas) operation(r *route) (map[string]any, error) {
	if r.kind != nil {
		return s.kindOperation(r), nil
	}
	x, ok := exchanges[r.method+" "+r.path]
	if !ok {
		x, ok = unsupportedExchange(r)
	}
	if !ok {
		return nil, fmt.Errorf("describe %s %s: it has no entry", r.method, r.path)
	}
	op := operation(r, x.summary)
	if x.in != nil {
		op["requestBody"] = body(s.of(reflect.TypeOf(x.in)))
	}
	answer := jsonContent(s.of(reflect.TypeOf(x.out)))
	if _, isText := x.out.(text); isText {
		answer = map[string]any{"text/plain": map[string]any{"schema": map[string]any{"type": "string"}}}
	}
	op["responses"] = responses(r, answer)
	return op, nil
}

// kindOperation describes one of the routes of a collection.
func (s schemas) kindOperation(r *route) map[string]any {
	k := r.kind
	object := s.of(reflect.TypeOf(k.object))
	s.constrain(reflect.TypeOf(k.object).Name(), k)
	var op map[string]any
	var answer any = object
	switch {
	case strings.HasPrefix(r.path, "/api/v1/inspect/"):
		op = operation(r, "Object and operational state of one of "+k.collection)
		properties := map[string]any{"Config": object}
		if k.oper != nil {
			properties["Oper"] = s.of(reflect.TypeOf(k.oper))
		}
		answer = map[string]any{"type": "object", "properties": properties}
	case r.method == http.MethodGet && !strings.Contains(r.path, "{"):
		op = operation(r, "All "+k.collection)
		answer = map[string]any{"type": "array", "items": object}
	case r.method == http.MethodGet:
		op = operation(r, "One of "+k.collection)
	case r.method == http.MethodDelete:
		op = operation(r, "Delete one of "+k.collection+"; refused if another object refers to it")
		answer = map[string]any{"type": "string", "description": "the key"}
	default:
		op = operation(r, "Create or update one of "+k.collection+", and answer with it as stored")
		op["requestBody"] = body(object)
	}
	op["tags"] = []string{k.collection}
	op["responses"] = responses(r, jsonContent(answer))
	return op
}

// queries are the query parameters of routes that have some; others are refused.
var queries = map[string][]string{
	"GET /debug/ofnet":                      {"host"},
	"GET /readyz":                           {"format"},
	"GET /api/v1/analysis/reachability":     {"from", "to", "port", "tenant"},
	"GET /api/v1/analysis/exposure":         {"to", "port", "tenant"},
	"GET /api/v1/monitor":                   {"drops", "from", "to", "host"},
	"GET /api/v1/endpoints":                 {"tenant", "host", "network", "group"},
	"DELETE /api/v1/hosts/{name}":           {"force"},
	"POST /api/v1/hosts/{name}/evict":       {"force"},
	"DELETE /api/v1/cluster/members/{name}": {"force"},
	"POST /plugin/monitor/{id}":             {"host"},
	"POST /plugin/report/{id}":              {"host"},
}

// checkQuery refuses query parameters that would have no effect; pattern is the mux's.
func checkQuery(pattern string, r *http.Request) error {
	return strictjson.CheckQuery(r.URL.RawQuery, queries[strings.TrimSuffix(pattern, "/{$}")]...)
}

func operation(r *route, summary string) map[string]any {
	op := map[string]any{"summary": summary, "operationId": operationID(r)}
	var params []any
	for part := range strings.SplitSeq(r.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, map[string]any{
				"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": map[string]any{"type": "string"},
			})
		}
	}
	for _, name := range queries[r.method+" "+r.path] {
		params = append(params, map[string]any{"name": name, "in": "query", "schema": map[string]any{"type": "string"}})
	}
	if takesIfMatch(r.method, r.path) {
		params = append(params, map[string]any{
			"name": "If-Match", "in": "header", "schema": map[string]any{"type": "string"},
			"description": "The ETag of an answer to GET: the write is made only while the object is of that revision, else the answer is 412",
		})
	}
	if r.verb == verbChange && r.path != "/api/v1/analysis/plan" && r.kind != nil {
		params = append(params, map[string]any{
			"name": api.OverrideHeader, "in": "header", "schema": map[string]any{"type": "string"},
			"description": "Why the change may break assertions: for cluster administrators, and audited",
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	return op
}

// operationID makes "getApiV1NetworksKey" of GET /api/v1/networks/{key}.
func operationID(r *route) string {
	var id strings.Builder
	id.WriteString(strings.ToLower(r.method))
	for _, part := range strings.FieldsFunc(r.path, func(c rune) bool { return strings.ContainsRune("/{}.", c) }) {
		id.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return id.String()
}

func jsonContent(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func body(schema any) map[string]any {
	return map[string]any{"required": true, "content": jsonContent(schema)}
}

// revision, entityTag and warning are the headers that writes' answers carry.
var (
	revision = map[string]any{
		"description": "Store revision of the write's commit (of the last one, when there was nothing to change). A view of the cluster that has reached it contains the write",
		"schema":      map[string]any{"type": "integer"},
	}
	entityTag = map[string]any{
		"description": "Identifies the object's last change, for If-Match; for a network policy, also the last change of its rules",
		"schema":      map[string]any{"type": "string"},
	}
	warning = map[string]any{
		"description": "299 - \"sentence\": something that the object sets has no effect in this version; one header for each. In results of apply they are the field warnings",
		"schema":      map[string]any{"type": "string"},
	}
)

func responses(r *route, content map[string]any) map[string]any {
	done := map[string]any{"description": "Done", "content": content}
	headers := map[string]any{}
	if r.method != http.MethodGet && r.path != "/plugin/monitor/{id}" && r.path != "/plugin/mirror" {
		headers[revisionHeader] = revision
		if r.method != http.MethodDelete && takesIfMatch(r.method, r.path) {
			headers["Warning"] = warning
		}
	}
	if r.method != http.MethodDelete && takesIfMatch(http.MethodPut, r.path) {
		headers["ETag"] = entityTag
	}
	if len(headers) > 0 {
		done["headers"] = headers
	}
	return map[string]any{
		"200":     done,
		"default": map[string]any{"$ref": "#/components/responses/Refusal"},
	}
}

// of returns the schema of a wire type; structs become components.
func (s schemas) of(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[json.RawMessage]() {
		return map[string]any{"type": "object"}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.ofStruct(t)
	default:
		return map[string]any{}
	}
}

func (s schemas) ofStruct(t reflect.Type) map[string]any {
	ref := map[string]any{"$ref": "#/components/schemas/" + t.Name()}
	if _, done := s[t.Name()]; done {
		return ref
	}
	properties := make(map[string]any)
	s[t.Name()] = map[string]any{"type": "object", "properties": properties}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		schema := s.of(f.Type)
		if name == "link-sets" || name == "links" || name == "key" && strings.Contains(f.Tag.Get("json"), "omitempty") {
			schema = map[string]any{"readOnly": true, "allOf": []any{schema}}
		}
		properties[name] = schema
	}
	return ref
}

// constrain writes what a kind's fields may hold into its schema.
func (s schemas) constrain(typeName string, k *kind) {
	component, ok := s[typeName].(map[string]any)
	if !ok || component["required"] != nil {
		return
	}
	properties := component["properties"].(map[string]any) //nolint:forcetypeassert // ofStruct makes it
	required := []string{}
	for _, name := range sortedKeys(k.fields) {
		f := k.fields[name]
		p, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		p["description"] = f.Text() + noEffectText(k.collection, name)
		if f.Enum != nil {
			p["enum"] = f.Enum
		}
		if f.Min != f.Max {
			p["minimum"], p["maximum"] = f.Min, f.Max
		}
		if f.Required {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	component["required"] = required
	if text := noEffectText(k.collection, ""); text != "" {
		component["description"] = strings.TrimPrefix(text, "; ")
	}
}
