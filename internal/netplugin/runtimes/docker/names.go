package docker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

const (
	// namesInterval is how often containers are looked at when no event says that
	// anything has changed.
	namesInterval = 15 * time.Second
	// namesRetry is how soon they are looked at again after a failure.
	namesRetry = time.Second
)

// followNames tells the cluster the names and labels of the engine's containers
// until ctx ends. At each event it looks at all containers, so that neither the
// loss, the order nor the meaning of an event matters.
func (p *Plugin) followNames(ctx context.Context) {
	wake := waiting.NewBell()
	var events sync.WaitGroup
	events.Go(func() {
		p.followEvents(ctx, wake.Ring)
	})
	defer events.Wait()
	told := map[attach.Key]attach.Fact{}
	looks := int64(0)
	said := ""
	for {
		again := namesInterval
		text := ""
		looks++
		if err := p.reportNames(ctx, looks, told); err != nil {
			text, again = err.Error(), namesRetry
		}
		if ctx.Err() != nil {
			return
		}
		if text != said && text != "" {
			p.log.Warn("names and labels of containers cannot be reported to the cluster", "problem", text)
		} else if text != said {
			p.log.Info("names and labels of containers are reported to the cluster again")
		}
		said = text
		select {
		case <-wake:
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// reportNames tells the changes since the last call; look, the number of the call, is
// the revision of what it tells.
// It reads the attachments before the containers, so that an attachment without a
// container has lost its container.
func (p *Plugin) reportNames(ctx context.Context, look int64, told map[attach.Key]attach.Fact) error {
	keys := p.backend.AttachedBy(attach.SourceDocker)
	if len(keys) == 0 {
		clear(told)
		return nil
	}
	running, err := p.engine.containers(ctx, "")
	if err != nil {
		return err
	}
	byKey := map[attach.Key]attach.Fact{}
	enter := func(list []container) {
		for _, c := range list {
			for _, id := range c.endpoints {
				k := endpointAttachment(id)
				byKey[k] = attach.Fact{Key: k, Rev: look, ID: c.id, Name: c.name, Labels: c.labels, Health: c.health}
			}
		}
	}
	enter(running)
	starting := p.preStart.keep(keys, byKey)
	if len(starting) > 0 {
		list, err := p.engine.created(ctx, starting)
		if err != nil {
			return err
		}
		enter(list)
	}
	attached := map[attach.Key]bool{}
	for _, k := range keys {
		attached[k] = true
		before, was := told[k]
		now, runs := byKey[k]
		if !runs {
			if _, starts := starting[k]; starts || !was {
				continue
			}
			now = before
			now.Rev, now.Ended = look, true
		}
		if was && now.Equal(before) {
			continue
		}
		switch err := p.backend.Report(ctx, now); {
		case errors.Is(err, model.ErrInvalid):
			p.log.Warn("the cluster refuses a container's name or labels", "container", now.Name, "error", err)
			told[k] = now
		case err != nil:
			return err
		default:
			told[k] = now
		}
	}
	maps.DeleteFunc(told, func(k attach.Key, _ attach.Fact) bool { return !attached[k] })
	p.routeMultihomed(ctx, running, attached)
	return nil
}
