package apiserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// Services of Kubernetes are read here and changed there.
func (s *server) handleClusterServices() {
	s.router.handle("GET", "/api/v1/clusterServices", access.View, nil, s.services.clusterServices)
	s.router.handle("GET", "/api/v1/clusterServices/{namespace}/{name}", access.View, nil, s.services.clusterService)
}

func (s *serviceHandlers) clusterServices(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	out := []api.ClusterService{}
	for _, x := range v.Kubernetes.ClusterServices() {
		o := clusterServiceToAPI(v, x)
		o.Backends = nil
		out = append(out, o)
	}
	return out, nil
}

func (s *serviceHandlers) clusterService(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	text := r.PathValue("namespace") + "/" + r.PathValue("name")
	k, err := model.ParseClusterServiceKey(text)
	if err != nil {
		return nil, notFound("service of Kubernetes", text)
	}
	x, ok := v.Kubernetes.ClusterService(k)
	if !ok {
		return nil, notFound("service of Kubernetes", text)
	}
	return clusterServiceToAPI(v, x), nil
}

func clusterServiceToAPI(v *control.View, s model.Service) api.ClusterService {
	o := api.ClusterService{
		ServiceName: s.Key.Name, Owner: string(model.OwnerKubernetes), TenantName: string(s.Network.Tenant), NetworkName: string(s.Network.Name), Addresses: addrTexts(s.Addrs), Balanced: addrTexts(s.Balanced), External: addrTexts(s.External),
		OnlySources: s.OnlySources, Affinity: affinityText(s.AffinityTime()), Near: string(s.Near), HealthPort: int(s.HealthPort), Ports: []api.ClusterPort{},
	}
	if o.Addresses == nil {
		o.Addresses = []string{}
	}
	for _, p := range s.Sources {
		o.Sources = append(o.Sources, p.String())
	}
	for _, a := range s.Balanced {
		if h := v.Hosts.AnnouncerOf(a); h != "" {
			if o.AnsweredBy == nil {
				o.AnsweredBy = map[string]string{}
			}
			o.AnsweredBy[a.String()] = string(h)
		}
	}
	if s.InsideLocal {
		o.InternalPolicy = "local"
	}
	if s.OutsideLocal {
		o.ExternalPolicy = "local"
	}
	for _, p := range s.Ports {
		o.Ports = append(o.Ports, api.ClusterPort{Name: p.Name, Protocol: p.Protocol.String(), Port: int(p.Port), NodePort: int(p.Node)})
	}
	for _, x := range v.Kubernetes.SlicesOf(s.Key) {
		var ports []string
		for _, p := range x.Ports {
			text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
			if p.Name != "" {
				text = p.Name + ":" + text
			}
			ports = append(ports, text)
		}
		for _, b := range x.Backends {
			if o.All++; b.State == model.ServiceBackendReady {
				o.Ready++
			}
			back := api.ClusterBackend{Address: b.Addr.String(), Slice: x.Key.Name, State: string(b.State), Pod: b.Pod, Node: string(b.Node), Zone: b.Zone, Ports: ports}
			if e, ok := v.Pods.PodEndpoint(b.Pod); ok && (e.IPv4 == b.Addr || e.IPv6 == b.Addr) {
				back.Endpoint, back.Host = e.Key.String(), string(e.Host)
			}
			o.Backends = append(o.Backends, back)
		}
	}
	return o
}

func addrTexts(all []netip.Addr) (out []string) {
	for _, a := range all {
		out = append(out, a.String())
	}
	return out
}

// affinityText is a time as serviceLBs have it; empty = there is no affinity.
func affinityText(d time.Duration) string { return model.Affinity(d / time.Second).String() }
