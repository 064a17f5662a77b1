package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// clusterAPI answers the API's questions about the cluster.
type clusterAPI struct {
	*member
	ctrl       *control.Controller
	kubernetes *kubernetes
	token      *transport.TokenFile // nil = none is asked for
	audit      *audit.Log           // nil = nothing is recorded
	distrust   *daemon.UntrustedClients
}

// Health reports whether the store answers linearizably, which needs its quorum,
// whether the view follows it, whether it takes writes, and whether it is a
// cluster's; of an embedded one also how its disk fares.
func (c clusterAPI) Health(ctx context.Context) api.Health {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	h := api.Health{Ready: true}
	v, err := c.ctrl.View(ctx)
	if err != nil {
		condition.MasterStore.Add(&h, fmt.Errorf("the cluster's store cannot be read: %w", err))
		return h
	}
	condition.MasterStore.Add(&h, nil)
	condition.MasterSpace.Add(&h, c.takesWrites(ctx))
	if c.disk != nil {
		var err error
		if text := c.disk(); text != "" {
			err = errors.New(text)
		}
		condition.MasterDisk.Add(&h, err) // it serves as long as it can
	}
	if _, there := v.Settings.Global(); !there {
		err = errors.New("the store has no cluster settings: it is empty or another store; check --etcd-endpoints or --data-dir")
	}
	condition.MasterSettings.Add(&h, err)
	if text := c.ctrl.Store.Mismatch(); text != "" {
		condition.MasterSameStore.Add(&h, errors.New(text)) // it serves what there is
	}
	if f := v.Settings.AciFabric(); f.Kept {
		apiserver.AddFabric(&h, f) // what is in the fabric stays
	}
	if c.token != nil {
		condition.MasterToken.Add(&h, c.token.Err()) // those read before still count
	}
	if c.audit != nil {
		condition.MasterAudit.Add(&h, c.audit.Err()) // changes go on without it
	}
	if c.distrust != nil {
		condition.MasterClientsTrust.Add(&h, c.distrust.Err())
	}
	c.kubernetes.check(&h)
	return h
}

// alarmTimeout bounds how long /readyz waits for the store's servers: each knows the alarms
// of all, so the fast ones are enough.
const alarmTimeout = 500 * time.Millisecond

// takesWrites reports whether the store has raised an alarm, as when its space is
// used up: then it can be read, and nothing can be changed.
func (c clusterAPI) takesWrites(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, alarmTimeout)
	defer cancel()
	for _, s := range c.Stores(ctx) {
		if len(s.Alarms) > 0 {
			return fmt.Errorf("the store at %s has raised an alarm: %s; %s", s.Address, strings.Join(s.Alarms, ", "), model.AlarmRemedy(s.Alarms...))
		}
	}
	return nil
}

// intent tells the networks and groups that there are.
type intent struct{ ctrl *control.Controller }

func (i intent) Networks(ctx context.Context) ([]model.Network, error) {
	v, err := i.ctrl.View(ctx)
	if err != nil {
		return nil, err
	}
	return v.Networks.List(""), nil
}

func (i intent) Groups(ctx context.Context) ([]model.Group, error) {
	v, err := i.ctrl.View(ctx)
	if err != nil {
		return nil, err
	}
	return v.Groups.List(""), nil
}
