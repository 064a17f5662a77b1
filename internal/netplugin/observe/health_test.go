package observe

import "testing"

func TestProblemKind(t *testing.T) {
	for object, want := range map[string]string{
		"global": "global", "host n1": "host", "policy set abc": "policy set", "policy 7": "policy", "port cv1": "port",
		"published ports and masquerade": "published ports", "egress": "egress", "tunnels": "other", "": "other",
		"remote 1/02:02:0a:01:01:02": "remote", "something new": "other",
	} {
		if got := problemKind(object); got != want {
			t.Errorf("kind of %q is %q, want %q", object, got, want)
		}
	}
}
