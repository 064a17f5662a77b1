package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// How long a verb may take; netplugin's own limits are shorter, so that its
// sentence arrives.
const (
	addTimeout   = 60 * time.Second
	delTimeout   = 30 * time.Second
	checkTimeout = 20 * time.Second
	gcTimeout    = 120 * time.Second
)

// Error codes of specification 1.1 that libcni has no names for, and our own
// (100 and above are the plugin's).
const (
	codeUnavailable = 50 // STATUS: ADD cannot be served
	codeDegraded    = 51 // STATUS: nor may existing containers be well
	codeExhausted   = 101
	codeConflict    = 102
	codeNotAsMade   = 103 // CHECK
)

// Run serves one invocation: the verb is in the environment, the configuration
// on stdin, the answer goes to stdout. It returns the exit code.
func Run(about string) int {
	var err error
	var conf []byte
	// The specification wants cniVersion in error results; skel reads stdin by
	// itself, so it is read here and handed on by a pipe.
	if os.Getenv("CNI_COMMAND") != "" && os.Getenv("CNI_COMMAND") != "VERSION" {
		if conf, err = io.ReadAll(os.Stdin); err == nil {
			err = feedStdin(conf)
		}
		if err != nil {
			return report(nil, types.NewError(types.ErrIOFailure, "read network configuration", err.Error()))
		}
	}
	p := plugin{getenv: os.Getenv}
	e := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: p.add, Del: p.del, Check: p.check, GC: p.gc, Status: p.status,
	}, version.All, about)
	if e != nil {
		return report(conf, e)
	}
	return 0
}

func feedStdin(data []byte) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stdin = r
	go func() { // ends with the process at the latest
		_, _ = w.Write(data)
		_ = w.Close()
	}()
	return nil
}

// report prints an error result (specification 1.1, section 5 "Error").
func report(conf []byte, e *types.Error) int {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(conf, &c) // a version that cannot be read is left out
	out, err := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion,omitempty"`
		*types.Error
	}{c.CNIVersion, e}, "", "    ")
	if err == nil {
		_, err = os.Stdout.Write(append(out, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "contivk8s: write error result:", err)
	}
	return 1
}

type plugin struct {
	getenv func(string) string
}

func (p plugin) add(args *skel.CmdArgs) error {
	c, err := loadConf(args.StdinData)
	if err != nil {
		return err
	}
	if len(c.Prev) > 0 && string(c.Prev) != "null" {
		return types.NewError(types.ErrInvalidNetworkConfig, "contivk8s must be the first plugin of its list",
			"prevResult: contivk8s makes the interface and cannot follow another plugin")
	}
	req, err := c.request(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), addTimeout)
	defer cancel()
	res, err := c.client(p.getenv).Attach(ctx, req)
	if err != nil {
		return toCNI(err)
	}
	return types.PrintResult(result(res, c.CNIVersion), configVersion(c))
}

// configVersion is the version that results must have; none given means 0.1.0
// (specification 0.1.0).
func configVersion(c Conf) string {
	if c.CNIVersion == "" {
		return "0.1.0"
	}
	return c.CNIVersion
}

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

// del never fails for what is absent, and spools what cannot be done now.
func (p plugin) del(args *skel.CmdArgs) error {
	c, err := loadConf(args.StdinData)
	if err != nil {
		return err
	}
	req := attach.DetachRequest{
		Key: attach.Key{Container: args.ContainerID, IfName: args.IfName}, Netns: args.Netns,
	}
	ctx, cancel := context.WithTimeout(context.Background(), delTimeout)
	defer cancel()
	err = c.client(p.getenv).Detach(ctx, req)
	if err == nil {
		return nil
	}
	if serr := c.spool(p.getenv).Put(req); serr != nil {
		return types.NewError(types.ErrTryAgainLater, "the deletion can be neither done nor spooled",
			err.Error()+"; "+serr.Error())
	}
	fmt.Fprintf(os.Stderr, "contivk8s: %v; the deletion is spooled and netplugin will do it\n", err)
	return nil
}

func (p plugin) check(args *skel.CmdArgs) error {
	c, err := loadConf(args.StdinData)
	if err != nil {
		return err
	}
	req := attach.CheckRequest{Key: attach.Key{Container: args.ContainerID, IfName: args.IfName}, Netns: args.Netns}
	if err := expectations(c, &req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err = c.client(p.getenv).Check(ctx, req)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, model.ErrNotFound), errors.Is(err, model.ErrConflict):
		return types.NewError(codeNotAsMade, "the attachment is not what it was made", err.Error())
	}
	return toCNI(err)
}

// expectations takes what the runtime remembers of our container interface.
func expectations(c Conf, req *attach.CheckRequest) error {
	if len(c.Prev) == 0 || string(c.Prev) == "null" {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult is missing",
			"CHECK needs the result of ADD in prevResult")
	}
	pc := prevConf(c)
	if err := version.ParsePrevResult(pc); err != nil {
		return types.NewError(types.ErrDecodingFailure, "decode prevResult", err.Error())
	}
	prev, err := types100.NewResultFromResult(pc.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "decode prevResult", err.Error())
	}
	index := -1
	for i, ifc := range prev.Interfaces {
		if ifc.Sandbox != "" && ifc.Name == req.IfName {
			index, req.MAC = i, ifc.Mac
		}
	}
	for _, ip := range prev.IPs {
		if ip.Interface != nil && index >= 0 && *ip.Interface != index {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			bits, _ := ip.Address.Mask.Size()
			req.Addresses = append(req.Addresses, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	return nil
}

func prevConf(c Conf) *types.PluginConf {
	pc := &types.PluginConf{CNIVersion: c.CNIVersion}
	_ = json.Unmarshal(c.Prev, &pc.RawPrevResult) // ParsePrevResult then complains
	return pc
}

func (p plugin) gc(args *skel.CmdArgs) error {
	c, err := loadConf(args.StdinData)
	if err != nil {
		return err
	}
	req := attach.CollectRequest{Config: c.Name, Valid: []attach.Key{}}
	for _, v := range c.Valid {
		req.Valid = append(req.Valid, attach.Key{Container: v.ContainerID, IfName: v.IfName})
	}
	ctx, cancel := context.WithTimeout(context.Background(), gcTimeout)
	defer cancel()
	if err := c.client(p.getenv).Collect(ctx, req); err != nil {
		return toCNI(err)
	}
	return nil
}

func (p plugin) status(args *skel.CmdArgs) error {
	c, err := loadConf(args.StdinData)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err = c.client(p.getenv).Ready(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, attach.ErrDegraded):
		return types.NewError(codeDegraded, "netplugin's data plane does not follow", err.Error())
	}
	return types.NewError(codeUnavailable, "netplugin cannot attach containers now", err.Error())
}

// toCNI maps error kinds to the specification's codes.
func toCNI(err error) error {
	if err == nil {
		return nil
	}
	code, msg := types.ErrInternal, "netplugin failed"
	switch {
	case errors.Is(err, attach.ErrUnreachable):
		code, msg = types.ErrTryAgainLater, "netplugin does not answer"
	case errors.Is(err, model.ErrUnavailable):
		code, msg = types.ErrTryAgainLater, "try again later"
	case errors.Is(err, model.ErrInvalid):
		code, msg = types.ErrInvalidNetworkConfig, "invalid request"
	case errors.Is(err, model.ErrNotFound):
		code, msg = types.ErrInvalidNetworkConfig, "something that the request names does not exist"
	case errors.Is(err, model.ErrExhausted):
		code, msg = codeExhausted, "a pool is exhausted"
	case errors.Is(err, model.ErrConflict), errors.Is(err, model.ErrExists), errors.Is(err, model.ErrInUse):
		code, msg = codeConflict, "conflict"
	}
	return types.NewError(code, msg, err.Error())
}
