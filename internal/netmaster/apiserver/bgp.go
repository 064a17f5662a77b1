package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Bgp, model.HostName, model.Bgp]{
	collection: "Bgps", name: "Bgp", access: ofCluster,
	key: model.ParseHostName, list: func(v *control.View, _ model.TenantName) []model.Bgp { return v.Settings.Bgps() }, get: getIn(viewSettings, (*control.SettingsView).Bgp),
	parse: bgpFromAPI, render: bgpToAPI,
	change: changeAsIs(settingsUseCases, (*control.Settings).ChangeBgp), delete: byKey(control.DeleteBgp),
	oper: api.BgpOper{}, inspect: bgpOper,
})

func bgpFromAPI(o api.Bgp) (b model.Bgp, err error) {
	b.Host = model.HostName(o.Hostname)
	if b.RouterIP, err = model.ParseRouterIP(o.RouterIP); err != nil {
		return b, err
	}
	if b.AS, err = model.ParseAS("as", o.AS); err != nil {
		return b, err
	}
	if b.NeighborAS, err = model.ParseAS("neighbor-as", o.NeighborAS); err != nil {
		return b, err
	}
	if b.Neighbor, err = apiconv.Optional(o.Neighbor, model.ParseNeighbor); err != nil {
		return b, err
	}
	if b.RouterIP6, err = apiconv.Optional(o.RouterIP6, model.ParseRouterIP6); err != nil {
		return b, err
	}
	if b.More, err = model.ParseRouters(o.Neighbors); err != nil {
		return b, err
	}
	if o.MaxPrefixes < 0 || o.MaxPrefixes > model.MaxBgpPrefixes {
		return b, model.InvalidField("maxPrefixes", o.MaxPrefixes, fmt.Sprintf("must be between 0 and %d", model.MaxBgpPrefixes))
	}
	if o.BFD != "" && o.BFD != "on" && o.BFD != "off" {
		return b, model.InvalidField("bfd", o.BFD, "must be on or off")
	}
	b.Password, b.MaxPrefixes, b.Default, b.NoBFD = o.Password, uint32(o.MaxPrefixes), o.DefaultRoute, o.BFD == "off"
	return b, nil
}

func bgpToAPI(b model.Bgp) api.Bgp {
	o := api.Bgp{
		Key: string(b.Host), AS: strconv.FormatUint(uint64(b.AS), 10), Hostname: string(b.Host),
		Neighbor: addrText(b.Neighbor), NeighborAS: strconv.FormatUint(uint64(b.NeighborAS), 10), RouterIP: b.RouterIP.String(),
		Neighbors: model.RoutersText(b.More), MaxPrefixes: int(b.MaxPrefixes), DefaultRoute: b.Default,
	}
	if b.RouterIP6.IsValid() {
		o.RouterIP6 = b.RouterIP6.String()
	}
	if b.Password != "" {
		o.Password = model.PasswordKept
	}
	if b.NoBFD {
		o.BFD = "off"
	}
	return o
}

// bgpOper is the host's last report of its speaker; the host itself has more at netplugin's
// /inspect/bgp.
func bgpOper(s *serverContext, _ *control.View, b model.Bgp) any {
	ctx, cancel := context.WithTimeout(context.Background(), bgpOperTime)
	defer cancel()
	h, err := s.control.Hosts.Get(ctx, control.Admin(), b.Host)
	if err != nil || h.Status.BGP == nil {
		return api.BgpOper{}
	}
	st := h.Status.BGP
	out := api.BgpOper{AdminStatus: st.Admin, NeighborStatus: st.Neighbors, NumRoutes: st.Routes, Routes: st.First, Announced: st.Announced, Prefixes: st.Prefixes}
	for object, text := range h.Status.Problems {
		if strings.HasPrefix(object, "BGP") {
			out.Problems = append(out.Problems, object+": "+text)
		}
	}
	slices.Sort(out.Problems)
	return out
}

// bgpOperTime bounds the look at a host's last word.
const bgpOperTime = 5 * time.Second
