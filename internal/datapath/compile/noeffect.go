package compile

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// kindNoEffect is what has no effect and concerns hosts, by collection.
var kindNoEffect = func() map[string][]model.NoEffect {
	out := map[string][]model.NoEffect{}
	for _, n := range model.NoEffects("") {
		if n.Hosts != "" && !n.ByDriver {
			out[n.Kind] = append(out[n.Kind], n)
		}
	}
	return out
}()

// noEffect tells, as problems, what an object has set without effect; of an
// object that is gone (nil), or does not concern this host, it clears them.
func noEffect[T any](p *problems, kind, key string, object *T, concerned bool) {
	for _, n := range kindNoEffect[kind] {
		text := ""
		if concerned && object != nil && n.SetIn(*object) {
			text = model.NoEffectPrefix + n.Text
		}
		p.set(n.Object(key), text)
	}
}
