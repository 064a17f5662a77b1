package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRecordedAnswersKeepTheirBytes: every recorded 1.x answer of our kinds, decoded and encoded
// again, comes out with the same bytes: names, order and omissions.
func TestRecordedAnswersKeepTheirBytes(t *testing.T) {
	f, err := os.Open("../test/compat/testdata/rest-trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	checked := make(map[string]int)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x struct {
			N        int             `json:"n"`
			Method   string          `json:"method"`
			Path     string          `json:"path"`
			Status   int             `json:"status"`
			Response json.RawMessage `json:"response"`
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if x.Status != 200 || len(x.Response) == 0 || x.Response[0] == '"' {
			continue
		}
		kind := strings.TrimPrefix(x.Path, "/api/v1/")
		inspect := strings.HasPrefix(kind, "inspect/")
		kind, key, _ := strings.Cut(strings.TrimPrefix(kind, "inspect/"), "/")
		shape := kind
		switch {
		case inspect:
			shape += " inspect"
		case strings.HasPrefix(x.Path, "/service/"):
			shape = "/service/{id}"
		case !strings.HasPrefix(x.Path, "/api/"):
			shape = x.Path
		case key == "":
			shape += " list"
		}
		v := value(shape)
		// What is of no kind (debugging) is left out.
		if v == nil {
			continue
		}
		if string(x.Response) == "null" {
			continue // updateEndpoint of an unknown container; ours is a 404
		}
		if err := json.Unmarshal(x.Response, v); err != nil {
			t.Errorf("%d %s: %v", x.N, x.Path, err)
			continue
		}
		got, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, x.Response); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.String(), string(got)); d != "" {
			t.Errorf("%d %s:\n%s", x.N, x.Path, d)
		}
		checked[shape]++
	}
	for shape := range values {
		if checked[shape] == 0 {
			t.Errorf("no recorded answer of shape %q was compared", shape)
		}
	}
}

// configOnly is the inspection of a kind without operational state.
type configOnly[T any] struct {
	Config T `json:"Config"`
}

var values = map[string]func() any{
	"globals":                    func() any { return new(Global) },
	"globals list":               func() any { return new([]Global) },
	"globals inspect":            func() any { return new(Inspection[Global, GlobalOper]) },
	"tenants":                    func() any { return new(Tenant) },
	"tenants list":               func() any { return new([]Tenant) },
	"tenants inspect":            func() any { return new(Inspection[Tenant, TenantOper]) },
	"networks":                   func() any { return new(Network) },
	"networks list":              func() any { return new([]Network) },
	"networks inspect":           func() any { return new(Inspection[Network, NetworkOper]) },
	"endpointGroups":             func() any { return new(EndpointGroup) },
	"endpointGroups list":        func() any { return new([]EndpointGroup) },
	"endpointGroups inspect":     func() any { return new(Inspection[EndpointGroup, EndpointGroupOper]) },
	"policys":                    func() any { return new(Policy) },
	"policys list":               func() any { return new([]Policy) },
	"policys inspect":            func() any { return new(Inspection[Policy, PolicyOper]) },
	"rules":                      func() any { return new(Rule) },
	"rules list":                 func() any { return new([]Rule) },
	"endpoints inspect":          func() any { return new(Inspection[struct{}, EndpointOper]) },
	"/plugin/allocAddress":       func() any { return new(AllocAddressResponse) },
	"/plugin/createEndpoint":     func() any { return new(CreateEndpointResponse) },
	"/plugin/deleteEndpoint":     func() any { return new(DeleteEndpointResponse) },
	"/plugin/updateEndpoint":     func() any { return new(UpdateEndpointResponse) },
	"/version":                   func() any { return new(Version) },
	"/info":                      func() any { return new(Info) },
	"netprofiles":                func() any { return new(NetProfile) },
	"netprofiles list":           func() any { return new([]NetProfile) },
	"netprofiles inspect":        func() any { return new(configOnly[NetProfile]) },
	"serviceLBs":                 func() any { return new(ServiceLB) },
	"serviceLBs list":            func() any { return new([]ServiceLB) },
	"serviceLBs inspect":         func() any { return new(Inspection[ServiceLB, ServiceLBOper]) },
	"appProfiles":                func() any { return new(AppProfile) },
	"appProfiles list":           func() any { return new([]AppProfile) },
	"Bgps":                       func() any { return new(Bgp) },
	"Bgps list":                  func() any { return new([]Bgp) },
	"extContractsGroups":         func() any { return new(ExtContractsGroup) },
	"extContractsGroups list":    func() any { return new([]ExtContractsGroup) },
	"extContractsGroups inspect": func() any { return new(configOnly[ExtContractsGroup]) },
	"aciGws":                     func() any { return new(AciGw) },
	"aciGws list":                func() any { return new([]AciGw) },
	"aciGws inspect":             func() any { return new(Inspection[AciGw, AciGwOper]) },
	"/service/{id}":              func() any { return new([]ServiceInfo) },
	"/services":                  func() any { return new([]ServiceInfo) },
}

func value(shape string) any {
	if f := values[shape]; f != nil {
		return f()
	}
	return nil
}
