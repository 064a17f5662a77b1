package attachment

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// askPlacement asks netmaster for a pod's tenant, network and group, and for its UID if the
// runtime names none (cri-dockerd). If netmaster follows no Kubernetes the request counts.
// A request that differs from netmaster's answer is refused: otherwise it would silently
// have no effect.
//
// A pod's further interface (Multus) is no pod of Kubernetes: the labels name its tenant
// only. Network and group are the request's, if netmaster allows them.
func (a *attacher) askPlacement(ctx context.Context, pod *attach.Pod, asked target, further bool) (target, error) {
	if pod.Name == "" {
		return asked, nil
	}
	req := api.PodPlacementRequest{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if further {
		req.Interface = &api.PodInterface{TenantName: textIf(asked.tenant, asked.tenantGiven), ServiceName: string(asked.group)}
	}
	p, err := a.masters.PlacePod(ctx, req)
	if err != nil || !p.Followed {
		return asked, err
	}
	t := asked
	if t.tenant, err = model.ParseTenantName(p.TenantName); err != nil {
		return t, err
	}
	if further {
		*pod = attach.Pod{}
		return t, nil
	}
	pod.UID = cmp.Or(pod.UID, p.UID)
	t.pod = true
	if t.network, err = model.ParseNetworkName(p.NetworkName); err != nil {
		return t, err
	}
	t.group = ""
	if p.ServiceName != "" {
		if t.group, err = model.ParseGroupName(p.ServiceName); err != nil {
			return t, err
		}
	}
	for _, f := range []struct{ field, asked, is string }{
		{"tenant", textIf(asked.tenant, asked.tenantGiven), p.TenantName}, {"network", string(asked.network), p.NetworkName}, {"group", string(asked.group), p.ServiceName},
	} {
		if f.asked != "" && f.asked != f.is {
			return t, model.InvalidField(f.field, f.asked, "must be left out, since the labels of pod "+pod.Namespace+"/"+pod.Name+" and of its namespace say where it belongs, which is "+p.TenantName+":"+p.NetworkName+" and group \""+p.ServiceName+"\"")
		}
	}
	for _, f := range []struct {
		asked netip.Addr
		is    string
		to    *netip.Addr
	}{{asked.v4, p.IPAddress, &t.v4}, {asked.v6, p.IPv6Address, &t.v6}} {
		if f.is == "" {
			continue
		}
		if *f.to, err = netip.ParseAddr(f.is); err != nil {
			return t, model.InvalidField("address of pod "+pod.Namespace+"/"+pod.Name, f.is, "must be an address; is this netmaster of the same version?")
		}
		if f.asked.IsValid() && f.asked != *f.to {
			return t, model.InvalidField("ip", f.asked, "must be left out, since annotations of pod "+pod.Namespace+"/"+pod.Name+" ask for "+f.is)
		}
	}
	return t, nil
}

func textIf(t model.TenantName, is bool) string {
	if is {
		return string(t)
	}
	return ""
}
