package translate

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnnotationNamesAddresses: an annotation names an address, or one for each pod of a StatefulSet.
func TestAnnotationNamesAddresses(t *testing.T) {
	for _, tc := range []struct {
		pod, index, v4, v6 string
		want4, want6       string
		problem            string
	}{
		{"web", "", "", "", "", "", ""},
		{"web", "", "10.1.1.7", "fd00::7", "10.1.1.7", "fd00::7", ""},
		{"web-1", "", " 10.1.1.7 ", "", "10.1.1.7", "", ""},
		{"web-1", "", "10.1.1.7,10.1.1.8, 10.1.1.9", "fd00::7,fd00::8", "10.1.1.8", "fd00::8", ""},
		{"web-1", "2", "10.1.1.7,10.1.1.8,10.1.1.9", "", "10.1.1.9", "", ""},
		{"web-2", "", "10.1.1.7,10.1.1.8", "", "", "", "contiv.io/ipv4]: it lists 2 addresses, and this is pod 2"},
		{"web", "", "10.1.1.7,10.1.1.8", "", "", "", "is for the pods of a StatefulSet"},
		{"web-x", "", "10.1.1.7,10.1.1.8", "", "", "", "is for the pods of a StatefulSet"},
		{"web-0", "", " ", "", "", "", "it lists 0 addresses"},
		{"web-0", "", "", "10.1.1.7", "", "", `contiv.io/ipv6]: "10.1.1.7": must be an IPv6 address`},
		{"web-0", "", "fd00::7", "", "", "", "must be an IPv4 address"},
		{"web-0", "", "ten", "fd00::7", "", "fd00::7", `"ten": must be an IPv4 address`},
		{"web-0", "", "", "fe80::1%eth0", "", "", "must be an IPv6 address"},
		{"web-0", "", "", "::ffff:10.1.1.7", "", "", "must be an IPv6 address"},
	} {
		pod := &metav1.ObjectMeta{Name: tc.pod, Labels: map[string]string{}, Annotations: map[string]string{}}
		if tc.index != "" {
			pod.Labels["apps.kubernetes.io/pod-index"] = tc.index
		}
		if tc.v4 != "" {
			pod.Annotations[AnnotationIPv4] = tc.v4
		}
		if tc.v6 != "" {
			pod.Annotations[AnnotationIPv6] = tc.v6
		}
		v4, v6, found := Addresses(pod)
		var all []string
		for _, p := range found {
			all = append(all, p.Field+": "+p.Text)
		}
		text := strings.Join(all, "; ")
		for got, want := range map[netip.Addr]string{v4: tc.want4, v6: tc.want6} {
			if want != "" && got.String() != want || want == "" && (tc.want4 == "" && v4.IsValid() || tc.want6 == "" && v6.IsValid()) {
				t.Errorf("%+v: %v %v", tc, v4, v6)
			}
		}
		if (text == "") != (tc.problem == "") || !strings.Contains(text, tc.problem) {
			t.Errorf("%+v: %q", tc, text)
		}
	}
}
