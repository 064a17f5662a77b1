package translate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAnnotationsSetLimits: annotations set limits, in Kubernetes' quantities; an invalid one is reported.
func TestAnnotationsSetLimits(t *testing.T) {
	for _, tc := range []struct {
		in, out       string
		receive, send uint64
		problem       string
	}{
		{"", "", 0, 0, ""},
		{"10M", "", 10_000_000, 0, ""},
		{"1k", "10T", 1000, 10_000_000_000_000, ""},
		{"1Mi", "1.5M", 1 << 20, 1_500_000, ""},
		{"999", "1M", 0, 1_000_000, `metadata.annotations[kubernetes.io/ingress-bandwidth]: "999": must be`},
		{"1M", "11T", 1_000_000, 0, `metadata.annotations[kubernetes.io/egress-bandwidth]: "11T": must be`},
		{"fast", "-1M", 0, 0, `"fast": must be a number of bits a second between 1k and 10T, such as 10M; metadata`},
	} {
		pod := &metav1.ObjectMeta{Annotations: map[string]string{}}
		if tc.in != "" {
			pod.Annotations["kubernetes.io/ingress-bandwidth"] = tc.in
		}
		if tc.out != "" {
			pod.Annotations["kubernetes.io/egress-bandwidth"] = tc.out
		}
		got, found := Rates(pod)
		if want := (model.Rates{Receive: model.Rate{Bits: tc.receive}, Send: model.Rate{Bits: tc.send}}); got != want {
			t.Errorf("%+v: %+v", tc, got)
		}
		var all []string
		for _, p := range found {
			all = append(all, p.String())
		}
		if text := strings.Join(all, "; "); (text == "") != (tc.problem == "") || !strings.Contains(text, tc.problem) {
			t.Errorf("%+v: %q", tc, text)
		}
	}
	pod := &metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/ingress-bandwidth": ""}}
	if _, found := Rates(pod); len(found) != 1 {
		t.Errorf("an empty annotation: %v", found)
	}
}
