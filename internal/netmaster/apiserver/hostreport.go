package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// handleAgents registers what agents tell of their hosts.
func (s *server) handleAgents() {
	handleRead(s.router, "POST", "/plugin/host", access.OwnHost, readBody[api.HostReport], func(_ *request, in api.HostReport) (access.Resource, error) { return ofHost(in.Host), nil }, s.hosts.reportHost).verb = verbReport
	handleRead(s.router, "POST", "/plugin/hostStatus", access.OwnHost, readBody[api.HostStatusReport], func(_ *request, in api.HostStatusReport) (access.Resource, error) { return ofHost(in.Host), nil }, s.hosts.hostStatus).verb = verbReport
	handleRead(s.router, "POST", "/plugin/answer", access.OwnHost, readBody[api.L2AnnouncerReport], func(_ *request, in api.L2AnnouncerReport) (access.Resource, error) { return ofHost(in.Host), nil }, s.hosts.assignL2Addresses).verb = verbReport
	s.router.handle("POST", "/plugin/hostsHeard", access.Peer, nil, s.hosts.hostHeartbeats).verb = verbReport
}

func (s *hostHandlers) reportHost(_ http.ResponseWriter, r *request, req api.HostReport) (any, error) {
	report, err := HostReport(req)
	if err != nil {
		return nil, err
	}
	if req.Leaving {
		return api.HostReportResponse{}, s.control.HostLeases.ReleaseHost(r.Context(), r.actor, report.Name, report.Installation)
	}
	kept, err := s.control.HostLeases.RenewHost(r.Context(), r.actor, report)
	if taken, ok := errors.AsType[control.LeaseTakenError](err); ok {
		r.refused = taken.Text
	} else {
		r.changed = strings.Join(slices.DeleteFunc([]string{kept.Enrolled, kept.Wrote}, func(s string) bool { return s == "" }), "; ")
	}
	return HostReportResponse(kept, err)
}

// HostReportResponse is an answer to an agent.
func HostReportResponse(kept control.LeaseResult, err error) (api.HostReportResponse, error) {
	if taken, ok := errors.AsType[control.LeaseTakenError](err); ok {
		return api.HostReportResponse{Taken: taken.Text, Former: taken.Previous}, nil
	}
	return api.HostReportResponse{Wrote: kept.Wrote, Heir: kept.Previous}, err
}

// HostReport reads what an agent has kept.
func HostReport(req api.HostReport) (r control.HostReport, err error) {
	if r.Name, err = agentOf(req.Version, req.Host, req.Installation); err != nil {
		return r, err
	}
	for _, f := range []struct {
		name, text string
		to         *netip.Addr
	}{{"control", req.Control, &r.Control}, {"vtep", req.VTEP, &r.VTEP}} {
		if *f.to, err = netip.ParseAddr(f.text); err != nil {
			return r, model.InvalidField(f.name, clip([]byte(f.text)), "must be an address")
		}
		*f.to = f.to.Unmap()
	}
	if r.IPv6, err = apiconv.Optional(req.IPv6, func(s string) (netip.Addr, error) { return model.ParseAddr6("ipv6", s) }); err != nil {
		return r, err
	}
	if req.VXLANPort < 1 || req.VXLANPort > 65535 {
		return r, model.InvalidField("vxlanPort", req.VXLANPort, "must be between 1 and 65535")
	}
	for _, text := range req.Listening {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			return r, model.InvalidField("listening", clip([]byte(text)), "must be address:port")
		}
		r.Listening = append(r.Listening, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
	}
	r.Installation, r.Driver, r.Store, r.Format = req.Installation, req.Driver, req.Store, req.Format
	r.Confirms, r.AnswersProbes = req.Confirms, req.AnswersProbes
	r.Boot, r.Since, r.Version, r.VXLANPort, r.TakeHost, r.Look = req.Boot, req.Since, req.AgentVersion, req.VXLANPort, req.TakeHost, req.Look
	return r, nil
}

// agentOf checks who tells something.
func agentOf(version int, host, installation string) (model.HostName, error) {
	if version != api.HostReportVersion {
		return "", model.InvalidField("version", version, "is not one that this netmaster knows (1): netmasters are upgraded before netplugins")
	}
	if installation == "" {
		return "", model.InvalidField("installation", installation, "must not be empty")
	}
	return model.ParseHostName(host)
}

func (s *hostHandlers) hostStatus(_ http.ResponseWriter, r *request, req api.HostStatusReport) (any, error) {
	status, err := HostStatus(req)
	if err != nil {
		return nil, err
	}
	r.changed, err = s.control.HostLeases.PutHostStatus(r.Context(), r.actor, req.Installation, status)
	return "ok", err
}

// HostStatus reads what an agent observes.
func HostStatus(req api.HostStatusReport) (control.HostStatus, error) {
	name, err := agentOf(req.Version, req.Host, req.Installation)
	if err != nil {
		return control.HostStatus{}, err
	}
	st := control.HostStatus{
		Host: name, Driver: req.Driver, DriverWhy: req.DriverWhy, Version: req.AgentVersion, Updated: req.Updated, Revision: req.Revision, Verified: req.Verified,
		Ports: req.Ports, Pending: req.Pending, Error: req.Error, Problems: req.Problems, Attachments: req.Attachments, Ready: req.Ready, Kinds: req.Kinds,
	}
	for _, c := range req.Conditions {
		st.Conditions = append(st.Conditions, control.HostCondition{Name: c.Name, Severity: c.Severity, Message: c.Message})
	}
	for name, t := range req.Tables {
		if st.Tables == nil {
			st.Tables = map[string]control.TableFill{}
		}
		st.Tables[name] = control.TableFill(t)
	}
	if req.BGP != nil {
		bgp := control.BGPStatus(*req.BGP)
		st.BGP = &bgp
	}
	if st.Surroundings, err = underlayNetworks(req.Surroundings); err != nil {
		return st, err
	}
	if st.Published.Unlisted = req.Published.Unlisted; st.Published.Unlisted < 0 {
		return st, model.InvalidField("published.unlisted", st.Published.Unlisted, "must not be negative")
	}
	st.Published.Ports, err = publishedPorts(req.Published.Ports)
	return st, err
}

// publishedPorts reads the ports of a host that lead to containers.
func publishedPorts(in []api.PublishedPort) (out []control.PublishedPort, err error) {
	if len(in) > control.MaxPublished {
		return nil, model.InvalidField("published", len(in), fmt.Sprintf("must be at most %d ports", control.MaxPublished))
	}
	for _, p := range in {
		to := control.PublishedPort{HostPort: uint16(p.HostPort), Port: uint16(p.Port)}
		if p.HostPort != int(to.HostPort) || p.Port != int(to.Port) {
			return nil, model.InvalidField("published", p.HostPort, "must have ports from 0 to 65535")
		}
		if to.Endpoint, err = model.ParseEndpointKey(p.Endpoint); err != nil {
			return nil, err
		}
		if to.Protocol, err = model.ParseProtocol(p.Protocol); err != nil {
			return nil, err
		}
		if to.HostIP, err = apiconv.Optional(p.HostIP, netip.ParseAddr); err != nil {
			return nil, model.InvalidField("published", clip([]byte(p.HostIP)), "must be an address")
		}
		out = append(out, to)
	}
	return out, nil
}

// underlayNetworks reads the networks around a host.
func underlayNetworks(in *api.UnderlayNetworks) (*control.UnderlayNetworks, error) {
	if in == nil {
		return nil, nil
	}
	if n := max(len(in.Addresses), len(in.VLANs)); n > control.MaxUnderlayNetworks {
		return nil, model.InvalidField("surroundings", n, fmt.Sprintf("must be at most %d addresses and VLANs", control.MaxUnderlayNetworks))
	}
	out := &control.UnderlayNetworks{}
	for _, text := range in.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, model.InvalidField("surroundings.addresses", clip([]byte(text)), "must be an address")
		}
		out.Addresses = append(out.Addresses, a)
	}
	for _, tag := range in.VLANs {
		if tag < 1 || tag > 4094 {
			return nil, model.InvalidField("surroundings.vlans", tag, "must be 1 to 4094")
		}
		out.VLANs = append(out.VLANs, uint16(tag))
	}
	return out, nil
}

func (s *hostHandlers) hostHeartbeats(w http.ResponseWriter, r *request) (any, error) {
	var req api.HostHeartbeats
	if _, err := decode(w, r, &req); err != nil {
		return nil, err
	}
	names := make([]model.HostName, 0, len(req.Hosts))
	for _, text := range req.Hosts {
		name, err := model.ParseHostName(text)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	s.control.Heartbeats.Heard(names)
	return "ok", nil
}

// maxAnnounceable is more than there are load balancers' addresses on a link.
const maxAnnounceable = 4096

func (s *hostHandlers) assignL2Addresses(_ http.ResponseWriter, r *request, req api.L2AnnouncerReport) (any, error) {
	report, err := L2AnnouncerReport(req)
	if err != nil {
		return nil, err
	}
	held, taken, err := s.control.L2Announcers.Assign(r.Context(), r.actor, report)
	if len(taken) > 0 {
		r.changed = "answers neighbours for " + strings.Join(addrTexts(taken), ", ")
	}
	out := api.L2AnnouncerResponse{Held: addrTexts(held)}
	if out.Held == nil {
		out.Held = []string{}
	}
	return out, err
}

// L2AnnouncerReport reads for what a host could answer.
func L2AnnouncerReport(req api.L2AnnouncerReport) (r control.L2AnnouncerReport, err error) {
	if r.Host, err = agentOf(req.Version, req.Host, req.Installation); err != nil {
		return r, err
	}
	if len(req.Able) > maxAnnounceable {
		return r, model.InvalidField("able", len(req.Able), fmt.Sprintf("must be at most %d addresses", maxAnnounceable))
	}
	for _, text := range req.Able {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return r, model.InvalidField("able", clip([]byte(text)), "must be an address")
		}
		r.Able = append(r.Able, a)
	}
	slices.SortFunc(r.Able, netip.Addr.Compare)
	r.Able = slices.Compact(r.Able)
	r.Installation, r.Run, r.Seq = req.Installation, req.Run, req.Seq
	return r, nil
}
