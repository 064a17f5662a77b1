package apiserver

import (
	"strings"
	"testing"
)

func TestVolumesAreNeverThere(t *testing.T) {
	f := serve(t, 0)
	for collection, body := range map[string]string{
		"volumes":        `{"tenantName":"default","volumeName":"v","size":"1GB"}`,
		"volumeProfiles": `{"tenantName":"default","volumeProfileName":"v"}`,
	} {
		path := "/api/v1/" + collection
		if code, got := f.do("GET", path+"/", ""); code != 200 || strings.TrimSpace(got) != "[]" {
			t.Errorf("%s: %d %s, want an empty list", path, code, got)
		}
		for _, absent := range []string{"GET " + path, "DELETE " + path, "GET /api/v1/inspect/" + collection} {
			method, at, _ := strings.Cut(absent, " ")
			if code, got := f.do(method, at+"/default:v/", ""); code != 404 || !strings.Contains(got, `"default:v" does not exist`) {
				t.Errorf("%s: %d %s, want that it does not exist", absent, code, got)
			}
		}
		for _, method := range []string{"POST", "PUT"} {
			if code, got := f.do(method, path+"/default:v/", body); code != 400 || !strings.Contains(got, "Contiv makes no storage") {
				t.Errorf("%s %s: %d %s, want a refusal", method, path, code, got)
			}
		}
	}
	code, got := f.do("POST", "/api/v1/apply", `{"objects":[{"kind":"tenant","tenantName":"blue"},{"kind":"volume","tenantName":"blue","volumeName":"v"}]}`)
	if code != 400 || !strings.Contains(got, "Contiv makes no storage") {
		t.Errorf("apply: %d %s, want a refusal", code, got)
	}
	if code, _ := f.do("GET", "/api/v1/tenants/blue", ""); code != 404 {
		t.Errorf("a list with a volume is applied in part: %d", code)
	}
}
