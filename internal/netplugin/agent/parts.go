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

// agentPort is the agent as its attachments and its observer know it.
type agentPort struct{ of *Agent }

var (
	_ attachment.Agent = agentPort{}
	_ observe.Agent    = agentPort{}
)

func (p agentPort) Kick(reason string)             { p.of.kick(reason) }
func (p agentPort) AwaitFirst(ctx context.Context) { p.of.awaitFirst(ctx) }
func (p agentPort) Able() error                    { return p.of.Observer.Able() }
func (p agentPort) Owns() error                    { return p.of.checkOwnsHost() }
func (p agentPort) Named() error                   { return p.of.lease.checkName() }
func (p agentPort) Tunnels() error                 { return p.of.probers.tunnels.Err() }
func (p agentPort) BGP() *tables.BGPStatus         { return p.of.bgp.fabric.Status() }

// forMirror is the agent as its state mirror knows it.
type forMirror struct {
	agentPort
	ownHost waiting.Bell // the host's record has changed
}

var _ statemirror.Agent = forMirror{}

func (m forMirror) Soon(reason string)            { m.of.runner.Soon(reason) }
func (m forMirror) Own() []statemirror.Attachment { return m.of.Attachments.Finished() }
func (m forMirror) OnOwnHost()                    { m.ownHost.Ring() }
func (m forMirror) OnInfra()                      { m.of.Attachments.FollowInfra() }
func (m forMirror) OnLost()                       { m.of.Attachments.RestoreMissing() }

func (m forMirror) OnFreeze(why string) {
	m.of.Observer.SetCondition(observe.AboutStore, why)
	m.of.Attachments.RestoreMissing()
	m.of.Attachments.ReleaseOrphans()
	if why == "" {
		m.of.Attachments.ReleasePending()
	}
}

func (p agentPort) SetAttachmentsProblem(text string) {
	p.of.Observer.SetCondition(observe.AboutAttachments, text)
}

func (p agentPort) WriteStatus(ctx context.Context, now tables.HostStatus) error {
	return p.of.registration.writeStatus(ctx, now)
}
