package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// parsePodSubnets reads --pod-cidr: at most one subnet of each family, or that no network
// is to be made.
func parsePodSubnets(list []string) (out []netip.Prefix, none bool, err error) {
	if slices.Equal(list, []string{"none"}) {
		return nil, true, nil
	}
	var has [2]bool
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, false, fmt.Errorf("%q must be a subnet such as 10.244.0.0/16 or fd00:10:244::/64, or alone: none", text)
		}
		family := 0
		if p.Addr().Is6() {
			family = 1
		}
		if has[family] {
			return nil, false, fmt.Errorf("%q is the second subnet of its family: name one of IPv4, one of IPv6, or one of each", text)
		}
		has[family] = true
		out = append(out, p)
	}
	return out, false, nil
}

// podNetworkRetry is how soon making the network for pods is tried again.
const podNetworkRetry = 10 * time.Second

// makePodNetwork makes the network that --pod-cidr asks for, in each replica, as any client
// could. It logs errors and tries again, since an operator may remove the cause.
func (o *options) makePodNetwork(ctx context.Context, ctrl *control.Controller, log *slog.Logger) error {
	for told := ""; len(o.podSubnets) > 0; {
		err := ctrl.Networks.MakePodNetwork(ctx, control.Admin(), o.podSubnets)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, model.ErrUnavailable), ctx.Err() != nil:
		case err.Error() != told:
			told = err.Error()
			log.Error("the network of --pod-cidr cannot be created; trying again", "subnets", o.podSubnets, "error", err)
		}
		if err := waiting.Pause(ctx, podNetworkRetry); err != nil {
			return err
		}
	}
	return nil
}
