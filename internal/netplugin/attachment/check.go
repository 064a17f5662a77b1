package attachment

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// expectation is what the container's side of a finished attachment must be.
func expectation(e Entry, netns string) vethpair.Expect {
	want := vethpair.Expect{Netns: netns, IfName: e.Request.IfName}
	if e.Result == nil {
		return want
	}
	want.MAC = e.Result.MAC
	for _, ad := range e.Result.Addresses {
		want.Addresses = append(want.Addresses, ad.Prefix)
	}
	for _, rt := range e.Result.Routes {
		want.Gateways = append(want.Gateways, rt.Gateway)
	}
	return want
}

// Check implements attach.Service.
func (a *Service) Check(_ context.Context, r attach.CheckRequest) error {
	e, ok := a.journal.get(r.Key)
	if !ok || e.State != StateDone {
		return model.Errorf(model.ErrNotFound, "check %s: there is no such attachment on this host", r.Key)
	}
	want := expectation(e, r.Netns)
	if r.Netns == "" {
		want.Netns = e.Request.Netns
	}
	if r.MAC != "" && r.MAC != want.MAC.String() {
		return model.Errorf(model.ErrConflict, "check %s: the runtime remembers MAC %s, the attachment has %s", r.Key, r.MAC, want.MAC)
	}
	for _, p := range r.Addresses {
		if !slices.Contains(want.Addresses, p) {
			return model.Errorf(model.ErrConflict, "check %s: the runtime remembers address %s, which the attachment does not have", r.Key, p)
		}
	}
	there, err := vethpair.Exists(e.HostIf)
	if err == nil && !there {
		err = model.Errorf(model.ErrNotFound, "the host's interface %s does not exist", e.HostIf)
	}
	if err == nil && !e.Request.Parked { // what the runtime has made of it is its own affair
		err = vethpair.Verify(want)
	}
	if err == nil {
		err = a.Interfaces.checkPort(e)
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", r.Key, err)
	}
	return nil
}

func (a *Interfaces) checkPort(e Entry) error {
	o, _ := a.reached.Get()
	st, ok := o.Report.Ports.Get(e.HostIf)
	switch {
	case o.Err != nil:
		return model.Errorf(model.ErrConflict, "the data plane is not in sync: %w", o.Err)
	case !ok:
		return model.Errorf(model.ErrNotFound, "port %s is not programmed", e.HostIf)
	case st.Err != nil:
		return model.Errorf(model.ErrConflict, "port %s is not programmed: %w", e.HostIf, st.Err)
	}
	return nil
}
