package server

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// resultJSON is a result as plugins print it, in the version asked for; none
// given means 0.1.0 (specification 0.1.0).
func resultJSON(r attach.Result, cniVersion string) ([]byte, error) {
	if cniVersion == "" {
		cniVersion = "0.1.0"
	}
	res, err := result(r, cniVersion).GetAsVersion(cniVersion)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err = res.PrintTo(&out); err != nil || r.PolicyRevision == 0 {
		return out.Bytes(), err
	}
	// The library's results have no place for it. Who reads them passes over a key that
	// it does not know, in every version.
	var all map[string]json.RawMessage
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return nil, err
	}
	all[keyPolicyRevision] = strconv.AppendInt(nil, r.PolicyRevision, 10)
	return json.MarshalIndent(all, "", "    ")
}

// keyPolicyRevision is the key of a result that says up to which revision of the store
// all policies were in force when ADD was answered.
const keyPolicyRevision = "io.contiv.policyRevision"

func result(r attach.Result, cniVersion string) *types100.Result {
	out := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: r.HostIf, Mac: r.HostMAC.String(), Mtu: r.MTU},
			{Name: r.IfName, Mac: r.MAC.String(), Mtu: r.MTU, Sandbox: r.Netns},
		},
	}
	if ok, err := version.GreaterThanOrEqualTo(cniVersion, "1.1.0"); err != nil || !ok {
		for _, i := range out.Interfaces {
			i.Mtu = 0 // the field came with 1.1.0
		}
	}
	for _, a := range r.Addresses {
		ip := &types100.IPConfig{Interface: new(1), Address: ipNet(a.Prefix)}
		if a.Gateway.IsValid() {
			ip.Gateway = a.Gateway.AsSlice()
		}
		out.IPs = append(out.IPs, ip)
	}
	for _, rt := range r.Routes {
		out.Routes = append(out.Routes, &types.Route{Dst: ipNet(rt.Dst), GW: rt.Gateway.AsSlice()})
	}
	if r.NameServer.IsValid() {
		out.DNS = types.DNS{Nameservers: []string{r.NameServer.String()}, Search: []string{r.Search}}
	}
	return out
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
