package agent

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// runtimeService is attach.Service: attachments, and whether the host is ready for them.
type runtimeService struct {
	*attachment.Service
	observer *observe.Observer
}

// Ready implements attach.Service.
func (s runtimeService) Ready(ctx context.Context) error { return s.observer.Ready(ctx) }

// forParts is the agent as its attachments and its observer know it.
type forParts struct{ of *Agent }

var (
	_ attachment.Agent = forParts{}
	_ observe.Agent    = forParts{}
)

func (p forParts) Kick(reason string)             { p.of.kick(reason) }
func (p forParts) AwaitFirst(ctx context.Context) { p.of.awaitFirst(ctx) }
func (p forParts) Able() error                    { return p.of.Observer.Able() }
func (p forParts) Owns() error                    { return p.of.mine() }
func (p forParts) Named() error                   { return p.of.lease.named() }
func (p forParts) Tunnels() error                 { return p.of.probers.tunnels.Err() }
func (p forParts) BGP() *tables.BGPStatus         { return p.of.bgp.fabric.Status() }

// forMirror is the agent as its state mirror knows it.
type forMirror struct {
	forParts
	ownHost waiting.Bell // the host's record has changed
}

var _ statemirror.Agent = forMirror{}

func (m forMirror) Soon(reason string)       { m.of.runner.Soon(reason) }
func (m forMirror) Own() []statemirror.Owned { return m.of.Attachments.Standing() }
func (m forMirror) OnOwnHost()               { m.ownHost.Ring() }
func (m forMirror) OnInfra()                 { m.of.Attachments.FollowInfra() }
func (m forMirror) OnLost()                  { m.of.Attachments.PutBack() }

func (m forMirror) OnFreeze(why string) {
	m.of.Observer.SetCondition(observe.AboutStore, why)
	m.of.Attachments.PutBack()
	m.of.Attachments.ReleaseOrphans()
	if why == "" {
		m.of.Attachments.Pay()
	}
}

func (p forParts) SetAttachmentsProblem(text string) {
	p.of.Observer.SetCondition(observe.AboutAttachments, text)
}

func (p forParts) WriteStatus(ctx context.Context, now tables.HostStatus) error {
	return p.of.registration.writeStatus(ctx, now)
}
