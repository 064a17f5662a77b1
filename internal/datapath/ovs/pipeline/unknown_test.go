package pipeline

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestUnidentifiedRemotesAreDenied: no flow lets in what comes in the name of an endpoint elsewhere whose
// identity is not known.
func TestUnidentifiedRemotesAreDenied(t *testing.T) {
	c := Config{Tunnel: 1, Uplink: 2}
	for _, encap := range []model.Encap{model.EncapVXLAN, model.EncapVLAN} {
		n := &desired.Network{ID: 7, Key: key, Encap: encap, Tag: 100, Joined: 5}
		lets := func(id model.Identity) (in int) {
			r := remote
			r.Identity = id
			for _, f := range Remote(c, n, &r) {
				if s := Stage(f.Table); len(f.Actions) > 0 && (s == SourceIdentity || s == CrossNetworkSource) {
					in++
				}
			}
			return in
		}
		if known, unknown := lets(257), lets(model.IdentityUnknown); known == 0 || unknown != 0 {
			t.Errorf("%s: %d flows let it in, and %d when it is not known", encap, known, unknown)
		}
	}
}
