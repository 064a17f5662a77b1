package cni

import (
	"encoding/json"
	"errors"

	"github.com/containernetworking/cni/pkg/types"
)

// CodeUnavailable is STATUS' answer when ADD cannot be served now (specification
// 1.1; libcni has no name for it).
const CodeUnavailable uint = 50

// ErrorObject is an error result (specification 1.1, section 5 "Error") with the
// version of the configuration; a version that cannot be read is left out.
func ErrorObject(conf []byte, e *types.Error) []byte {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(conf, &c)
	out, err := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion,omitempty"`
		*types.Error
	}{c.CNIVersion, e}, "", "    ")
	if err != nil { // texts and a number cannot fail
		return nil
	}
	return append(out, '\n')
}

// Decode decodes a network configuration into what c points to. The error is the
// specification's, and names the key that is wrong where it can.
func Decode(conf []byte, c any) error {
	err := json.Unmarshal(conf, c)
	if err == nil {
		return nil
	}
	details := err.Error()
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) && te.Field != "" {
		details = te.Field + ": must be a " + te.Type.String() + ", not a " + te.Value
	}
	return types.NewError(types.ErrDecodingFailure, "decode network configuration", details)
}
