package cni

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// FuzzError: whatever a runtime gives for a configuration, it is decoded or refused by an
// error of the specification, and an error's text is JSON that says it, with the version
// if one can be read.
func FuzzError(f *testing.F) {
	for _, s := range []string{`{"cniVersion":"1.0.0"}`, `{"cniVersion":7,"name":"n"}`, `{"cniVersion":"\u0000"}`, `{"name":{}}`, `[]`, `null`, ``, "\xff"} {
		f.Add([]byte(s), "what is wrong")
	}
	f.Fuzz(func(t *testing.T, conf []byte, msg string) {
		var c struct {
			CNIVersion string `json:"cniVersion"`
			Name       string `json:"name"`
		}
		if err := Decode(conf, &c); err != nil {
			e, ok := errors.AsType[*types.Error](err)
			if !ok || e.Code != types.ErrDecodingFailure || e.Details == "" {
				t.Errorf("%q: %v is no error of the specification", conf, err)
			}
		} else if !json.Valid(conf) {
			t.Errorf("%q is decoded", conf)
		}
		var said struct {
			CNIVersion string `json:"cniVersion"`
			Code       uint   `json:"code"`
			Msg        string `json:"msg"`
		}
		out := ErrorObject(conf, types.NewError(types.ErrInvalidNetworkConfig, msg, ""))
		if err := json.Unmarshal(out, &said); err != nil || said.Code != types.ErrInvalidNetworkConfig || (said.Msg == "") != (msg == "") {
			t.Errorf("%q and %q are told as %q, %v", conf, msg, out, err)
		}
		if c.Name != "" && json.Valid(conf) && said.CNIVersion != c.CNIVersion {
			t.Errorf("%q is told with version %q", conf, said.CNIVersion)
		}
	})
}
