package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

func ratesFromAPI(r *api.Rates) model.Rates {
	if r == nil {
		return model.Rates{}
	}
	return model.Rates{Send: model.Rate{Bits: r.Send, Burst: r.SendBurst}, Receive: model.Rate{Bits: r.Receive, Burst: r.ReceiveBurst}}
}

// ratesToAPI returns nil for no limits.
func ratesToAPI(r model.Rates) *api.Rates {
	if r == (model.Rates{}) {
		return nil
	}
	return &api.Rates{Send: r.Send.Bits, SendBurst: r.Send.Burst, Receive: r.Receive.Bits, ReceiveBurst: r.Receive.Burst}
}
