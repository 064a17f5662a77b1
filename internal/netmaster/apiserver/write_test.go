package apiserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

func TestLikelyMistakesAreWarnedOf(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	for object, want := range map[string]string{
		`{"kind":"serviceLB","tenantName":"blue","serviceName":"s","networkName":"n","selectors":["app=typo"],"ports":["80:80:TCP"]}`:                                "no endpoint of network blue:n has all of its labels now",
		`{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"x","direction":"in","action":"deny","fromIpAddress":"10.1.2.3/8"}`:                            "the rule's address 10.1.2.3/8 means 10.0.0.0/8",
		`{"kind":"rule","tenantName":"blue","policyName":"p","ruleId":"y","direction":"in","action":"deny","fromIpAddress":"10.0.0.0/8","protocol":"tcp","port":80}`: "",
	} {
		answer, err := f.Apply(t.Context(), api.ApplyRequest{Objects: []json.RawMessage{json.RawMessage(object)}})
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		if said := strings.Join(answer.Results[0].Warnings, "\n"); !strings.Contains(said, want) || want == "" && said != "" {
			t.Errorf("%s: warnings %q, want %q", object, said, want)
		}
	}
}
