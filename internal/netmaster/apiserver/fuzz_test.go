package apiserver

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzAgents: whatever somebody tells as an agent, it is taken as something valid or
// refused as invalid.
func FuzzAgents(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"host":"h1","installation":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","control":"10.0.0.1","vtep":"10.0.0.1","vxlanPort":4789,"listening":["10.0.0.1:9090"]}`,
		`{"version":1,"host":"h1","installation":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","control":"10.0.0.1","vtep":"::","ipv6":"fd00::1","vxlanPort":70000}`,
		`{"TenantName":"t","NetworkName":"n","EndpointID":"e","ConfigEP":{"Host":"h","IPAddress":"10.1.1.1","MacAddress":"02:00:00:00:00:01","Labels":{"a":"b"}}}`,
		`{"TenantName":"t","NetworkName":"n","EndpointID":"e","ConfigEP":{"Pod":{"Name":"p"}}}`, `[]`, `{"host":7}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var host api.HostReport
		var status api.HostStatusReport
		var endpoint api.CreateEndpointRequest
		for _, o := range []any{&host, &status, &endpoint} {
			_ = json.Unmarshal(data, o) // what it read counts
		}
		_, err1 := HostReport(host)
		_, err2 := HostStatus(status)
		e, err3 := endpointFromAPI(endpoint)
		for _, err := range []error{err1, err2, err3} {
			if err != nil && !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%q: %v is not a refusal", data, err)
			}
		}
		if err3 != nil {
			return
		}
		if again, err := endpointFromAPI(endpointToRequest(e).CreateEndpointRequest); err != nil || again.Key != e.Key || again.IPv4 != e.IPv4 {
			t.Errorf("%q: %+v is %+v when sent back, %v", data, e, again, err)
		}
	})
}
