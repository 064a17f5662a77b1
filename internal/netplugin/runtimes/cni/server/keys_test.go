package server

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

// keyEffects are the options of contivk8s' configuration.
var keyEffects = map[string]archtest.Effect{
	"tenant":   archtest.By("TestArgumentsOverrideConfiguration"),
	"network":  archtest.By("TestArgumentsOverrideConfiguration"),
	"group":    archtest.By("TestArgumentsOverrideConfiguration"),
	"mtu":      archtest.By("TestArgumentsOverrideConfiguration"),
	"labels":   archtest.By("TestArgumentsOverrideConfiguration"),
	"ip":       archtest.By("TestArgumentsOverrideConfiguration"),
	"socket":   archtest.By("TestDelIsReplayedAfterNetpluginWasDown"),
	"stateDir": archtest.By("TestDelIsReplayedAfterNetpluginWasDown"),
}

// TestEveryKeyHasEffect: each option does something, by a test, and what is
// decoded is an option or the runtime's.
func TestEveryKeyHasEffect(t *testing.T) {
	archtest.CheckEffects(t, "keyEffects in internal/netplugin/runtimes/cni/server/keys_test.go", ourKeys, keyEffects, nil, nil)
	for f := range reflect.TypeFor[conf]().Fields() {
		key := f.Tag.Get("json")
		if !slices.Contains(ourKeys, key) && !slices.Contains(runtimeKeys, key) && !strings.ContainsAny(key, "./") {
			t.Errorf("%q is read, but would be refused: add it to ourKeys in internal/netplugin/runtimes/cni/server/keys.go", key)
		}
	}
}

// TestIneffectiveKeysAreRefused: a key that would do nothing is refused with why, one that
// asks for nothing and those of other parties are not.
func TestIneffectiveKeysAreRefused(t *testing.T) {
	for _, tc := range []struct{ conf, want string }{
		{`{"name":"n","type":"contivk8s","group":"g","cniVersion":"1.1.0","capabilities":{"ips":true},"runtimeConfig":{"ips":[]}}`, ""},
		{`{"gruop":"g"}`, `unknown key "gruop"; those of contivk8s are tenant, network, group`},
		{`{"Group":"g"}`, `unknown key "Group"`},
		{`{"ipam":{"type":"host-local"}}`, "ipam: has no effect with contivk8s: netmaster gives the addresses"},
		{`{"ipMasq":true}`, "ipMasq: has no effect"},
		{`{"ipMasq":false,"ipam":{ },"dns":null,"_comment":"x","example.com/x":1,"cni.dev/valid-attachments":[]}`, ""},
		{`{"runtimeConfig":{"bandwidth":{"ingressRate":80}}}`, ""},
		{`{"runtimeConfig":{"portMappings":[{"hostPort":80}],"bandwidth":{},"io.kubernetes.cri.pod-annotations":{}}}`, ""},
	} {
		err := checkKeys([]byte(tc.conf))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.conf, err, tc.want)
		}
	}
}
