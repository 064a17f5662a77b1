package apiserver

import (
	"context"
	"iter"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// moreKinds returns the collections beside networks, groups and policies.
func moreKinds(c *control.Controller) []kind {
	parseAciGw := func(s string) (string, error) {
		if s != aciGwName {
			return "", model.ErrNotFound
		}
		return s, nil
	}
	getAciGw := func(v *control.View, _ string) (model.AciGw, bool) { return v.AciGw() }
	return []kind{
		{
			name: "netprofiles", object: api.NetProfile{},
			list:   all(func(v *control.View) []model.NetProfile { return v.NetProfiles("") }, netProfileView),
			get:    find("netprofile", model.ParseNetProfileKey, (*control.View).NetProfile, netProfileView),
			writer: writes("netprofile", netProfileFromAPI, whole(c.ChangeNetProfile), netProfileToAPI, netProfileView),
			del:    del("netprofile", model.ParseNetProfileKey, c.DeleteNetProfile),
		},
		{
			name: "serviceLBs", object: api.ServiceLB{}, oper: api.ServiceLBOper{},
			list:    all(func(v *control.View) []model.Service { return v.Services("") }, serviceView),
			get:     find("serviceLB", model.ParseServiceKey, (*control.View).Service, serviceView),
			writer:  writes("serviceLB", serviceFromAPI, whole(c.ChangeService), serviceToAPI, without(serviceToAPI)),
			del:     del("serviceLB", model.ParseServiceKey, c.DeleteService),
			inspect: find("serviceLB", model.ParseServiceKey, (*control.View).Service, func(v *control.View, s model.Service) any { return serviceOper(v, s) }),
		},
		{
			name: "appProfiles", object: api.AppProfile{},
			list:   all(func(v *control.View) []model.AppProfile { return v.AppProfiles("") }, appProfileView),
			get:    find("appProfile", model.ParseAppProfileKey, (*control.View).AppProfile, appProfileView),
			writer: writes("appProfile", appProfileFromAPI, whole(c.ChangeAppProfile), appProfileToAPI, without(appProfileToAPI)),
			del:    del("appProfile", model.ParseAppProfileKey, c.DeleteAppProfile),
		},
		{
			name: "Bgps", object: api.Bgp{}, oper: api.BgpOper{},
			list:   all((*control.View).Bgps, func(_ *control.View, b model.Bgp) any { return bgpToAPI(b) }),
			get:    find("Bgp", model.ParseHostName, (*control.View).Bgp, func(_ *control.View, b model.Bgp) any { return bgpToAPI(b) }),
			writer: writes("Bgp", bgpFromAPI, whole(c.ChangeBgp), bgpToAPI, without(bgpToAPI)),
			del:    del("Bgp", model.ParseHostName, c.DeleteBgp),
			inspect: find("Bgp", model.ParseHostName, (*control.View).Bgp, func(*control.View, model.Bgp) any {
				return api.BgpOper{} // sessions are observed on the host itself: netplugin's /inspect/bgp
			}),
		},
		{
			name: "extContractsGroups", object: api.ExtContractsGroup{},
			list:   all(func(v *control.View) []model.ExtContracts { return v.ExtContracts("") }, extContractsView),
			get:    find("extContractsGroup", model.ParseExtContractsKey, (*control.View).ExtContractsGroup, extContractsView),
			writer: writes("extContractsGroup", extContractsFromAPI, whole(c.ChangeExtContracts), extContractsToAPI, extContractsView),
			del:    del("extContractsGroup", model.ParseExtContractsKey, c.DeleteExtContracts),
		},
		{
			name: "aciGws", object: api.AciGw{}, oper: api.AciGwOper{},
			list: func(v *control.View) iter.Seq[any] {
				return func(yield func(any) bool) {
					if g, ok := v.AciGw(); ok {
						yield(aciGwToAPI(g))
					}
				}
			},
			get:    find("aciGw", parseAciGw, getAciGw, func(_ *control.View, g model.AciGw) any { return aciGwToAPI(g) }),
			writer: writes("aciGw", aciGwFromAPI, whole(c.ChangeAciGw), aciGwToAPI, without(aciGwToAPI)),
			del:    del("aciGw", parseAciGw, func(ctx context.Context, _ string) error { return c.DeleteAciGw(ctx) }),
			inspect: find("aciGw", parseAciGw, getAciGw, func(v *control.View, _ model.AciGw) any {
				return api.AciGwOper{NumAppProfiles: len(v.AppProfiles(""))}
			}),
		},
		{
			name: "volumes", object: api.Volume{},
			list:   all(func(v *control.View) []model.Volume { return v.Volumes("") }, volumeView),
			get:    find("volume", model.ParseVolumeKey, (*control.View).Volume, volumeView),
			writer: writes("volume", volumeFromAPI, whole(c.ChangeVolume), volumeToAPI, without(volumeToAPI)),
			del:    del("volume", model.ParseVolumeKey, c.DeleteVolume),
		},
		{
			name: "volumeProfiles", object: api.VolumeProfile{},
			list:   all(func(v *control.View) []model.VolumeProfile { return v.VolumeProfiles("") }, volumeProfileView),
			get:    find("volumeProfile", model.ParseVolumeProfileKey, (*control.View).VolumeProfile, volumeProfileView),
			writer: writes("volumeProfile", volumeProfileFromAPI, whole(c.ChangeVolumeProfile), volumeProfileToAPI, without(volumeProfileToAPI)),
			del:    del("volumeProfile", model.ParseVolumeProfileKey, c.DeleteVolumeProfile),
		},
	}
}

func netProfileView(v *control.View, p model.NetProfile) any {
	o := netProfileToAPI(p)
	for _, g := range v.GroupsOfNetProfile(p.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	return o
}

func appProfileView(_ *control.View, p model.AppProfile) any { return appProfileToAPI(p) }

func serviceView(_ *control.View, s model.Service) any { return serviceToAPI(s) }

func extContractsView(v *control.View, e model.ExtContracts) any {
	o := extContractsToAPI(e)
	for _, g := range v.GroupsOfExtContracts(e.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	return o
}

func volumeView(_ *control.View, x model.Volume) any { return volumeToAPI(x) }

func volumeProfileView(_ *control.View, p model.VolumeProfile) any { return volumeProfileToAPI(p) }
