package server

import (
	"cmp"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/model"
)

// bandwidth is the capability of that name: bits a second, and bits. Ingress is what the
// container receives.
type bandwidth struct {
	IngressRate  int64 `json:"ingressRate"`
	IngressBurst int64 `json:"ingressBurst"`
	EgressRate   int64 `json:"egressRate"`
	EgressBurst  int64 `json:"egressBurst"`
}

// rates are the limits that a container asks for. The error is one of the
// specification's.
func (b bandwidth) rates() (r model.Rates, err error) {
	r.Receive, err = rateOf("ingress", b.IngressRate, b.IngressBurst)
	out, err2 := rateOf("egress", b.EgressRate, b.EgressBurst)
	r.Send = out
	return r, cmp.Or(err, err2)
}

// rateOf takes a burst beyond what any queue holds for one that the runtime has not been
// told: containerd gives 2^32-1 bits with every pod's rate, and CRI-O eight times as much.
func rateOf(way string, bits, burst int64) (model.Rate, error) {
	bad := func(field string, value int64, why string) error {
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid bandwidth",
			fmt.Sprintf("runtimeConfig.bandwidth.%s%s %d: %s", way, field, value, why))
	}
	switch {
	case bits != 0 && (bits < model.MinRate || bits > model.MaxRate):
		return model.Rate{}, bad("Rate", bits, fmt.Sprintf("must be between %d and %d bits a second, or 0 for no limit", model.MinRate, int64(model.MaxRate)))
	case bits == 0 && burst != 0:
		return model.Rate{}, bad("Burst", burst, "must be left out without "+way+"Rate, since it limits nothing")
	case burst != 0 && burst < model.MinRateBurst*8:
		return model.Rate{}, bad("Burst", burst, fmt.Sprintf("must be at least %d bits, a packet, or 0 to choose it from the rate", model.MinRateBurst*8))
	case burst/8 > model.MaxRateBurst:
		burst = 0
	}
	return model.Rate{Bits: uint64(bits), Burst: uint64(burst / 8)}, nil //nolint:gosec // neither is negative
}
