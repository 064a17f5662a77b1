package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzKubeconfig: a file of 1.x is distinguished from a kubeconfig, and is accepted or
// refused as invalid. Its ranges, and the subnets of --pod-cidr, are networks that are the
// same after they are written and read again.
func FuzzKubeconfig(f *testing.F) {
	for _, s := range []string{
		`{"K8S_API_SERVER":"https://10.0.0.1:6443","K8S_TOKEN":"t","SVC_SUBNET":"10.254.0.0/16"}`,
		`{"K8S_API_SERVER":"x","SVC_SUBNET":"10.254.0.1/16,fd00::/108"}`, `{"K8S_API_SERVER":7}`, `{"K8S_API_SERVER":"x","other":1}`,
		`{"k8s_api_server":"x"}`, "apiVersion: v1\nkind: Config\n", `null`, ``,
	} {
		f.Add([]byte(s), "10.244.0.0/16,fd00:10:244::/64")
		f.Add([]byte(s), "none")
	}
	file := filepath.Join(f.TempDir(), "contiv.json")
	f.Fuzz(func(t *testing.T, data []byte, cidr string) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readContivJSON(file)
		if err != nil && !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%q: %v is not a refusal", data, err)
		}
		if c != nil && err == nil {
			ranges, err := c.ranges()
			if err != nil && !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%q: %v is not a refusal", data, err)
			}
			again, err2 := (&contivJSON{Services: joined(ranges)}).ranges()
			if err2 != nil || !slices.Equal(again, ranges) {
				t.Errorf("%q has %v, again %v, %v", data, ranges, again, err2)
			}
			if err == nil && c.Services != "" && len(ranges) == 0 {
				t.Errorf("%q has no range", data)
			}
		}
		subnets, none, err := parsePodSubnets(flags.Split(cidr))
		if err != nil || none {
			if len(subnets) > 0 {
				t.Errorf("%q: %v beside %v, %v", cidr, subnets, none, err)
			}
			return
		}
		if again, _, err := parsePodSubnets(flags.Split(joined(subnets))); err != nil || !slices.Equal(again, subnets) || len(subnets) > 2 {
			t.Errorf("%q has %v, again %v, %v", cidr, subnets, again, err)
		}
	})
}

func joined(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}
