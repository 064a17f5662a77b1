package picture

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A host goes by its own settings, and gives way to hosts before it by name that have the
// same router address.
func TestBgpOfHost(t *testing.T) {
	c := &Cluster{Config: Config{Host: "h2"}, bgps: map[tables.BgpKey]model.Bgp{}}
	put := func(h model.HostName, ip string) {
		c.bgps[tables.BgpKey{Host: h}] = model.Bgp{Host: h, RouterIP: netip.MustParsePrefix(ip)}
	}
	put("h1", "50.1.1.1/24")
	if own, rivals := c.Bgp(); own != nil || rivals != nil {
		t.Errorf("without settings: %v, %v", own, rivals)
	}
	put("h2", "50.1.1.2/24")
	put("h3", "50.1.1.2/24")
	if own, rivals := c.Bgp(); own == nil || own.Host != "h2" || len(rivals) > 0 {
		t.Errorf("its own: %v, %v", own, rivals)
	}
	put("h1", "50.1.1.2/25")
	if _, rivals := c.Bgp(); !slices.Equal(rivals, []model.HostName{"h1"}) {
		t.Errorf("rivals %v", rivals)
	}
}
