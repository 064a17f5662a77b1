package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// What changes all the while.
const (
	writeEvery = 50 * time.Millisecond
	startEvery = 200 * time.Millisecond
	// patience bounds one call of CNI, as runtimes bound it.
	patience = 2 * time.Minute
)

// churn makes and deletes objects by the API, where there is one, and containers on
// every host.
type churn struct {
	w    *world
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	r      *report
	failed []error // of what has to succeed in the end
}

// startChurn begins; what it does is written down in the report, which is the
// churn's until it has been ended.
func startChurn(ctx context.Context, w *world, r *report) (*churn, error) {
	c := &churn{w: w, r: r}
	work := ctx // what has begun is finished
	ctx, c.stop = context.WithCancel(ctx)
	if !w.peer() {
		client, err := w.lab.Masters.API()
		if err != nil {
			return nil, err
		}
		c.wg.Go(func() {
			defer client.Close()
			for i := 0; ctx.Err() == nil; i++ {
				c.object(work, client, fmt.Sprint("g", i%7))
			}
		})
	}
	for _, h := range w.lab.Hosts() {
		c.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c.container(work, w.container(fmt.Sprintf("churn%s-%d", h.Name, i), h.Name, []string{"db", "web"}[i%2]))
				pause(ctx, startEvery)
			}
		})
	}
	return c, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// object makes a policy with a rule and a group that has it, reads the group and
// deletes them again, each by a client that knows every netmaster.
func (c *churn) object(ctx context.Context, client *api.Client, name string) {
	tenant, network := c.w.tenant, c.w.network
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := client.Policies().Create(ctx, api.Policy{TenantName: tenant, PolicyName: name})
			return err
		},
		func(ctx context.Context) error {
			_, err := client.Rules().Create(ctx, api.Rule{TenantName: tenant, PolicyName: name, RuleID: "1", Priority: 1, Direction: "in", Action: "deny"})
			return err
		},
		func(ctx context.Context) error {
			_, err := client.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: tenant, NetworkName: network, GroupName: name, Policies: []string{name}})
			return err
		},
		func(ctx context.Context) error {
			_, err := client.EndpointGroups().Get(ctx, tenant+":"+name)
			return err
		},
		func(ctx context.Context) error { return gone(client.EndpointGroups().Delete(ctx, tenant+":"+name)) },
		func(ctx context.Context) error { return gone(client.Rules().Delete(ctx, tenant+":"+name+":1")) },
		func(ctx context.Context) error { return gone(client.Policies().Delete(ctx, tenant+":"+name)) },
	} {
		c.ask(ctx, f)
		pause(ctx, writeEvery)
	}
}

// gone takes an object that is not there for deleted: an earlier request has done it
// whose answer was lost.
func gone(err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Status == 404 {
		return nil
	}
	return err
}

// ask asks until it is answered well, and notes how long that took.
func (c *churn) ask(ctx context.Context, f func(context.Context) error) {
	start := time.Now()
	for ctx.Err() == nil {
		err := f(ctx)
		c.mu.Lock()
		c.r.Requests++
		if err == nil {
			c.r.Refusal = max(c.r.Refusal, time.Since(start).Milliseconds())
			c.mu.Unlock()
			return
		}
		c.r.Failed++
		c.r.Errors = note(c.r.Errors, err)
		c.mu.Unlock()
		if time.Since(start) > patience {
			c.give(fmt.Errorf("API: not in %v: %w", patience, err))
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func (c *churn) give(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, err)
}

// note keeps the first error of each kind. Errors that differ in numbers only are one kind.
func note(all []string, err error) []string {
	kind := func(s string) string { return digits.ReplaceAllString(s, "") }
	if len(all) >= 5 || slices.ContainsFunc(all, func(s string) bool { return kind(s) == kind(err.Error()) }) {
		return all
	}
	return append(all, err.Error())
}

var digits = regexp.MustCompile("[0-9]+")

// container attaches a container and takes it away, each until it has succeeded, as
// runtimes do.
func (c *churn) container(ctx context.Context, s testcluster.ContainerSpec) {
	first := time.Now()
	for {
		start := time.Now()
		err := c.w.runs.add(ctx, s)
		took := time.Since(start).Milliseconds()
		c.mu.Lock()
		c.r.Adds++
		if err != nil {
			c.r.AddFailed++
			c.r.AddErrors = note(c.r.AddErrors, err)
		} else {
			c.r.Add, c.r.Added = max(c.r.Add, took), max(c.r.Added, time.Since(first).Milliseconds())
		}
		c.mu.Unlock()
		if err == nil {
			break
		}
		if ctx.Err() != nil || time.Since(first) > patience {
			c.give(fmt.Errorf("ADD: not in %v: %w", patience, err))
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.w.runs.del(ctx, s); err != nil {
		c.give(fmt.Errorf("DEL: %w", err))
	}
}

// finish ends the churn, and waits until all that it made is deleted.
func (c *churn) finish() error {
	c.stop()
	c.wg.Wait()
	return errors.Join(c.failed...)
}
