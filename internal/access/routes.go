package access

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Access of a request to what it is about.
type does int

const (
	reads   does = iota
	changes      // and is recorded
	tells        // an agent or a netmaster says what it observes, often: recorded if refused
)

// rule is what the table says of a route.
type rule struct {
	does does
	kind string // of the objects, for the record
	// roles may, beside cluster admins, who may all. Tenant admins and hosts must also
	// be those of what the request is about, as about finds out; without it they may
	// as such.
	roles []Role
	// about finds out what a request is about.
	about about
	// scoped: to who is limited to tenants (Identity.Scope) the server answers of theirs
	// alone, so that others' of the same name are in nobody's way.
	scoped bool
	// body is how large a body may be that about needs to see, in bytes; 0 = it needs
	// none.
	body int64
	// list: the answer is an array of objects of tenants, of which tenant admins are
	// shown theirs.
	list bool
	// lasts: the answer is a stream, and what lets in is looked at again while it lasts.
	lasts bool
	// open: everybody may, unknown ones too.
	open bool
}

// How large bodies may be, in bytes, as in package apiserver.
const (
	maxBody      = 1 << 20
	maxApplyBody = 16 << 20
)

// table is of all routes of the REST interface. A route that is missing is refused to
// all but cluster admins, and found by TestEveryRoute.
var table = makeTable()

// networkRule is the path of one rule of a network policy.
const networkRule = "/api/v1/networkPolicys/{key}/rules/{rule}"

// collectionsOfTenants have keys TENANT:..., and refer to objects of the same tenant
// only.
var collectionsOfTenants = map[string]string{
	"networks": "network", "endpointGroups": "endpointGroup", "policys": "policy", "networkPolicys": "networkPolicy", "rules": "rule",
	"netprofiles": "netprofile", "serviceLBs": "serviceLB", "appProfiles": "appProfile", "extContractsGroups": "extContractsGroup",
	"volumes": "volume", "volumeProfiles": "volumeProfile",
}

// collectionsOfCluster are everybody's. A tenant is one of them for who changes it: it
// says what of other tenants it reaches.
var collectionsOfCluster = map[string]string{"globals": "global", "aciGws": "aciGw", "Bgps": "Bgp", "tenants": "tenant"}

// kindsOfTenants may stand in a tenant admin's list to be applied. Endpoints may not: one
// says on which host it is, and who has it there is shown that host; hosts write them.
var kindsOfTenants = slices.Sorted(maps.Values(collectionsOfTenants))

func makeTable() map[string]rule {
	var (
		nobody   []Role
		viewers  = []Role{Viewer}
		tenants  = []Role{Viewer, TenantAdmin}
		everyone = []Role{Viewer, TenantAdmin, Netmaster, Host}
		hosts    = []Role{Host}
		docker   = []Role{Viewer, TenantAdmin, Host}
	)
	t := map[string]rule{
		"GET /healthz":      {open: true},
		"GET /readyz":       {open: true},
		"GET /version":      {roles: everyone},
		"GET /openapi.json": {roles: everyone},
		"GET /metrics":      {roles: viewers},
		"GET /info":         {roles: viewers},
		"GET /debug/ofnet":  {roles: viewers},

		"GET /api/v1/cluster/members":  {roles: viewers},
		"POST /api/v1/cluster/tokens":  {roles: nobody, does: changes, kind: "token"},
		"POST /api/v1/cluster/relieve": {roles: nobody, does: changes, kind: "store"},
		"POST /api/v1/cluster/authorities/renew": {
			roles: nobody, does: changes, kind: "authority",
		},
		"DELETE /api/v1/cluster/members/{name}": {
			roles: nobody, does: changes, kind: "member", about: aboutPath("name", false),
		},

		"GET /api/v1/status":              {roles: tenants}, // of its own, as of hosts and the monitor: Identity.Scope
		"GET /api/v1/store":               {roles: tenants}, // who logs in keeps the token by the store's id
		"POST /api/v1/store/adopt":        {roles: nobody, does: changes, kind: "store"},
		"GET /api/v1/doctor":              {roles: viewers},
		"POST /api/v1/doctor/repair":      {roles: nobody, does: changes, kind: "repair"},
		"GET /api/v1/bundle":              {roles: nobody, does: changes, kind: "bundle"}, // all that a netmaster knows: recorded too
		"GET /api/v1/hosts/{name}/bundle": {roles: nobody, does: changes, kind: "bundle", about: aboutPath("name", false)},
		"GET /api/v1/doctor/netmaster":    {roles: []Role{Viewer, Netmaster}},
		"GET /api/v1/backup":              {roles: nobody, does: changes, kind: "backup"}, // the whole store, also what lets people in: recorded too
		"GET /api/v1/hosts":               {roles: tenants},
		"GET /api/v1/hosts/{name}":        {roles: tenants},
		"GET /api/v1/monitor":             {roles: tenants, lasts: true},
		"GET /api/v1/tokens":              {roles: nobody},
		"POST /api/v1/tokens":             {roles: nobody, does: changes, kind: "token", about: aboutToken, body: maxBody},
		"DELETE /api/v1/tokens/{id}":      {roles: nobody, does: changes, kind: "token", about: aboutPath("id", false)},
		"POST /api/v1/release":            {roles: nobody, does: changes, kind: "release", about: aboutRelease, body: maxBody},
		"POST /api/v1/apply":              {roles: []Role{TenantAdmin}, does: changes, about: aboutApply, body: maxApplyBody},
		// What can cut hosts off is for cluster admins.
		"GET /api/v1/pending":               {roles: viewers},
		"POST /api/v1/pending":              {roles: nobody, does: changes, about: aboutApply, body: maxApplyBody},
		"POST /api/v1/pending/{id}/confirm": {roles: nobody, does: changes, kind: "pending", about: aboutPath("id", false)},
		"DELETE /api/v1/pending/{id}":       {roles: nobody, does: changes, kind: "pending", about: aboutPath("id", false)},

		"GET /services":         {roles: tenants, list: true},
		"GET /service/{id}":     {roles: tenants, about: aboutServiceID},
		"GET /api/v1/endpoints": {roles: []Role{Viewer, TenantAdmin, Host}, about: aboutEndpointsQuery}, // a host releases those that it has lost
		"DELETE /api/v1/hosts/{name}": {
			roles: nobody, does: changes, kind: "host", about: aboutPath("name", false),
		},
		"POST /api/v1/hosts/{name}/evict":                 {roles: nobody, does: changes, kind: "host", about: aboutPath("name", false)},
		"POST /api/v1/hosts/{name}/drain":                 {roles: nobody, does: changes, kind: "host", about: aboutPath("name", false)},
		"DELETE /api/v1/hosts/{name}/drain":               {roles: nobody, does: changes, kind: "host", about: aboutPath("name", false)},
		"POST /api/v1/hosts/{name}/addresses/{address}":   {roles: nobody, does: changes, kind: "host", about: aboutHostAddress},
		"DELETE /api/v1/hosts/{name}/addresses/{address}": {roles: nobody, does: changes, kind: "host", about: aboutHostAddress},
		"GET /api/v1/clusterServices":                     {roles: viewers},
		"GET /api/v1/clusterServices/{namespace}/{name}":  {roles: viewers},
		"GET /api/v1/serviceLBs/{key}/counts":             {roles: tenants, about: aboutPath("key", true)},
		"GET /api/v1/inspect/endpoints/{key}":             {roles: tenants, scoped: true, about: aboutEndpoint},
		"POST /api/v1/endpoints/{key}/drain":              {roles: []Role{TenantAdmin}, scoped: true, does: changes, kind: "endpoint", about: aboutEndpoint},
		"DELETE /api/v1/endpoints/{key}/drain":            {roles: []Role{TenantAdmin}, scoped: true, does: changes, kind: "endpoint", about: aboutEndpoint},
		"DELETE /debug/epcleanup/tenant/{tenant}/{what}/{id}": {
			roles: nobody, does: changes, kind: "endpoint", about: aboutCleanup,
		},

		"GET " + networkRule:    {roles: tenants, kind: "rule", about: aboutNetworkRule},
		"PUT " + networkRule:    {roles: []Role{TenantAdmin}, does: changes, kind: "rule", about: aboutNetworkRule},
		"DELETE " + networkRule: {roles: []Role{TenantAdmin}, does: changes, kind: "rule", about: aboutNetworkRule},

		"POST /plugin/pod":            {roles: hosts, does: tells},
		"POST /plugin/createEndpoint": {roles: hosts, does: changes, kind: "endpoint", about: aboutCreateEndpoint, body: maxBody},
		"POST /plugin/deleteEndpoint": {roles: hosts, does: changes, kind: "endpoint", about: aboutDeleteEndpoint, body: maxBody},
		"POST /plugin/updateEndpoint": {roles: hosts, does: changes, kind: "endpoint", about: aboutUpdateEndpoint, body: maxBody},
		"POST /plugin/allocAddress":   {roles: hosts, does: changes, kind: "address", about: aboutAllocAddress, body: maxBody},
		"POST /plugin/releaseAddress": {roles: hosts, does: changes, kind: "address", about: aboutReleaseAddress, body: maxBody},
		"POST /plugin/host":           {roles: hosts, does: tells, kind: "host", about: aboutHostReport, body: maxBody},
		"POST /plugin/hostStatus":     {roles: hosts, does: tells, kind: "host", about: aboutHostReport, body: maxBody},
		"POST /plugin/answer":         {roles: hosts, does: tells, kind: "host", about: aboutHostReport, body: maxBody},
		"POST /plugin/report/{id}":    {roles: hosts, does: tells, kind: "host", about: aboutHostQuery},
		"POST /plugin/monitor/{id}":   {roles: hosts, does: tells, kind: "host", about: aboutHostQuery}, // a stream, under an id that only asked agents know
		"POST /plugin/mirror":         {roles: hosts, does: tells},                                      // what the store lets every host read, and less
		"POST /plugin/hostsHeard":     {roles: []Role{Netmaster}, does: tells},
	}
	writes := []string{http.MethodPost, http.MethodPut, http.MethodDelete}
	for c, kind := range collectionsOfTenants {
		of, readers := aboutPath("key", true), tenants
		if c == "networks" || c == "endpointGroups" { // each host shows them to its Docker engine
			readers = docker
		}
		t["GET /api/v1/"+c] = rule{roles: readers, list: true}
		t["GET /api/v1/"+c+"/{key}"] = rule{roles: readers, kind: kind, about: ofNoHost(of)}
		t["GET /api/v1/inspect/"+c+"/{key}"] = rule{roles: tenants, kind: kind, about: of}
		for _, m := range writes { // the body's fields must build the path's key
			t[m+" /api/v1/"+c+"/{key}"] = rule{roles: []Role{TenantAdmin}, does: changes, kind: kind, about: of}
		}
	}
	for c, kind := range collectionsOfCluster {
		may, readers, tenant := viewers, viewers, false
		if c == "tenants" {
			may, readers, tenant = tenants, docker, true
		}
		of := aboutPath("key", tenant)
		t["GET /api/v1/"+c] = rule{roles: may, list: tenant}
		t["GET /api/v1/"+c+"/{key}"] = rule{roles: readers, kind: kind, about: ofNoHost(of)}
		t["GET /api/v1/inspect/"+c+"/{key}"] = rule{roles: may, kind: kind, about: of}
		for _, m := range writes {
			t[m+" /api/v1/"+c+"/{key}"] = rule{roles: nobody, does: changes, kind: kind, about: of}
		}
	}
	return t
}

// tenantOfKey is the tenant in TENANT:NAME, and all of a tenant's own key.
func tenantOfKey(key string) string {
	tenant, _, _ := strings.Cut(key, ":")
	return tenant
}
