package apiserver

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// under sends a request with If-Match, if a tag is given, and returns the answer's status,
// ETag and body.
func (f *fixture) under(method, path, body, tag string) (status int, etag, text string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if tag != "" {
		req.Header.Set("If-Match", tag)
	}
	resp, err := f.http.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), string(b)
}

// TestEveryKindIsWrittenAndDeletedUnderItsTag: GET and PUT of each kind tell the same tag;
// with another one the object is neither written nor deleted.
func TestEveryKindIsWrittenAndDeletedUnderItsTag(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1")
	for _, kind := range slices.Sorted(maps.Keys(fieldCases)) {
		k := fieldCases[kind]
		body, key := k.lay(t, "{}")
		path := "/api/v1/" + kind + "/" + url.PathEscape(key) + "/"
		const stale = `"1"`
		if kind != "globals" { // which are there from the beginning
			for _, method := range []string{"PUT", "DELETE"} {
				if status, _, text := f.under(method, path, body, stale); status != http.StatusPreconditionFailed || !strings.Contains(text, "does not exist") {
					t.Errorf("%s %s that is not there: %d %s", method, path, status, text)
				}
			}
		}
		f.must("PUT", path, body)
		_, tag, _ := f.under("GET", path, "", "")
		if status, again, text := f.under("PUT", path, body, tag); status != http.StatusOK || again != tag || tag == "" {
			t.Errorf("PUT %s of what is there, under %q: %d %s, ETag %q", path, tag, status, text, again)
		}
		for _, method := range []string{"PUT", "POST", "DELETE"} {
			if status, _, text := f.under(method, path, body, stale); status != http.StatusPreconditionFailed || !strings.Contains(text, "read it and try again") {
				t.Errorf("%s %s under a tag of before: %d %s", method, path, status, text)
			}
		}
		if kind == "globals" {
			continue // in use
		}
		if status, _, text := f.under("DELETE", path, "", tag); status != http.StatusOK {
			t.Errorf("DELETE %s under its tag: %d %s", path, status, text)
		}
	}
}

// TestWriteUnderConditionNeedsItsRevision: of two clients that have read an object and
// change it, the second gets an error.
func TestWriteUnderConditionNeedsItsRevision(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const path = "/api/v1/endpointGroups/blue:x/"
	body := func(policies string) string {
		return `{"tenantName":"blue","groupName":"x","networkName":"n","policies":[` + policies + `]}`
	}
	_, first, _ := f.under("PUT", path, body(""), "")
	status, second, text := f.under("PUT", path, body(`"p"`), first)
	if status != http.StatusOK || second == first {
		t.Errorf("the first change: %d %s, ETag %q", status, text, second)
	}
	if status, _, text := f.under("PUT", path, body(""), first); status != http.StatusPreconditionFailed || !strings.Contains(text, "read it and try again") {
		t.Errorf("the second change of what was read before: %d %s", status, text)
	}
	if text := f.must("GET", path, ""); !strings.Contains(text, `"policies":["p"]`) {
		t.Errorf("the group is %s", text)
	}
	if status, _, text := f.under("PUT", path, body(""), second); status != http.StatusOK {
		t.Errorf("the change of what is there: %d %s", status, text)
	}
}

// TestTagOfNetworkPolicyCoversItsRules: a policy that was read is not replaced or deleted
// once one of its rules has changed.
func TestTagOfNetworkPolicyCoversItsRules(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const path = "/api/v1/networkPolicys/blue:np/"
	body := `{"tenantName":"blue","networkPolicyName":"np","rules":[{"ruleId":"1","direction":"in","action":"allow"}]}`
	f.must("PUT", path, body)
	for name, change := range map[string]func(){
		"a rule is added":   func() { f.must("PUT", path+"rules/2/", `{"direction":"in","action":"deny"}`) },
		"a rule is deleted": func() { f.must("DELETE", path+"rules/2/", "") },
		"it is replaced":    func() { f.must("PUT", path, strings.Replace(body, "allow", "deny", 1)) },
	} {
		f.must("PUT", path, body)
		f.must("PUT", path+"rules/2/", `{"direction":"in","action":"allow"}`)
		_, tag, _ := f.under("GET", path, "", "")
		change()
		for _, method := range []string{"PUT", "POST", "DELETE"} {
			if status, _, text := f.under(method, path, body, tag); status != http.StatusPreconditionFailed {
				t.Errorf("%s after %s: %d %s", method, name, status, text)
			}
		}
		_, tag, _ = f.under("GET", path, "", "")
		if status, _, text := f.under("PUT", path, body, tag); status != http.StatusOK {
			t.Errorf("PUT of what was read: %d %s", status, text)
		}
	}
}

// TestRuleIsWrittenUnderItsOwnTag: rules of one policy do not stand in each other's way.
func TestRuleIsWrittenUnderItsOwnTag(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	const path = "/api/v1/networkPolicys/blue:np/"
	f.must("PUT", path, `{"tenantName":"blue","networkPolicyName":"np","defaultIn":"deny"}`)
	rule := func(action string) string { return `{"direction":"in","action":"` + action + `"}` }
	if status, _, text := f.under("PUT", path+"rules/1", rule("allow"), `"7"`); status != http.StatusPreconditionFailed {
		t.Errorf("a rule that is not there: %d %s", status, text)
	}
	_, first, _ := f.under("PUT", path+"rules/1", rule("allow"), "")
	f.must("PUT", path+"rules/2", rule("allow"))
	if _, tag, _ := f.under("GET", path+"rules/1", "", ""); tag != first || tag == "" {
		t.Errorf("ETag %q of PUT, %q of GET", first, tag)
	}
	_, second, _ := f.under("PUT", path+"rules/1", rule("deny"), first)
	for _, method := range []string{"PUT", "DELETE"} {
		if status, _, text := f.under(method, path+"rules/1", rule("pass"), first); status != http.StatusPreconditionFailed {
			t.Errorf("%s under the tag of before: %d %s", method, status, text)
		}
	}
	if status, _, text := f.under("DELETE", path+"rules/1", "", second); status != http.StatusOK {
		t.Errorf("DELETE under its tag: %d %s", status, text)
	}
}
