package vethpair

import (
	"encoding/json"
	"testing"
)

// FuzzDockerPools: whatever stands in Docker's configuration, what is read of it are
// networks, which are the same when they are written there and read again.
func FuzzDockerPools(f *testing.F) {
	for _, s := range []string{
		`{"bip":"172.17.0.1/16","default-address-pools":[{"base":"172.80.0.0/16","size":24},{"base":"fd00::/104","size":112}]}`,
		`{"default-address-pools":[{"base":"::ffff:10.0.0.0/104"},{"base":"10.0.0.0/33"},{}]}`, `{"bip":7}`, `{"default-address-pools":null}`, `[]`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pools, err := dockerPools(data)
		if err != nil {
			return
		}
		type base struct {
			Base string `json:"base"`
		}
		var list []base
		for _, p := range pools {
			if !p.IsValid() || p.Masked() != p {
				t.Errorf("%q has %v", data, p)
			}
			list = append(list, base{p.String()})
		}
		b, err := json.Marshal(map[string]any{"default-address-pools": list})
		if err != nil {
			t.Fatal(err)
		}
		again, err := dockerPools(b)
		if err != nil || len(again) != len(pools) {
			t.Fatalf("%q has %v, again %v, %v", data, pools, again, err)
		}
		for i := range pools {
			if pools[i] != again[i] {
				t.Errorf("%q has %v, again %v", data, pools, again)
			}
		}
	})
}
